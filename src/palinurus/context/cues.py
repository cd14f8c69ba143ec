"""What makes a sentence worth remembering: words that ask for it, decide, promise or set a rule; dates, sums, names.

English first, with the commonest words of German, Chinese and Japanese. Identifiers and numbers know no language, and
carry the others.
"""

from __future__ import annotations

import re

from msgspec import Struct


class _Cue(Struct, frozen=True):
    pattern: re.Pattern[str]
    weight: float
    by_user: bool = False  # counts only in the user's mouth


def _cue(weight: float, words: str, *, by_user: bool = False) -> _Cue:
    return _Cue(re.compile(words), weight, by_user)


_CUES = (
    _cue(4, r"\b(remember|don't forget|do not forget|note that|keep in mind|for the record|merk dir|denk dran)\b"),
    _cue(4, r"记住|记得|别忘|覚えて|忘れないで"),
    _cue(3, r"\b(always|never|must( not)?|only ever|from now on|whenever|immer|niemals|nie wieder)\b"),
    _cue(3, r"必须|总是|一定|不要|必ず|決して"),
    _cue(3, r"\b(decided?|decision|agreed?|settled|we('ll| will)|let's|going with|chose|instead of|entschieden)\b"),
    _cue(3, r"决定|同意|選んだ|決めた|決まり"),
    _cue(3, r"\b(todo|to-do|fixme|follow[ -]?up|need(s)? to|remind|next step|still open|deadline|due|until)\b|\[ \]"),
    _cue(3, r"\b(muss noch|erinner|frist|bis zum)|待办|提醒|截止|やること|締め切り"),
    _cue(2.5, r"\b(my|our|mein\w*|unser\w*)\b.{1,60}\b(is|are|was|lives?|works?|ist|heißt|wohnt)\b", by_user=True),
    _cue(2.5, r"我的|我们的|私の", by_user=True),
    _cue(2.5, r"\b(i|we)('m| am| are| live| work| like| love| hate| prefer| want| have| moved| need| use|'ve)\b"),
    _cue(1.5, r"\b(is|are|has|belongs?|called|named|ist|sind|hat|heißt)\b", by_user=True),  # states something
    _cue(2, r"\b(please|call me|make sure|do not|don't|should|bitte)\b|请|ください", by_user=True),
    _cue(2, r"\b(because|so that|reason|the problem|root cause|turned out|fixed|failed|error)\b|因为|なぜなら"),
    _cue(2, r"\d{4}-\d{2}-\d{2}|\b\d{1,2}[:.]\d{2}\b|\b\d{1,2}(st|nd|rd|th)\b|\d+月\d+日"),
    _cue(2, r"\b(january|february|march|april|june|july|august|september|october|november|december)\b|\b\d+ may\b"),
    _cue(1.5, r"\b((mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|yesterday|next (week|month|year)|birthday)\b"),
    _cue(1.5, r"[$€£¥]\s?\d|\d\s?(%|€|usd|eur|kg|km|ms|gb|mb|hours?|days?|people)\b"),
    _cue(1, r"\d"),
)
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'’-]+")


def worth(sentence: str, *, by_user: bool) -> float:
    """0 for a sentence that nothing speaks for."""
    small = sentence.lower()  # the patterns are: looking for both cases takes twice the time
    cues = sum(cue.weight for cue in _CUES if (by_user or not cue.by_user) and cue.pattern.search(small))
    score = cues + min(3, len(_NAME.findall(sentence)))
    if sentence.endswith(("?", "？")):
        score *= 0.5  # the answer is worth more than the question
    return score * (1.5 if by_user else 1.0)
