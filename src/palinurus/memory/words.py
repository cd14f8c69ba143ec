"""Words as the text index wants them.

The index stems by itself (porter) and splits at whatever is no letter or digit. It cannot split Chinese or Japanese,
which have no spaces; there each pair of neighbouring characters is a word, and each ideograph alone too, so that a
question of one character finds something.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from palinurus.memory.store import WordQuery

MAX_WORDS = 64  # of a question; a longer one is a document, and its first words say what it is about

_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
_HANGUL = "\uac00-\ud7a3\u1100-\u11ff"
_UNSPACED = f"[{_IDEOGRAPH}々〇{_KANA}{_HANGUL}]+"
_ALONE = f"[{_IDEOGRAPH}]"
_WORD = re.compile(r"[^\W_]+")

# What questions are made of. A word that is here says how is asked, not what about.
_ASKING = """
a about after again all also am an and any are as at be because been before being both but by can could did do does
doing don done during each few for from further get gets getting got had has have having he her here hers herself
him himself his how i if in into is it its itself just kind kinds let ll many may me might mine more most much must
my myself no nor not of off on once only or other our ours ourselves out over own please re s same shall she should
so some such t tell than that the their theirs them themselves then there these they this those through to too
under until up upon us ve very was we were what when where which while who whom whose why will with would you your
yours yourself yourselves d m didn doesn isn wasn aren weren hasn haven hadn won wouldn couldn shouldn
"""
_ASKING_UNSPACED = """
什么 怎么 哪里 哪儿 哪个 为什 么时 时候 多少 我的 你的 他的 的是 是什 是谁 吗 呢 吧 了 的 是 在 我 你 他 她 它 和 与 有
何で 何を 何が です でし した ます まし ませ すか たか どこ いつ だれ 誰が どの どう なぜ から まで
"""
STOP_WORDS = frozenset(_ASKING.split() + _ASKING_UNSPACED.split())


def index_words(text: str) -> str:
    """What the text index is given instead of the text."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text)
    return _pattern(_UNSPACED).sub(lambda run: f" {' '.join(_pairs(run.group()))} ", plain)


def word_query(text: str) -> WordQuery:
    """The words of a question that say what it is about; all of its words, if it has no others."""
    words = list(dict.fromkeys(_WORD.findall(index_words(text).lower())))
    telling = [word for word in words if word not in STOP_WORDS]
    return WordQuery(tuple((telling or words)[:MAX_WORDS]))


def _pairs(run: str) -> list[str]:
    """Of `東京都`: 東京 京都, and 東 京 都."""
    pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
    return list(dict.fromkeys([*pairs, *_pattern(_ALONE).findall(run)])) if len(run) > 1 else pairs


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compiled on first use: so many characters take longer than a search, and most texts have none of them."""
    return re.compile(text)
