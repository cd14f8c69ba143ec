"""Words by their meaning alone: stems for scripts with spaces, pairs of characters for those without.

Deliberately small and rough: a stem may join two words, and seldom parts one. What is asked is cut down to the words
that carry it; what is quoted is looked at whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Literal

from msgspec import Struct

from palinurus.providers.scout.patterns import later

_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
_OWNER = re.compile(r"['’]s?$", re.IGNORECASE)

Script = Literal["", "han", "hiragana", "katakana", "hangul"]

STOP_WORDS = frozenset(
    """
    a about after again ago all also am an and any anyone anything are as at back be because been before being but by
    can could did do does doing don else ever everything exactly find for from gave get give got had has have he her
    hers him his how i if in into is isn it its just kind know last let ll look many me mean mention mentioned mine more
    most much my no not now of off on once one only or our out over please re really recall remember remind s said say
    says search she should show so some someone something sort still t tell than thank thanks that the their them then
    there these they thing things think this those to told too type up us ve very was we were what whats when where
    which who whom whose why will with would you your yours write wrote note noted notes
    """.split()  # noqa: SIM905  a list of quoted words is harder to read and to mend
)

# Words that ask or join in scripts without spaces. Longer ones first: each is a place where a run is cut.
_CUTS = sorted(
    """
    什么时候 甚麼時候 什么 什麼 怎么样 怎么 怎麼 哪里 哪裡 哪儿 哪个 哪些 哪 谁 誰 多少 几个 几 為什麼 为什么
    是不是 有没有 请问 告诉我 告诉 你知道 知道 记得 記得 关于 關於 我们 我們 你们 他们 她们 我的 你的 他的 她的
    我 你 他 她 它 们 的 了 吗 嗎 呢 吧 是 在 有 和 与 跟 也 都 就 还 還 把 被 给 叫 何時 何色 何人 何 私 僕 俺 君
    """.split(),  # noqa: SIM905
    key=len,
    reverse=True,
)
_CUT = later("|".join(_CUTS))
_KANA_ENDINGS = tuple(
    """
    でしょうか でしたか でしょう ていますか ています しました について ましたか ください という ですか でした
    ますか ました ません どんな いくつ いくら していた ていた ている です ます てる たい して した する
    いつ どこ だれ なに なん どう どの どれ から まで より って えて った
    べ み は が を に で と も の へ や か ね よ な い た て る う く し き り
    """.split()  # noqa: SIM905
)
_KANA_BEGINNING = later(r"^(?:は|が|を|に|で|と|も|の|へ|や)")
_KANA_QUESTION = later(r"いつ|どこ|だれ|なに|なん|どう|どの|どれ|どんな|いくつ|いくら|について|ありますか|あります")
_HANGUL_ENDING = later(r"(?:에서|에게|으로|이라는|은|는|이|가|을|를|의|에|와|과|도|로|야|요|까)$")
_HANGUL_QUESTION = later(r"뭐|뭔|무엇|무슨|어디|언제|누구|누가|몇|내$|나의")

_IRREGULAR = """
go went gone goes|buy bought|meet met|see saw seen|take took taken|eat ate eaten|write wrote written|give gave given
feel felt|get got gotten|make made|think thought|find found|leave left|run ran|begin began begun|keep kept|lose lost
send sent|win won|sell sold|teach taught|catch caught|drive drove driven|fly flew flown|swim swam swum|sing sang sung
speak spoke spoken|choose chose chosen|break broke broken|grow grew grown|know knew known|come came|become became
bring brought|build built|hear heard|hold held|lead led|pay paid|read|ride rode ridden|rise rose|sit sat|sleep slept
spend spent|stand stood|swear swore|tell told|understand understood|wear wore worn|wake woke|draw drew drawn|fall fell
forget forgot forgotten|hide hid|throw threw thrown|die died dying|child children kid kids|man men|woman women
wife wives|life lives|person people|foot feet|tooth teeth|mouse mice|knife knives|colour color|mum mom mother|dad father
decide decided decides decision decisions
film films movie movies|bike bicycle bicycles bikes
phone telephone|tv television|photo photograph photos photographs|favourite favorite
"""
_SAME = {
    form: group.split()[0] for group in _IRREGULAR.replace("\n", "|").split("|") if group for form in group.split()
}
_DOUBLED = "aeiouslz"
_OR = re.compile(r"(?<!o)or")  # colour and color, but no doour


class Token(Struct, frozen=True):
    """A word of a sentence, with what its spelling tells."""

    word: str  # lower case
    start: int
    capital: bool
    owner: bool  # "Anna's"

    @property
    def is_cjk(self) -> bool:
        return bool(script_of(self.word[0]))


def script_of(character: str) -> Script:
    """Which of the scripts without spaces it is of; Korean has spaces, and words that run together."""
    if character < "\u3005":
        return ""
    if "\u3041" <= character <= "\u309f":
        return "hiragana"
    if "\u30a0" <= character <= "\u30ff":
        return "katakana"
    if "\uac00" <= character <= "\ud7af":
        return "hangul"
    return "han" if character in "\u3005\u3007" or "\u3400" <= character <= "\ufaff" else ""


def tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        if match[0].isascii():
            yield from _word(match[0], match.start())
            continue
        at = match.start()
        for cjk, part in groupby(match[0], key=lambda character: bool(script_of(character))):
            run = "".join(part)
            yield from (Token(run, at, False, False),) if cjk else _word(run, at)
            at += len(run)


def _word(raw: str, start: int) -> Iterator[Token]:
    bare = _OWNER.sub("", raw)
    contracted = bare.lower() in STOP_WORDS or bare.lower() in ("it", "that", "there", "here")
    word = bare if bare != raw else raw.replace("’", "'").split("'")[0]
    if word:
        yield Token(word.lower(), start, raw[0].isupper(), bare != raw and not contracted)


def stem(word: str) -> str:
    """A word without its ending, in one spelling."""
    return _ending_off(_SAME.get(word, word))


def _ending_off(word: str) -> str:
    word = word.replace("our", "or") if len(word) > 3 else word
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 3 and not word.endswith("eed"):
            return _without_e(
                root[:-1] if len(root) > 3 and root[-1] == root[-2] and root[-1] not in _DOUBLED else root
            )
    for ending in ("ies", "es"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    return _without_e(word)


def spellings(word: str) -> tuple[str, ...]:
    """The beginnings by which a word and its forms can be found, for a search that knows no stems."""
    if script_of(word[0]):
        return pairs(word)
    forms = [form for form, first in _SAME.items() if first == _SAME.get(word)] or [word]
    found = dict.fromkeys(_ending_off(form) for form in dict.fromkeys([word, *forms]))
    return tuple(dict.fromkeys(each for root in found for each in (root, _OR.sub("our", root))))


def _without_e(word: str) -> str:
    if len(word) > 3 and (word[-1] == "e" or (word[-1] == "y" and word[-2] not in "aeiou")):
        return word[:-1]
    return word


def stems_of(text: str) -> frozenset[str]:
    """Everything that a text can be found by."""
    found: set[str] = set()
    for token in tokens(text):
        found.update(pairs(token.word) if token.is_cjk else (stem(token.word),))
        if token.is_cjk:
            found.update(token.word)  # single characters count for single characters
    return frozenset(found)


def pairs(run: str) -> tuple[str, ...]:
    return (run,) if len(run) < 3 else tuple(run[at : at + 2] for at in range(len(run) - 1))


class Run(Struct, frozen=True):
    """A part of a run of Chinese, Japanese or Korean that carries meaning."""

    text: str
    owner: bool  # what follows belongs to it: X的Y, XのY
    foreign: bool = False  # katakana: a name, or a word that is as telling as one


def content_runs(run: str) -> list[Run]:
    """The parts of a run that say what is asked about."""
    found: list[Run] = []
    at = 0
    for script, characters in groupby(run, key=script_of):
        part = "".join(characters)
        before, at = at, at + len(part)
        owner = run[at:].startswith("の")
        match script:
            case "hiragana":
                found += _kana_words(part, follows=before > 0)
            case "katakana":
                found.append(Run(part, owner, foreign=True))
            case "hangul":
                bare = _HANGUL_ENDING().sub("", part) if len(part) > 2 else part
                found += [] if _HANGUL_QUESTION().match(bare) else [Run(bare, part.endswith("의"))]
            case _:
                found += _han_words(part, run[at:])
    return found


def _han_words(script: str, behind: str) -> Iterator[Run]:
    at = 0
    for cut in [*_CUT().finditer(script), None]:
        part = script[at : cut.start() if cut else len(script)]
        following = script[cut.start() :] if cut else behind
        if part:
            yield Run(part, following.startswith(("的", "の")))
        at = cut.end() if cut else at


def _kana_words(script: str, *, follows: bool) -> list[Run]:
    """Hiragana is mostly grammar: what is left without it may be a word."""
    bare = _KANA_BEGINNING().sub("", script) if follows else script
    found: list[Run] = []
    for part in _KANA_QUESTION().split(bare):
        word = _without_endings(part)
        if len(word) > 1:
            found.append(Run(word, part[len(word) :].startswith("の")))
    return found


def _without_endings(word: str) -> str:
    while ending := next((each for each in _KANA_ENDINGS if word.endswith(each)), ""):
        word = word.removesuffix(ending)
    return word
