"""Packs lines into messages: as much as fits, cut at the best place. Pure.

A message ends at a blank line if it is at least half full there, else where a block ends, else at a line. A line that
is too long is cut after a sentence, else after a space, else between two characters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from palinurus.text.cuts import find_cut
from palinurus.text.lines import LineBlock, Span, TextLine, is_longer, split_spans, unlinked
from palinurus.text.writer import DialectWriter, LineFrame


class PackingRules(Struct, frozen=True):
    size: int
    measure: Callable[[str], int]
    lines: int = 0
    is_split_at_gaps: bool = False


class WrittenLine(Struct, frozen=True):
    """A line as a message would go on with it."""

    line: TextLine
    text: str  # with all that comes before it
    size: int
    frames: tuple[LineFrame, ...]  # that are open after it


class MessageDraft:
    """A message in one dialect, to which lines are added."""

    def __init__(self, writer: DialectWriter, measure: Callable[[str], int]) -> None:
        self._writer = writer
        self._measure = measure
        self._lines: list[WrittenLine] = []
        self.size = 0  # without what closes the frames
        self.newlines = 0

    def write(self, line: TextLine) -> WrittenLine:
        last = self._lines[-1] if self._lines else None
        frames = last.frames if last else ()
        if self._writer.skips(line):
            return WrittenLine(last.line if last else line, "", 0, frames)
        wanted = self._writer.frames(line)
        shared = 0
        while shared < min(len(wanted), len(frames)) and wanted[shared].id == frames[shared].id:
            shared += 1
        parts = [frame.close for frame in reversed(frames[shared:])]
        if last and (last.text or len(self._lines) > 1):
            parts.append(self._writer.separator(last.line, line))
        parts += [frame.open for frame in wanted[shared:]]
        text = "".join([*parts, self._writer.body(line)])
        return WrittenLine(line, text, self._size(text), (*frames[:shared], *wanted[shared:]))

    def size_with(self, written: WrittenLine) -> int:
        """The size of the message if it ended with the line."""
        return self.size + written.size + sum(self._size(frame.close) for frame in written.frames)

    def _size(self, text: str) -> int:
        return self._measure(self._writer.visible(text))

    def add(self, written: WrittenLine) -> None:
        self._lines.append(written)
        self.size += written.size
        self.newlines += written.text.count("\n")

    def finish(self, place: int) -> str:
        """The message that ends before the line of that index."""
        lines = self._lines[:place]
        return "".join([*(each.text for each in lines), *(frame.close for frame in reversed(lines[-1].frames))])


class LinePacker:
    """Packs lines into messages. Each message is given back in every dialect that was asked for."""

    def __init__(self, writers: Sequence[DialectWriter], rules: PackingRules) -> None:
        self._writers = writers
        self._rules = rules
        self._lines: list[TextLine] = []
        self._fill: list[float] = []  # how full the message is after each line
        self._drafts: list[MessageDraft] = []
        self._begin()

    def _begin(self) -> None:
        self._lines, self._fill = [], []
        self._drafts = [MessageDraft(writer, self._rules.measure) for writer in self._writers]

    def pack(self, lines: Iterable[TextLine]) -> Iterator[list[str]]:
        waiting = deque(lines)
        while waiting:
            line = waiting.popleft()
            if self._lines and self._rules.is_split_at_gaps and self._is_between_blocks(line):
                yield self._finish(len(self._lines), waiting)
            is_short = not is_longer(line.spans, self._rules.size)
            written = [draft.write(line) for draft in self._drafts] if is_short else []
            if written and self._fits(written):
                self._add(line, written)
                continue
            waiting.appendleft(line)
            place = self._best_place(line)
            if not place:
                first, rest = self._cut(waiting.popleft())
                waiting.extendleft(reversed(rest))
                if first:
                    self._add(first, [draft.write(first) for draft in self._drafts])
                elif not self._lines or rest != [line]:
                    continue
                place = len(self._lines)
            yield self._finish(place, waiting)
        if self._lines:
            yield self._finish(len(self._lines), waiting)

    def _add(self, line: TextLine, written: Sequence[WrittenLine]) -> None:
        for draft, each in zip(self._drafts, written, strict=True):
            draft.add(each)
        self._lines.append(line)
        lines = (self._drafts[0].newlines + 1) / self._rules.lines if self._rules.lines else 0.0
        self._fill.append(max(lines, max(draft.size for draft in self._drafts) / self._rules.size))

    def _finish(self, place: int, waiting: deque[TextLine]) -> list[str]:
        """The message that ends before the line of that index; the others wait again."""
        waiting.extendleft(reversed(self._lines[place:]))
        message = [draft.finish(place) for draft in self._drafts]
        self._begin()
        return message

    def _fits(self, written: Sequence[WrittenLine]) -> bool:
        for draft, each in zip(self._drafts, written, strict=True):
            if draft.size_with(each) > self._rules.size:
                return False
        if not self._rules.lines or not self._lines:
            return True
        line = written[0].line
        goes_on = line.is_code and line.block == self._lines[-1].block  # code is cut only when it must be
        return goes_on or self._drafts[0].newlines + 2 + line.gap <= self._rules.lines

    def _best_place(self, following: TextLine) -> int:
        """Where the message ends before the next line; 0: it is not half full anywhere."""
        best, quality = 0, -1
        lines = [*self._lines, following]
        for place in range(len(self._lines), 0, -1):
            if self._fill[place - 1] < 0.5:
                break
            found = _quality(lines[place - 1], lines[place])
            if found > quality:
                best, quality = place, found
        return best

    def _is_between_blocks(self, line: TextLine) -> bool:
        before = self._lines[-1]
        if not line.gap or not line.path or not before.path:
            return line.gap
        one, other = before.path[0], line.path[0]
        return one.id != other.id and (not one.list_id or one.list_id != other.list_id)

    def _cut(self, line: TextLine) -> tuple[TextLine | None, list[TextLine]]:
        """As much of a line as fits, and the rest of it. Without a first part a simpler line comes instead."""
        room = self._rules.size
        spans, rest = split_spans(line.spans, room + 1)  # all of a very long line is never written
        short = [part for span in spans for part in (unlinked(span) if len(span.link) > room // 4 else (span,))]
        if tuple(short) != spans or line.cells:
            return None, [msgspec.structs.replace(line, spans=(*short, *rest), cells=())]
        beginning = msgspec.structs.replace(line, spans=spans)
        text = beginning.text
        most = self._fitting(beginning, len(text))
        if not most:
            return (None, [line]) if self._lines else _without_surroundings(line)
        place = most if most == len(text) else find_cut(text, max(1, most // 2), most)
        return _divided(line, place)

    def _fitting(self, line: TextLine, most: int) -> int:
        """How many characters of the line fit."""
        size = max(draft.write(line).size for draft in self._drafts)
        low, high = 0, most
        middle = min(most, max(1, most * self._rules.size // max(1, size)))  # a guess that is mostly right
        while high - low > most // 64:
            part = msgspec.structs.replace(line, spans=split_spans(line.spans, middle)[0])
            fits = all(draft.size_with(draft.write(part)) <= self._rules.size for draft in self._drafts)
            low, high = (middle, high) if fits else (low, middle - 1)
            middle = (low + high + 1) // 2
        return low


def _without_surroundings(line: TextLine) -> tuple[TextLine | None, list[TextLine]]:
    """The line without its frames and styles; if it has none, its first character."""
    bare = TextLine((Span(line.text),), LineBlock("paragraph", line.block.id, is_tight=True))
    return (None, [bare]) if bare != line else _divided(line, 1)


def _divided(line: TextLine, place: int) -> tuple[TextLine, list[TextLine]]:
    spans, rest = split_spans(line.spans, place)
    if spans and not line.is_code:  # a mark does not close after a space
        spans = (*spans[:-1], msgspec.structs.replace(spans[-1], text=spans[-1].text.rstrip()))
    following = msgspec.structs.replace(line, spans=rest, fresh=len(line.path), gap=False)
    return msgspec.structs.replace(line, spans=spans), [following] if rest else []


def _quality(before: TextLine, line: TextLine) -> int:
    """How good it is to end a message between the lines."""
    if before.block.kind == "heading":
        return 0
    return 2 if line.gap else int(before.block != line.block)
