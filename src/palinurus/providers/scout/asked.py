"""What a question is about: which of its words a line must hold to speak of it, and which kind of answer it wants.

No grammar, only a few habits of questions. Names, owners ("Anna's", 小明的) and what stands behind "is" or "does" are
its *subject*: a line without them speaks of something else, however alike the rest may be. *Topics* are its other
telling words. *Attributes* (colour, name, to live, to buy) are often answered without being named: then the kind of
answer tells. Days are taken out first; they say when, and not about what.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Literal

from msgspec import Struct

from palinurus.domain.days import find_dates
from palinurus.domain.periods import Period
from palinurus.providers.scout.patterns import later
from palinurus.providers.scout.words import STOP_WORDS, Token, content_runs, pairs, stem, tokens

Kind = Literal["", "date", "when", "where", "who", "count", "colour", "name"]
MOST_CHARACTERS = 2_000  # of a question; what comes behind says nothing new


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_AUXILIARIES = _set("is are was were do does did has have had can could will would should")
_DO = _set("do does did")
_PRONOUNS = _set("i you he she it we they")
_ASKING = _set("who whom what when where which why how whose")
_TELLING = _set("tell know say said remember show find give")
_ATTRIBUTES = frozenset(
    map(
        stem,
        _set("""
        colour name called age birthday number size height weight price cost date time day year month week place city
        town country address password code email phone favourite best new old big small long far tall heavy expensive
        first live work visit happen start begin become meet go come take make use need want like love hate feel plan
        decide own keep want belong mention talk speak do enjoy try put leave buy see die bear born marry married move
        """),
    )
)
_ATTRIBUTES_CJK = _set(
    "颜色 顏色 名字 名前 生日 誕生 生日 电话 電話 号码 番号 年龄 年齢 地址 住所 色 住 吃 食 行 去 買 买"
)
_KINDS: dict[Kind, str] = {
    "date": r"\bbirthdays?\b|\banniversary\b",
    "when": r"\bwhen\b|\bwhat (?:time|day|date|month|year)\b",
    "where": r"\bwhere\b|\bwh(?:at|ich) (?:city|town|country|place)\b",
    "count": r"\bhow (?:many|much|old|long|far|tall|big|often)\b"
    r"|\b(?:numbers?|phone|age|price|cost|size|height|weight|code|password|pin)\b",
    "colour": r"\bcolou?rs?\b",
    "name": r"\bnames?\b|\bcalled\b",
    "who": r"\bwho(?:m|se)?\b",
}
_KIND = later("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.IGNORECASE)
_KINDS_CJK: dict[Kind, str] = {
    "date": "生日 誕生日 생일",
    "when": "什么时候 甚麼時候 何时 何時 いつ 언제 几号 何日",
    "where": "哪里 哪裡 哪儿 どこ 어디",
    "count": "多少 几 いくつ いくら 何人 何個 몇 电话 電話 号码 番号",
    "colour": "颜色 顏色 何色 색",
    "name": "名字 叫什么 名前 이름",
    "who": "谁 誰 だれ 누구",
}
_BROAD = later(
    r"(?:(?:please|pal|ok|okay|hey|can you|could you|would you)[\s,:]+)*(?:(?:what|anything|something|everything|all)"
    r"(?: (?:else|all))?(?: that)?(?: (?:do|can|did|have) (?:you|we|i)| you| we| i)?"
    r"(?: (?:know|remember|recall|noted?|written|have|said|got|tell me))*(?: down)?"
    r"|tell (?:me|us)(?: (?:all|everything|more|something))?(?: you know)?"
    r"|(?:my |your |the )?notes|who (?:is|was|are)|what(?: is|['’]s| are) known)"
    r"(?: (?:about|on|of|regarding|concerning))? (?P<topic>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_ABOUT = later(r"\b(?:about|on|of|regarding|concerning)\b|\bwho (?:is|was|are)\b", re.IGNORECASE)
_BROAD_CJK = later(
    r"你?(?:还|還)?(?:知道|记得|記得)些?(?:什么)?(?:关于|關於)"
    r"(?P<topic>.+?)(?:的(?:事情?|什么|信息))?[吗嗎?？。]*"
    r"|(?:关于|關於)(?P<about>.+?)(?:你|我们|我們)?都?(?:知道|记得|記得)些?(?:什么|甚麼)?[吗嗎?？。]*"
    r"|(?P<japanese>.+?)について(?:何を|なにを)?(?:知って|覚えて|教えて).*",
    re.DOTALL,
)
_PAST = later(r"\b(?:did|was|were|had|happened|said|went|ago|last)\b", re.IGNORECASE)
_PAST_CJK = ("了", "过", "過", "した", "たか", "昨", "前", "上")
_MINE = ("me", "myself", "我", "私")


class Asked(Struct, frozen=True):
    """Words are stems, or pairs of characters."""

    text: str  # what to search for
    shown: tuple[str, ...] = ()  # the telling words as they were typed
    subject: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    kind: Kind = ""
    broad: bool = False  # whatever is known is wanted
    mine: bool = False  # and it is the person who asks
    period: Period | None = None

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.subject, *self.topics, *self.attributes)

    @property
    def query(self) -> str:
        """For search: the words, and the days they mean."""
        text = " ".join(self.text.split())[:MOST_CHARACTERS]
        return f"{text} ({self.period})" if self.period and str(self.period) not in text else text


def asked(text: str, today: date) -> Asked:
    text = text[:MOST_CHARACTERS]
    topic = _broad_topic(text)
    if topic and topic.rstrip("?？.!。 ").lower() in _MINE:
        return Asked(topic, broad=True, mine=True)
    said = topic or text
    found = find_dates(said, today, tense="past" if _is_past(said) else "future")
    period = (
        Period(min(each.period.first for each in found), max(each.period.last for each in found)) if found else None
    )
    words = said
    for each in reversed(found):
        words = words[: each.start] + " " + words[each.end :]
    parts = _Parts(words)
    return Asked(
        said.strip(),
        tuple(parts.shown),
        tuple(parts.subject),
        tuple(parts.topics),
        tuple(parts.attributes),
        _kind(text),
        broad=bool(topic),
        period=period,
    )


def _broad_topic(text: str) -> str:
    """What everything is wanted about; empty when something more certain is asked."""
    text = text.strip()
    if not text.isascii() and (found := _BROAD_CJK().fullmatch(text)):
        return (found["topic"] or found["about"] or found["japanese"] or "").strip()
    found = _BROAD().fullmatch(text)
    if not found or not _ABOUT().search(text[: found.start("topic")]):
        return ""
    return found["topic"].rstrip("?!. ")


def _is_past(text: str) -> bool:
    return _PAST().search(text) is not None or any(sign in text for sign in _PAST_CJK)


def _kind(text: str) -> Kind:
    """Which kind of answer is wanted; of two, the first in the table."""
    found = {match.lastgroup for match in _KIND().finditer(text)}
    for kind, words in _KINDS_CJK.items():
        if kind in found or any(word in text for word in words.split()):
            return kind
    return ""


class _Parts:
    """Sorts the words of a question. Reads them once, from left to right."""

    def __init__(self, text: str) -> None:
        self.shown: dict[str, None] = {}
        self.subject: dict[str, None] = {}
        self.topics: dict[str, None] = {}
        self.attributes: dict[str, None] = {}
        self._awaited = False  # the subject stands next
        self._verb = False  # a verb stands next, which is no subject
        self._did = False
        words = list(tokens(text))
        capitals = sum(word.capital for word in words)
        self._names = capitals * 2 <= len(words) or len(words) < 3  # Where All Words Have Capitals they tell nothing
        for word in words:
            self._cjk(word) if word.is_cjk else self._word(word, first=word is words[0])

    def _word(self, token: Token, *, first: bool) -> None:
        word = token.word
        if word in _ASKING:
            self._awaited, self._verb = word == "who", word == "who"
        elif word in _AUXILIARIES:
            self._awaited, self._verb, self._did = True, False, word in _DO
        elif word in _PRONOUNS:
            self._verb = self._awaited
        elif word in STOP_WORDS or (len(word) < 2 and not word.isdigit()):
            self._verb = self._verb and word not in _TELLING
        else:
            self.shown[word] = None
            name = self._names and token.capital and not first
            self._place(token, stem(word), name=name)

    def _place(self, token: Token, found: str, *, name: bool) -> None:
        if name or token.owner:
            self._subject(found)
        elif found in _ATTRIBUTES or self._verb:
            self.attributes[found] = None
            self._verb = False
        elif self._awaited:
            self._subject(found)
        else:
            self.topics[found] = None

    def _subject(self, found: str) -> None:
        self.subject[found] = None
        self._verb = self._awaited and self._did  # "did Anna paint": what she did is often said in another word
        self._awaited = False

    def _cjk(self, token: Token) -> None:
        for run in content_runs(token.word):
            self.shown[run.text] = None
            for unit in pairs(run.text):
                if unit in _ATTRIBUTES_CJK:
                    self.attributes[unit] = None
                elif run.owner or run.foreign:
                    self.subject[unit] = None
                else:
                    self.topics[unit] = None
