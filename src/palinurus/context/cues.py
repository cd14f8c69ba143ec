"""What makes a sentence worth remembering: words that ask for it, decide, promise or set a rule; dates, sums, names.

English first, with the commonest words of German, Chinese and Japanese. Identifiers and numbers know no language, and
carry the others.

Most sentences have none of these words, and there are very many sentences. So each cue names words of which it needs
one, or a digit; a pattern is tried only where those are met.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct


class _Cue(Struct, frozen=True):
    pattern: re.Pattern[str]
    weight: float
    by_user: bool = False  # counts only in the user's mouth


_ALL: list[_Cue] = []
_SURE: dict[str, int] = {}  # by whole words: the cues that match for this word alone, a bit for each
_MAYBE: dict[str, int] = {}  # and those of which it is a part


def _cue(weight: float, pattern: str, words: str = "", *, by_user: bool = False) -> int:
    """`words`: where the script is no Chinese or Japanese, it matches only a sentence that has one of them.

    With a word that has a `!` it surely matches. Gives the bit of the cue.
    """
    bit = 1 << len(_ALL)
    _ALL.append(_Cue(re.compile(pattern), weight, by_user))
    for word in words.split():
        found, name = (_SURE, word[:-1]) if word.endswith("!") else (_MAYBE, word)
        found[name] = found.get(name, 0) | bit
    return bit


_cue(
    4,
    r"\b(remember|don't forget|do not forget|note that|keep in mind|for the record|merk dir|denk dran)\b",
    "remember! forget note mind record merk denk",
)
_cue(4, r"记住|记得|别忘|覚えて|忘れないで")
_cue(
    3,
    r"\b(always|never|must( not)?|only ever|from now on|whenever|immer|niemals|nie wieder)\b",
    "always! never! must! ever now whenever! immer! niemals! wieder",
)
_cue(3, r"必须|总是|一定|不要|必ず|決して")
_cue(
    3,
    r"\b(decided?|decision|agreed?|settled|we('ll| will)|let's|going with|chose|instead of|entschieden)\b",
    "decide! decided! decision! agree! agreed! settled! ll will let going chose! instead entschieden!",
)
_cue(3, r"决定|同意|選んだ|決めた|決まり")
_OPEN = _cue(
    3,
    r"\b(todo|to-do|fixme|follow[ -]?up|need(s)? to|remind|next step|still open|deadline|due|until)\b|\[ \]",
    "todo! do fixme! followup! up need needs remind! step open deadline! due! until!",
)
_OWED = _cue(3, r"\b(muss noch|erinner|frist|bis zum)|待办|提醒|截止|やること|締め切り", "muss")
_OURS = _cue(
    2.5,
    r"\b(my|our|mein\w*|unser\w*)\b.{1,60}\b(is|are|was|lives?|works?|ist|heißt|wohnt)\b",
    "my our",
    by_user=True,
)
_cue(2.5, r"我的|我们的|私の", by_user=True)
_cue(2.5, r"\b(i|we)('m| am| are| live| work| like| love| hate| prefer| want| have| moved| need| use|'ve)\b", "i we")
_cue(  # states something
    1.5,
    r"\b(is|are|has|belongs?|called|named|ist|sind|hat|heißt)\b",
    "is! are! has! belong! belongs! called! named! ist! sind! hat! heißt!",
    by_user=True,
)
_cue(
    2,
    r"\b(please|call me|make sure|do not|don't|should|bitte)\b|请|ください",
    "please! call sure not don should! bitte!",
    by_user=True,
)
_cue(
    2,
    r"\b(because|so that|reason|the problem|root cause|turned out|fixed|failed|error)\b|因为|なぜなら",
    "because! so reason! problem cause turned fixed! failed! error!",
)
_DATE = _cue(2, r"\d{4}-\d{2}-\d{2}|\b\d{1,2}[:.]\d{2}\b|\b\d{1,2}(st|nd|rd|th)\b|\d+月\d+日")
_cue(
    2,
    r"\b(january|february|march|april|june|july|august|september|october|november|december)\b|\b\d+ may\b",
    "january! february! march! april! may june! july! august! september! october! november! december!",
)
_cue(
    1.5,
    r"\b((mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|yesterday|next (week|month|year)|birthday)\b",
    "monday! tuesday! wednesday! thursday! friday! saturday! sunday! tomorrow! yesterday! next birthday!",
)
_AMOUNT = _cue(1.5, r"[$€£¥]\s?\d|\d\s?(%|€|usd|eur|kg|km|ms|gb|mb|hours?|days?|people)\b")
_A_DIGIT = _cue(1, r"\d")

_MOST_NAMES = 3  # that count
_EVERY = (1 << len(_ALL)) - 1
_ANYBODY = sum(1 << number for number, cue in enumerate(_ALL) if not cue.by_user)
_PARTS = (  # that are looked for inside of words, or are none
    *(("[ ]", _OPEN), ("erinner", _OWED), ("frist", _OWED), ("bis zum", _OWED)),
    *(("mein", _OURS), ("unser", _OURS)),
)
_KNOWN = _SURE.keys() | _MAYBE.keys()
_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_WITHOUT_SPACES = re.compile("[\u3040-\u9fff]")  # scripts in which a word is no run of letters
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'’-]+")


def worth(sentence: str, *, by_user: bool, enough: float = 0.0) -> float:
    """0 for a sentence that nothing speaks for, and for one that is surely worth less than `enough`."""
    small = sentence.lower()  # the patterns are: looking for both cases takes twice the time
    sure, maybe = _candidates(small)
    if not by_user:
        sure, maybe = sure & _ANYBODY, maybe & _ANYBODY
    names = min(_MOST_NAMES, len(_NAME.findall(sentence)))
    if (_weight(sure | maybe) + names) * (1.5 if by_user else 1.0) < enough:
        return 0.0
    score = _weight(sure) + names
    score += sum(cue.weight for cue in _cues(maybe & ~sure) if cue.pattern.search(small))
    if sentence.endswith(("?", "？")):
        score *= 0.5  # the answer is worth more than the question
    return score * (1.5 if by_user else 1.0)


def _candidates(small: str) -> tuple[int, int]:
    """The cues that speak for it, and those that may."""
    if not small.isascii() and _WITHOUT_SPACES.search(small):
        return 0, _EVERY
    sure = maybe = 0
    for word in _KNOWN.intersection(_WORD.findall(small)):
        sure |= _SURE.get(word, 0)
        maybe |= _MAYBE.get(word, 0)
    for part, bit in _PARTS:
        if part in small:
            maybe |= bit
    return (sure | _A_DIGIT, maybe | _DATE | _AMOUNT) if _DIGIT.search(small) else (sure, maybe)


@lru_cache(4096)
def _weight(bits: int) -> float:
    return sum(cue.weight for cue in _cues(bits))


@lru_cache(4096)
def _cues(bits: int) -> tuple[_Cue, ...]:
    return tuple(cue for number, cue in enumerate(_ALL) if bits >> number & 1)
