"""The gist of a conversation, without a model, for the summary that goes on in its place. Pure.

When history leaves the window, what the next reply may need is picked sentence by sentence: what was asked, decided or
is still wanted; dates, names, numbers; and every exact identifier, verbatim. The gist is a fraction of the text. What
rides beside a message (the time, files, recalled memory) is no news and is left out. It is no memory: what lasts is
noted by far stricter rules (notes.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from msgspec import Struct

from palinurus.context.cues import worth
from palinurus.context.identifiers import addresses, identifiers
from palinurus.context.sentences import CODE, LONGEST, split_sentences
from palinurus.context.view import Line
from palinurus.domain.messages import (
    OUTSIDE_MARK,
    AssistantMessage,
    Message,
    Origin,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.domain.provenance import texts_in

SHARE = 0.2  # of the text that the notes cover
OF_RESULTS = 0.02  # of what tools gave: it can be asked for again
AT_LEAST = 400  # characters: a short conversation is noted whole
AT_MOST = 40_000  # characters of sentences
QUOTING = "scout"  # a model that only quotes memory, so nothing that it says is news
ECHO = 15  # characters of words that are no chance when they are said again
FEW = 12  # identifiers of one tool result or call, or of the code in one message: a log holds thousands
FROM_OUTSIDE = f"({OUTSIDE_MARK}"
LISTED = "- Identifiers: "
LISTED_FROM_OUTSIDE = f"- Identifiers {FROM_OUTSIDE}: "

_WORD = re.compile(r"\w+")


class Exact(Struct, frozen=True):
    """The identifiers of a conversation, in the order of their appearance."""

    said: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()  # that only words from outside hold


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
    """Notes in markdown, one bullet a line; empty when nothing was said.

    Every identifier that people and models have said is in them, verbatim, however small the share.
    """
    exact = exact_of(lines)
    kept = _chosen(_read(lines, zone), exact, _budget(lines, share))
    return supplement("\n".join(sentence.line for sentence in kept), exact)


def supplement(notes: str, exact: Exact) -> str:
    """The notes, with the identifiers that they lack listed at their end."""
    listed = [notes] if notes else []
    for heading, wanted in ((LISTED, exact.said), (LISTED_FROM_OUTSIDE, exact.outside)):
        if missing := [each for each in wanted if each not in notes]:
            listed.append(heading + ", ".join(missing))
    return "\n".join(listed)


def exact_of(lines: Sequence[Line]) -> Exact:
    """Those that notes of these lines must hold: all that was said, and a few of what tools were given and gave."""
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
    """Paths and names among its arguments; a long text is the content of a file, and stands there."""
    return identifiers("\n".join(_short_texts(call.arguments)), FEW)


def _short_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and len(value) <= LONGEST:
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _short_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _short_texts(each)


def _budget(lines: Sequence[Line], share: float) -> int:
    said = sum(len(line.message.text) for line in lines if not isinstance(line.message, ToolResult))
    given = sum(len(line.message.text) for line in lines if isinstance(line.message, ToolResult))
    return min(max(AT_LEAST, int(said * share + given * OF_RESULTS)), AT_MOST)


def _read(lines: Iterable[Line], zone: tzinfo) -> list[_Sentence]:
    sentences: dict[str, _Sentence] = {}  # by their words: what is said twice is noted once
    tainted = False  # words from outside stand before: what is said from then on may come from them
    asked: list[str] = []  # the sentences that the turn answers
    for line in lines:
        message = line.message
        tainted = tainted or bool(texts_in(message))
        day = _day(message.timestamp, zone)
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
            return {Origin.OWNER: "user", Origin.OUTSIDE: f"somebody {FROM_OUTSIDE}"}.get(message.origin, "earlier")
        case AssistantMessage():
            return "assistant (having read text from outside)" if tainted else "assistant"
        case ToolResult():
            return f"{message.tool_name} {FROM_OUTSIDE}" if _is_outside(message) else message.tool_name


def _day(timestamp: int, zone: tzinfo) -> str:
    try:
        return datetime.fromtimestamp(timestamp / 1000, zone).date().isoformat() if timestamp else ""
    except (OverflowError, ValueError, OSError):  # an imported row may say anything
        return ""


def _sentences(message: Message) -> Iterator[str]:
    if isinstance(message, ToolResult):
        if message.is_error and message.text.strip():
            yield " ".join(message.text[:LONGEST].split())  # why something did not work
        return
    if isinstance(message, AssistantMessage) and message.model == QUOTING:
        return
    yield from split_sentences(message.text)


def _rarity(sentences: Iterable[str]) -> dict[str, bool]:
    """Whether a word tells something: one that is in every other sentence does not."""
    seen: dict[str, int] = {}
    count = 0
    for key in sentences:
        count += 1
        for word in set(key.split()):
            seen[word] = seen.get(word, 0) + 1
    return {word: times - 1 < 0.02 * max(count, 2) for word, times in seen.items()}


def _chosen(sentences: list[_Sentence], exact: Exact, budget: int) -> list[_Sentence]:
    """The most telling for their length, in the order in which they were said."""
    kept: list[_Sentence] = []
    listed = {*exact.said, *exact.outside}  # those in no kept sentence are listed at the end
    left = budget - sum(len(each) + 2 for each in listed)
    for sentence in sorted(sentences, key=lambda each: (-each.score / (20 + len(each.text)) ** 0.5, each.order)):
        spared = [each for each in sentence.exact if each in listed]
        cost = len(sentence.line) + 1 - sum(len(each) + 2 for each in spared)
        if sentence.score > 0 and cost <= left:
            kept.append(sentence)
            listed -= set(spared)
            left -= cost
    return sorted(kept, key=lambda each: each.order)
