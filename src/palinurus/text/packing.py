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
from palinurus.text.lines import LineBlock, Span, TextLine, split_spans, unlinked
from palinurus.text.writer import DialectWriter, LineFrame


class PackingRules(Struct, frozen=True):
    size: int
    measure: Callable[[str], int]
    lines: int = 0
    is_split_at_gaps: bool = False


class MessageDraft:
    """A message in one dialect, to which lines are added."""

    def __init__(self, writer: DialectWriter, measure: Callable[[str], int]) -> None:
        self._writer = writer
        self._measure = measure
        self._parts: list[str] = []
        self._frames: tuple[LineFrame, ...] = ()
        self._last: TextLine | None = None
        self.size = 0  # without what closes the frames
        self.lines = 1

    def _written(self, line: TextLine) -> tuple[list[str], tuple[LineFrame, ...]]:
        """What the line adds, and the frames in which it leaves the message."""
        if self._writer.skips(line):
            return [], self._frames
        wanted = self._writer.frames(line)
        shared = 0
        while shared < min(len(wanted), len(self._frames)) and wanted[shared].id == self._frames[shared].id:
            shared += 1
        parts = [frame.close for frame in reversed(self._frames[shared:])]
        if self._last:
            parts.append(self._writer.separator(self._last, line))
        parts += [frame.open for frame in wanted[shared:]]
        return [*parts, self._writer.body(line)], (*self._frames[:shared], *wanted[shared:])

    def _size(self, parts: Iterable[str]) -> int:
        return self._measure(self._writer.visible("".join(parts)))

    def size_with(self, line: TextLine) -> int:
        """The size of the message if it ended with the line."""
        parts, frames = self._written(line)
        return self.size + self._size(parts) + self._size(frame.close for frame in frames)

    def add(self, line: TextLine) -> None:
        parts, self._frames = self._written(line)
        if parts:
            self._parts += parts
            self.size += self._size(parts)
            self.lines += sum(part.count("\n") for part in parts)
            self._last = line

    def finish(self) -> str:
        return "".join([*self._parts, *(frame.close for frame in reversed(self._frames))])


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
            if self._fits(line):
                self._add(line)
                continue
            waiting.appendleft(line)
            place = self._best_place(line)
            if not place:
                first, rest = self._cut(waiting.popleft())
                waiting.extendleft(reversed(rest))
                if first:
                    self._add(first)
                elif not self._lines or rest != [line]:
                    continue
                place = len(self._lines)
            yield self._finish(place, waiting)
        if self._lines:
            yield self._finish(len(self._lines), waiting)

    def _add(self, line: TextLine) -> None:
        for draft in self._drafts:
            draft.add(line)
        self._lines.append(line)
        lines = self._drafts[0].lines / self._rules.lines if self._rules.lines else 0.0
        self._fill.append(max(lines, *(draft.size / self._rules.size for draft in self._drafts)))

    def _finish(self, place: int, waiting: deque[TextLine]) -> list[str]:
        """The message that ends before the line of that index; the others wait again."""
        if place < len(self._lines):
            waiting.extendleft(reversed(self._lines[place:]))
            kept = self._lines[:place]
            self._begin()
            for line in kept:
                self._add(line)
        message = [draft.finish() for draft in self._drafts]
        self._begin()
        return message

    def _fits(self, line: TextLine) -> bool:
        if any(draft.size_with(line) > self._rules.size for draft in self._drafts):
            return False
        if not self._rules.lines or not self._lines:
            return True
        goes_on = line.is_code and line.block == self._lines[-1].block  # code is cut only when it must be
        return goes_on or self._drafts[0].lines + 1 + line.gap <= self._rules.lines

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
        spans = [part for span in line.spans for part in (unlinked(span) if len(span.link) > room // 4 else (span,))]
        if tuple(spans) != line.spans or line.cells:
            return None, [msgspec.structs.replace(line, spans=tuple(spans), cells=())]
        text = line.text[: room + 1]
        most = self._fitting(line, len(text))
        if not most:
            if self._lines:
                return None, [line]
            return self._bare(line)
        place = len(text) if most == len(line.text) else find_cut(text, max(1, most // 2), most)
        return _divided(line, place)

    def _fitting(self, line: TextLine, most: int) -> int:
        """How many characters of the line fit."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            part = msgspec.structs.replace(line, spans=split_spans(line.spans, middle)[0])
            fits = all(draft.size_with(part) <= self._rules.size for draft in self._drafts)
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def _bare(self, line: TextLine) -> tuple[TextLine | None, list[TextLine]]:
        """The line without all that stands around it; if it was bare already, its first character."""
        bare = TextLine((Span(line.text),), LineBlock("paragraph", line.block.id, is_tight=True))
        if bare != line:
            return None, [bare]
        return _divided(line, 1)


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
