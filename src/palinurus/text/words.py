"""The words of a text: stop words, stems, roots for scripts with spaces, character pairs for those without.

A stem is what the text index stores: folded and Porter-stemmed by SQLite's FTS5, because ranking reads the words of
candidates again and must agree with the index on which words are equal. A root is the stem of a word, or of the word
that is listed here as its base form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct

_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")


def words_of(text: str) -> list[str]:
    """Words in order, in lower case and without accents."""
    return _WORD.findall(folded(text))


def folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text.lower())))


def beginning(stemmed: str) -> str:
    """A prefix that all words with this stem share: stemming changes at most the last letter (happi)."""
    last, length = stemmed[-1:], len(stemmed)
    changed = length > 3 or (length > 2 and last in "ey") or (length > 1 and last == "i")
    return stemmed[:-1] if changed else stemmed


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a folded word."""
    import apsw

    raw = word.encode("utf-8", "replace")
    stems = _porter()(raw, apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
    return stems[0] if stems else word


@cache
def _porter() -> Any:
    """The tokenizer of the text index. Accents stay: `folded` removes them where they shall go."""
    import apsw  # most starts stem nothing

    return apsw.Connection(":memory:").fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "0"])


def lazy_pattern(pattern: str, flags: int = 0) -> Callable[[], re.Pattern[str]]:
    """A pattern that is compiled on first use: most starts need none of the long ones."""
    return cache(lambda: re.compile(pattern, flags))


MAX_WORDS = 64  # of a question; a longer one is a document, and its first words show its subject
_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
_HANGUL = "\uac00-\ud7a3\u1100-\u11ff"
_UNSPACED = lazy_pattern(f"[{_IDEOGRAPH}々〇{_KANA}{_HANGUL}]+")
_IDEOGRAPHS = lazy_pattern(f"[{_IDEOGRAPH}]")

_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
_OWNER = re.compile(r"['’]s?$", re.IGNORECASE)
Script = Literal["", "han", "hiragana", "katakana", "hangul"]
STOP_WORDS = frozenset(
    """
    a about after again all also am an and any are as at be because been before being both but by can could did do does
    doing don done during each few for from further get gets getting got had has have having he her here hers herself
    him himself his how i if in into is it its itself just kind kinds let ll many may me might mine more most much must
    my myself no nor not of off on once only or other our ours ourselves out over own please re s same shall she should
    so some such t tell than that the their theirs them themselves then there these they this those through to too
    under until up upon us ve very was we were what when where which while who whom whose why will with would you your
    yours yourself yourselves d m didn doesn isn wasn aren weren hasn haven hadn won wouldn couldn shouldn
    什么 怎么 哪里 哪儿 哪个 为什 么时 时候 多少 我的 你的 他的 的是 是什 是谁 吗 呢 吧 了 的 是 在 我 你 他 她 它
    和 与 有 何で 何を 何が です でし した ます まし ませ すか たか どこ いつ だれ 誰が どの どう なぜ から まで
    """.split()  # noqa: SIM905  a list of quoted words is harder to read and to mend
)
"""Words without a subject of their own; also as the character pairs that an index holds."""
QUESTION_WORDS = STOP_WORDS | frozenset(
    """
    ago anyone anything back else ever everything exactly find gave give know last look mean mention mentioned now one
    really recall remember remind said say says search show someone something sort still thank thanks thing things think
    told type whats write wrote note noted notes
    """.split()  # noqa: SIM905
)
"""Stop words, and the words people use to ask an assistant about its notes."""

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
_CUT = lazy_pattern("|".join(_CUTS))
_KANA_ENDINGS = tuple(
    """
    でしょうか でしたか でしょう ていますか ています しました について ましたか ください という ですか でした
    ますか ました ません どんな いくつ いくら していた ていた ている です ます てる たい して した する
    いつ どこ だれ なに なん どう どの どれ から まで より って えて った
    べ み は が を に で と も の へ や か ね よ な い た て る う く し き り
    """.split()  # noqa: SIM905
)
_KANA_BEGINNING = lazy_pattern(r"^(?:は|が|を|に|で|と|も|の|へ|や)")
_KANA_QUESTION = lazy_pattern(
    r"いつ|どこ|だれ|なに|なん|どう|どの|どれ|どんな|いくつ|いくら|について|ありますか|あります"
)
_HANGUL_ENDING = lazy_pattern(r"(?:에서|에게|으로|이라는|은|는|이|가|을|를|의|에|와|과|도|로|야|요|까)$")
_HANGUL_QUESTION = lazy_pattern(r"뭐|뭔|무엇|무슨|어디|언제|누구|누가|몇|내$|나의")
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


class WordToken(Struct, frozen=True):
    """A word of a sentence, with properties from its spelling."""

    word: str  # lower case
    start: int
    capital: bool
    owner: bool  # "Anna's"

    @property
    def is_cjk(self) -> bool:
        return bool(script_of(self.word[0]))


def script_of(character: str) -> Script:
    """Which script without spaces it belongs to, or Korean, which has spaces but joins words."""
    if character < "\u3005":
        return ""
    if "\u3041" <= character <= "\u309f":
        return "hiragana"
    if "\u30a0" <= character <= "\u30ff":
        return "katakana"
    if "\uac00" <= character <= "\ud7af":
        return "hangul"
    return "han" if character in "\u3005\u3007" or "\u3400" <= character <= "\ufaff" else ""


def tokens(text: str) -> Iterator[WordToken]:
    for match in _TOKEN.finditer(text):
        if match[0].isascii():
            yield from _word(match[0], match.start())
            continue
        at = match.start()
        for cjk, part in groupby(match[0], key=lambda character: bool(script_of(character))):
            run = "".join(part)
            yield from (WordToken(run, at, False, False),) if cjk else _word(run, at)
            at += len(run)


def _word(raw: str, start: int) -> Iterator[WordToken]:
    bare = _OWNER.sub("", raw)
    contracted = bare.lower() in QUESTION_WORDS or bare.lower() in ("it", "that", "there", "here")
    word = bare if bare != raw else raw.replace("’", "'").split("'")[0]
    if word:
        yield WordToken(word.lower(), start, raw[0].isupper(), bare != raw and not contracted)


def root(word: str) -> str:
    """The common root of a word's forms."""
    return stem(_SAME.get(word, word))


def roots_of(text: str) -> frozenset[str]:
    """All search terms of a text."""
    found: set[str] = set()
    for token in tokens(text):
        # Single characters match only single characters.
        found.update((*pairs(token.word), *token.word) if token.is_cjk else (root(token.word),))
    return frozenset(found)


def index_words(text: str, *, singles: bool = True) -> str:
    """The text to put into a text index instead of the original.

    The index stems by itself and splits at everything but letters and digits. It cannot split Chinese or Japanese,
    which have no spaces: there each pair of neighbouring characters is a word and, with `singles`, each ideograph too.
    """
    if text.isascii():
        return text

    def split(run: re.Match[str]) -> str:
        """Of `東京都`: 東京 京都, and 東 京 都."""
        run_text = run.group()
        two = [run_text[at : at + 2] for at in range(len(run_text) - 1)] or [run_text]
        return f" {' '.join(dict.fromkeys([*two, *(_IDEOGRAPHS().findall(run_text) if singles else ())]))} "

    return _UNSPACED().sub(split, unicodedata.normalize("NFKC", text))


def query_words(text: str, *, singles: bool = True) -> tuple[str, ...]:
    """The index words of a question that carry its subject; all of them if none do."""
    words = list(dict.fromkeys(_WORD.findall(index_words(text, singles=singles).lower())))
    telling = [word for word in words if word not in STOP_WORDS]
    return tuple((telling or words)[:MAX_WORDS])


def pairs(run: str) -> tuple[str, ...]:
    return (run,) if len(run) < 3 else tuple(run[at : at + 2] for at in range(len(run) - 1))


class ContentRun(Struct, frozen=True):
    """A part of a run of Chinese, Japanese or Korean that carries meaning."""

    text: str
    owner: bool  # the next run belongs to it: X的Y, XのY
    foreign: bool = False  # katakana: often a name


def content_runs(run: str) -> list[ContentRun]:
    """The parts of a run that carry the subject of a question."""
    found: list[ContentRun] = []
    at = 0
    for script, characters in groupby(run, key=script_of):
        part = "".join(characters)
        before, at = at, at + len(part)
        owner = run[at:].startswith("の")
        match script:
            case "hiragana":
                found += _kana_words(part, follows=before > 0)
            case "katakana":
                found.append(ContentRun(part, owner, foreign=True))
            case "hangul":
                bare = _HANGUL_ENDING().sub("", part) if len(part) > 2 else part
                found += [] if _HANGUL_QUESTION().match(bare) else [ContentRun(bare, part.endswith("의"))]
            case _:
                found += _han_words(part, run[at:])
    return found


def _han_words(script: str, behind: str) -> Iterator[ContentRun]:
    at = 0
    for cut in [*_CUT().finditer(script), None]:
        part = script[at : cut.start() if cut else len(script)]
        following = script[cut.start() :] if cut else behind
        if part:
            yield ContentRun(part, following.startswith(("的", "の")))
        at = cut.end() if cut else at


def _kana_words(script: str, *, follows: bool) -> list[ContentRun]:
    """Words left after removing hiragana, which is mostly grammar."""
    bare = _KANA_BEGINNING().sub("", script) if follows else script
    found: list[ContentRun] = []
    for part in _KANA_QUESTION().split(bare):
        word = part
        while ending := next((each for each in _KANA_ENDINGS if word.endswith(each)), ""):
            word = word.removesuffix(ending)
        if len(word) > 1:
            found.append(ContentRun(word, part[len(word) :].startswith("の")))
    return found


LONGEST = 64  # of a name to compare: the cost grows faster than the length
CLOSE = 0.6


def nearest(name: str, known: Iterable[str]) -> str:
    """The most similar known name; empty if none is similar."""
    import difflib  # slow to import, and rarely needed

    wanted = name.strip().lower()[:LONGEST]
    by_name = {each.lower()[:LONGEST]: each for each in known}
    close = difflib.get_close_matches(wanted, by_name, 1, CLOSE) if wanted else []
    return by_name[close[0]] if close else ""
