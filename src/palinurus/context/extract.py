"""Extracts the main points of a session without a model, for the summary. Pure.

When history leaves the window, sentences that the next reply may need are selected: requests, decisions, open tasks;
dates, names, numbers; and every exact identifier, verbatim. The result is a fraction of the text. Context notes (the
time, files, recalled memory) are left out. It is not memory: notes.py has far stricter rules for that.

Sentences are selected by cues: words of request, decision, promise or rule; dates, sums, names. English first, with the
commonest words of German, Chinese and Japanese. Most sentences have no cue, and there are very many sentences, so each
cue names words of which it needs one, or a digit; a pattern is tried only if those occur.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache

from msgspec import Struct

from palinurus.context.view import Line
from palinurus.domain.clock import day_of
from palinurus.domain.messages import (
    OUTSIDE_MARK,
    AssistantMessage,
    Message,
    Origin,
    ToolCall,
    ToolResult,
    UserMessage,
    texts_in,
)
from palinurus.domain.text_places import strings_in
from palinurus.text.sentences import CODE, LONGEST, addresses, identifiers, split_sentences


class _Cue(Struct, frozen=True):
    pattern: re.Pattern[str]
    weight: float
    by_user: bool = False  # counts only for the user


_ALL: list[_Cue] = []
_SURE: dict[str, int] = {}  # by whole words: the cues that match by this word alone, one bit each
_MAYBE: dict[str, int] = {}  # and those of which it is a part


def _cue(weight: float, pattern: str, words: str = "", *, by_user: bool = False) -> int:
    """`words`: outside Chinese and Japanese, the cue matches only a sentence with one of them.

    A word with `!` always matches. Returns the bit of the cue.
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
_PARTS = (  # that are searched for inside words
    *(("[ ]", _OPEN), ("erinner", _OWED), ("frist", _OWED), ("bis zum", _OWED)),
    *(("mein", _OURS), ("unser", _OURS)),
)
_KNOWN = _SURE.keys() | _MAYBE.keys()
_DIGIT = re.compile(r"\d")
_WITHOUT_SPACES = re.compile("[\u3040-\u9fff]")  # scripts without spaces between words
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'’-]+")


def worth(sentence: str, *, by_user: bool, enough: float = 0.0) -> float:
    """The score of a sentence; 0 if it has no cue, or if it is surely below `enough`."""
    small = sentence.lower()  # matching lower case only is twice as fast
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
    """The cues that match, and those that may."""
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


SHARE = 0.2  # of the text that the notes cover
OF_RESULTS = 0.02  # of tool results: they can be fetched again
AT_LEAST = 400  # characters: a short session is noted whole
AT_MOST = 40_000  # characters of sentences
QUOTING = "scout"  # a model that only quotes memory, so its replies hold nothing new
ECHO = 15  # characters of a repeated text that is no coincidence
FEW = 12  # identifiers of one tool result or call, or of the code in one message: a log holds thousands
FROM_OUTSIDE = f"({OUTSIDE_MARK}"
LISTED = "- Identifiers: "
LISTED_FROM_OUTSIDE = f"- Identifiers {FROM_OUTSIDE}: "
_WORD = re.compile(r"\w+")


class Exact(Struct, frozen=True):
    """The identifiers of a session, in order of appearance."""

    said: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()  # found only in outside text


class _Sentence(Struct):
    order: int
    who: str
    day: str
    text: str
    score: float
    exact: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"- {self.day} {self.who}: {self.text}" if self.day else f"- {self.who}: {self.text}"


def extract(lines: Sequence[Line], *, share: float = SHARE, zone: tzinfo = UTC) -> str:
    """Notes in markdown, one bullet per line; empty if there is no text.

    They hold every identifier that people and models have used, verbatim, however small the share.
    """
    exact = exact_of(lines)
    kept = _chosen(_read(lines, zone), exact, _budget(lines, share))
    return supplement("\n".join(sentence.line for sentence in kept), exact)


def supplement(notes: str, exact: Exact) -> str:
    """The notes, with missing identifiers listed at their end."""
    listed = [notes] if notes else []
    for heading, wanted in ((LISTED, exact.said), (LISTED_FROM_OUTSIDE, exact.outside)):
        if missing := [each for each in wanted if each not in notes]:
            listed.append(heading + ", ".join(missing))
    return "\n".join(listed)


def exact_of(lines: Sequence[Line]) -> Exact:
    """The identifiers that notes of these lines must hold: all from messages, and a few from tool calls and results."""
    said: dict[str, None] = {}
    outside: dict[str, None] = {}
    left = max(AT_LEAST, int(OF_RESULTS * 2 * sum(len(line.message.text) for line in lines)))
    for line in lines:
        message = line.message
        found = _exact(message)
        if isinstance(message, ToolResult):  # newest or oldest, a share of them is enough
            found = [each for each in found if each not in said and each not in outside]
            left -= sum(len(each) + 2 for each in found)
            found = found if left >= 0 else []
        mine = outside if _is_outside(message) else said
        mine |= dict.fromkeys(found)
    return Exact(tuple(said), tuple(each for each in outside if each not in said))


def _exact(message: Message) -> Sequence[str]:
    match message:
        case UserMessage():
            return identifiers(message.text)
        case AssistantMessage(model=model) if model == QUOTING:
            return ()
        case AssistantMessage():
            prose = identifiers(CODE.sub("", message.text))
            code = addresses("\n".join(match.group() for match in CODE.finditer(message.text)), FEW)
            return [*prose, *code, *(each for call in message.calls for each in _of_call(call))]
        case ToolResult():
            return addresses(message.text, FEW)


def _of_call(call: ToolCall) -> Sequence[str]:
    """Paths and names among its arguments; a long text is the content of a file, and stored there."""
    return identifiers("\n".join(text for text in strings_in(call.arguments) if len(text) <= LONGEST), FEW)


def _budget(lines: Sequence[Line], share: float) -> int:
    said = sum(len(line.message.text) for line in lines if not isinstance(line.message, ToolResult))
    given = sum(len(line.message.text) for line in lines if isinstance(line.message, ToolResult))
    return min(max(AT_LEAST, int(said * share + given * OF_RESULTS)), AT_MOST)


def _read(lines: Iterable[Line], zone: tzinfo) -> list[_Sentence]:
    sentences: dict[str, _Sentence] = {}  # by text: repetitions are noted once
    tainted = False  # outside text came before: later replies may depend on it
    asked: list[str] = []  # the sentences that the turn answers
    for line in lines:
        message = line.message
        tainted = tainted or bool(texts_in(message))
        day = day_of(message.timestamp, zone)
        asked = [] if isinstance(message, UserMessage) else asked
        for text in _sentences(message):
            key = " ".join(_WORD.findall(text.lower()))
            if isinstance(message, UserMessage):
                asked.append(key)
            elif any(len(said) > ECHO and said in key for said in asked):
                continue
            if key and key not in sentences:
                who = _speaker(message, tainted)
                sentences[key] = _Sentence(len(sentences), who, day, text, 0.0, identifiers(text))
    rare = _rarity(sentences)
    for key, sentence in sentences.items():
        telling = sum(1 for word in key.split() if len(word) > 3 and rare[word])
        sentence.score = worth(sentence.text, by_user=sentence.who == "user") + 0.3 * min(8, telling)
        sentence.score += 1.5 * min(3, len(sentence.exact))
    return list(sentences.values())


def _is_outside(message: Message) -> bool:
    return not isinstance(message, AssistantMessage) and message.origin == Origin.OUTSIDE


def _speaker(message: Message, tainted: bool) -> str:
    match message:
        case UserMessage():
            others = {Origin.OUTSIDE: f"somebody {FROM_OUTSIDE}", Origin.AGENT: "another session"}
            return "user" if message.origin == Origin.OWNER else others.get(message.origin, "earlier")
        case AssistantMessage():
            return "assistant (having read text from outside)" if tainted else "assistant"
        case ToolResult():
            return f"{message.tool_name} {FROM_OUTSIDE}" if _is_outside(message) else message.tool_name


def _sentences(message: Message) -> Iterator[str]:
    if isinstance(message, ToolResult):
        if message.is_error and message.text.strip():
            yield " ".join(message.text[:LONGEST].split())  # why something failed
        return
    if isinstance(message, AssistantMessage) and message.model == QUOTING:
        return
    yield from split_sentences(message.text)


def _rarity(sentences: Collection[str]) -> dict[str, bool]:
    """Whether a word is rare: one in every other sentence is not."""
    seen = Counter(word for key in sentences for word in set(key.split()))
    return {word: times - 1 < 0.02 * max(len(sentences), 2) for word, times in seen.items()}


def _chosen(sentences: list[_Sentence], exact: Exact, budget: int) -> list[_Sentence]:
    """The sentences with the best score for their length, in order."""
    kept: list[_Sentence] = []
    listed = {*exact.said, *exact.outside}  # identifiers that are in no selected sentence are listed at the end
    left = budget - sum(len(each) + 2 for each in listed)
    for sentence in sorted(sentences, key=lambda each: (-each.score / (20 + len(each.text)) ** 0.5, each.order)):
        spared = [each for each in sentence.exact if each in listed]
        cost = len(sentence.line) + 1 - sum(len(each) + 2 for each in spared)
        if sentence.score > 0 and cost <= left:
            kept.append(sentence)
            listed -= set(spared)
            left -= cost
    return sorted(kept, key=lambda each: each.order)
