"""Notes for the file of the day, by rule: when no model takes them, or not in time. Pure.

Only the owner's own words are noted, and of those only sentences that state something (statements.py). What the
assistant said, what tools gave, and what rides beside a message is never noted here: the transcript has all of it. What
was written into memory meanwhile by `memory_write` is not written down again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo

from msgspec import Struct

from palinurus.context.beside import MANY
from palinurus.context.sentences import split_sentences
from palinurus.context.statements import Weight, may_ask, weigh
from palinurus.context.view import Line
from palinurus.domain.messages import AssistantMessage, Origin, ToolResult, UserMessage

PASTED = 4_000  # characters of a message from which on it was hardly typed: facts in it are somebody else's
AT_MOST = 12_000  # characters of notes at once; what was asked for is noted in any case
NEWEST = 10_000  # lines that may fill them, so that of the older ones only what was asked for is looked for
WRITTEN_BY = "memory_write"
MUCH = 20_000  # characters of a conversation that a model is asked about whatever was said in it

_WORD = re.compile(r"\w+")
_OPENING = 8  # words that may stand before what is to be remembered


class Statement(Struct, frozen=True):
    """A sentence of the owner that is worth keeping."""

    text: str
    day: str
    weight: Weight

    @property
    def line(self) -> str:
        return f"- {self.day} user: {self.text}" if self.day else f"- user: {self.text}"


def extract_notes(lines: Sequence[Line], *, zone: tzinfo = UTC) -> str:
    """Notes in markdown, one bullet a line; empty when nothing was said that should be kept."""
    found = list(statements(lines, zone, whole_from=_whole_from(lines) if len(lines) > MANY else 0))
    room = AT_MOST - sum(len(each.line) + 1 for each in found if each.weight == Weight.ASKED)
    kept: set[int] = set()
    for number in sorted(range(len(found)), key=lambda at: (-found[at].weight, -at)):  # the newest first
        each = found[number]
        if each.weight == Weight.ASKED or (room := room - len(each.line) - 1) >= 0:
            kept.add(number)
    return "\n".join(found[number].line for number in sorted(kept))


def statements(lines: Sequence[Line], zone: tzinfo = UTC, *, whole_from: int = 0) -> Iterator[Statement]:
    """In the order in which they were said; what was said twice comes once.

    Of the lines before `whole_from` only what was asked for.
    """
    known = {_key(text) for text in _written(lines)}
    for at, line in enumerate(lines):
        text = _own_words(line)
        if text and isinstance(line.message, UserMessage) and (at >= whole_from or may_ask(text)):
            least = Weight.ASKED if at < whole_from else _least(text)
            for sentence, weight in _weighed(text):
                if weight >= least and not _is_known(key := _key(sentence), known):
                    known.add(key)
                    yield Statement(sentence, _day(line.message.timestamp, zone), weight)


def _whole_from(lines: Sequence[Line]) -> int:
    """The first line of which more can be noted than what was asked for: what was said behind it fills the room."""
    room, known = AT_MOST, {_key(text) for text in _written(lines)}
    for at in range(len(lines) - 1, max(len(lines) - NEWEST, 0) - 1, -1):
        for sentence, weight in _weighed(_own_words(lines[at])):
            if weight == Weight.OWN and not _is_known(key := _key(sentence), known):
                known.add(key)
                room -= len(sentence)
        if room < 0:
            return at
    return 0


def fills_notes(lines: Sequence[Line]) -> bool:
    """Whether of what was said before these lines only what was asked for has room in the notes."""
    return _whole_from(lines) > 0


def may_be_noted(row: str) -> bool:
    """Whether a stored message may say what is asked for, or what was written into memory: a look at its row."""
    return WRITTEN_BY in row or ('"user"' in row and ("\\u" in row or may_ask(row[max(row.find('"content"'), 0) :])))


def _least(text: str) -> Weight:
    return Weight.FACT if len(text) < PASTED else Weight.OWN


def is_worth_asking(lines: Sequence[Line]) -> bool:
    """Whether a model could find anything to note: nobody is asked about a greeting (promise 20)."""
    if sum(len(line.message.text) for line in lines) > MUCH:
        return True
    said = (weight for line in lines for _, weight in _weighed(_own_words(line)))
    return any(weight > Weight.NOTHING for weight in said)


def _weighed(text: str) -> Iterator[tuple[str, Weight]]:
    follows = False
    for sentence in split_sentences(text):
        weight = weigh(sentence, follows=follows)
        follows = weight >= Weight.FACT
        yield sentence, weight


def _own_words(line: Line) -> str:
    message = line.message
    return message.text if isinstance(message, UserMessage) and message.origin == Origin.OWNER else ""


def _written(lines: Sequence[Line]) -> Iterator[str]:
    """What was written into memory, as far as it was."""
    if not any(isinstance(line.message, ToolResult) and line.message.tool_name == WRITTEN_BY for line in lines):
        return
    wanted: dict[str, str] = {}
    for line in lines:
        match line.message:
            case AssistantMessage() as message:
                wanted |= {call.id: str(call.arguments.get("text", "")) for call in message.calls}
            case ToolResult(tool_name=name, is_error=False) as message if name == WRITTEN_BY:
                yield wanted.get(message.tool_call_id, "")


def _is_known(key: str, known: set[str]) -> bool:
    """`Remember that the gate is green` is known when `the gate is green` is."""
    words = key.split()
    return any(" ".join(words[first:]) in known for first in range(min(len(words) - 1, _OPENING)) or (0,))


def _key(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def _day(timestamp: int, zone: tzinfo) -> str:
    try:
        return datetime.fromtimestamp(timestamp / 1000, zone).date().isoformat() if timestamp else ""
    except (OverflowError, ValueError, OSError):  # an imported row may say anything
        return ""
