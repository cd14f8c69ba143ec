"""Cuts a text that is still being written into blocks that can be sent: at paragraphs, lines, sentences or spaces.

A cutter is given the text piece by piece. The blocks are exact slices of it, and how it was divided into pieces changes
nothing. A block that begins inside a code fence says which one, so that it can be rendered by itself.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from palinurus.text.cuts import LONGEST_END, find_cut, find_sentence_end

BreakPreference = Literal["paragraph", "newline", "sentence"]
LONGEST_FENCE = 100  # characters of a fence line that are kept
_FENCE = re.compile(r"([ \t>]*)(`{3,}(?=[^`]*$)|~{3,})(.*)")


class TextBlock(Struct, frozen=True):
    """A slice of a text. `opened` is the line of the code fence inside which it begins."""

    text: str
    opened: str = ""


def fence_after(line: str, fence: str) -> str:
    """The line of the code fence that is open after a line; `fence` is the one that was open before it."""
    found = _FENCE.match(line.rstrip())
    if not found:
        return fence
    if not fence:
        return found.group()[:LONGEST_FENCE]
    marks = fence.lstrip(" \t>")
    length = len(marks) - len(marks.lstrip(marks[0]))
    closes = found[2].startswith(marks[0] * length) and not found[3]
    return "" if closes else fence


class _Places(Struct):
    """Where the held text can be broken: the last place of each kind, 0 if there is none."""

    paragraph: int = 0
    newline: int = 0
    in_fence: int = 0


class BlockCutter:
    """Holds text until there is enough of it, and breaks it at a good place."""

    def __init__(self, min_chars: int = 800, max_chars: int = 1200, prefer: BreakPreference = "paragraph") -> None:
        self._max = max(1, max_chars)
        self._min = min(max(1, min_chars), self._max)
        self._prefer = prefer
        self._reset()

    def _reset(self) -> None:
        self._text = ""
        self._start = 0  # of the held block
        self._opened = ""  # the fence inside which it begins
        self._line = 0  # where the line begins that has not ended
        self._fence = ""  # the fence inside which it begins
        self._searched = 0  # for sentences
        self._places = _Places()

    def add(self, text: str) -> list[TextBlock]:
        """The blocks that are complete with this piece of the text."""
        self._text += text
        blocks = []
        while place := self._next_place():
            blocks.append(self._take(place))
        if self._start:
            self._text = self._text[self._start :]
            self._move(self._start)
        return blocks

    def end(self) -> list[TextBlock]:
        """What is left. Another text may follow."""
        blocks = [TextBlock(self._text, self._opened)] if self._text else []
        self._reset()
        return blocks

    def _next_place(self) -> int:
        """Where the held block ends; 0 as long as that is not known."""
        limit = self._start + self._max
        while True:
            newline = self._text.find("\n", self._line, limit)
            if self._prefer == "sentence" and not self._fence:
                place = self._next_sentence(newline + 1 if newline >= 0 else min(len(self._text), limit))
                if place:
                    return place
            if newline < 0:
                return self._forced_place(limit) if len(self._text) > limit else 0
            if place := self._end_line(newline + 1):
                return place

    def _next_sentence(self, end: int) -> int:
        place = find_sentence_end(self._text, max(self._searched, self._start + self._min - 1), end)
        self._searched = end - LONGEST_END  # what follows a full stop may not have come yet
        return place if place >= self._start + self._min else 0

    def _end_line(self, end: int) -> int:
        """Goes on to the next line. Returns its beginning if the block is to end there."""
        line = self._text[self._line : end]
        before, self._fence = self._fence, fence_after(line, self._fence)
        places = self._places
        if self._fence:
            if not before and self._line > self._start:
                places.newline = self._line  # before the fence
            self._line = places.in_fence = end
            return 0
        blank = not line.strip()
        places.newline, self._line = end, end
        if blank:
            places.paragraph = end
        is_enough = end - self._start >= self._min
        return end if is_enough and (blank or self._prefer != "paragraph") else 0

    def _forced_place(self, limit: int) -> int:
        """The best place in a block that has become too long."""
        places, least = self._places, self._start + self._min
        if places.paragraph >= least:
            return places.paragraph
        if places.newline >= least or (self._fence and places.newline > self._start):
            return places.newline
        if self._fence and places.in_fence >= least:
            return places.in_fence
        if not self._fence and _FENCE.match(self._text[self._line : limit]) and self._line > self._start:
            return self._line
        held = self._text[self._start : limit + 1]
        return self._start + find_cut(held, max(self._min, self._line - self._start), self._max)

    def _take(self, place: int) -> TextBlock:
        block = TextBlock(self._text[self._start : place], self._opened)
        if place > self._line:  # the rest of the line is read like a line of its own
            self._fence = fence_after(self._text[self._line : place], self._fence)
        elif place != self._places.in_fence:
            self._fence = ""
        self._opened, self._places = self._fence, _Places()
        self._start = self._line = self._searched = place
        return block

    def _move(self, by: int) -> None:
        """The text before the held block is gone."""
        places = self._places
        self._start, self._line, self._searched = 0, self._line - by, max(0, self._searched - by)
        self._places = _Places(max(0, places.paragraph - by), max(0, places.newline - by), max(0, places.in_fence - by))
