"""OpenAI's patch format: what it says, and what becomes of a text that it is applied to. Pure.

    *** Begin Patch
    *** Add File: notes/new.md
    +each line of it
    *** Update File: src/app.py
    *** Move to: src/main.py
    @@ def start():
     a line that stays
    -a line that goes
    +a line that comes
    *** Delete File: old.md
    *** End Patch

A hunk says no line numbers: its lines are looked for, after the hunk before it and after the lines that `@@` names.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.tools.files.replace import line_break, nearest

BEGIN, END, END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_SECTION = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE = re.compile(r"\*\*\* Move to: (.+)")
_LINE_NUMBERS = re.compile(r"-\d+(,\d+)? \+\d+(,\d+)? *(@@)?")  # a header of diff's own, which says nothing here
_Sign = Literal[" ", "-", "+"]
_LIKENESS: tuple[Callable[[str], str], ...] = (lambda line: line.rstrip("\r"), str.rstrip, str.strip)


class Hunk(Struct, frozen=True):
    headers: tuple[str, ...]
    lines: tuple[tuple[_Sign, str], ...]
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]


class Section(Struct, frozen=True):
    """What the patch says about one file."""

    kind: Literal["Add", "Delete", "Update"]
    path: str
    content: str = ""  # of a file to add
    move_to: str = ""
    hunks: tuple[Hunk, ...] = ()


def parse_patch(text: str) -> tuple[Section, ...]:
    """Raises BadRequest, which names the line."""
    lines = text.strip("\n").replace("\r\n", "\n").split("\n")
    if lines[0].strip() != BEGIN:
        raise BadRequest(f"the patch does not begin with {BEGIN!r}")
    if lines[-1].strip() != END or len(lines) < 2:
        raise BadRequest(f"the patch does not end with {END!r}", hint="it may have been cut off: send it again")
    reader = _Reader(lines[1:-1])
    sections = []
    while reader.left():
        sections.append(reader.section())
    if not sections:
        raise BadRequest("the patch names no file")
    return tuple(sections)


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def left(self) -> bool:
        return self._at < len(self._lines)

    def section(self) -> Section:
        found = _SECTION.fullmatch(self._lines[self._at].rstrip())
        if found is None:
            raise self._wrong("expected '*** Add File: ', '*** Update File: ' or '*** Delete File: '")
        self._at += 1
        kind, path = found[1], found[2].strip()
        if kind == "Add":
            return Section("Add", path, content="".join(f"{line}\n" for line in self._added()))
        if kind == "Delete":
            return Section("Delete", path)
        moved = self._take(_MOVE)
        section = Section("Update", path, move_to=moved, hunks=tuple(self._hunks()))
        if not section.hunks and not moved:
            raise self._wrong(f"nothing to change in {path}")
        return section

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.fullmatch(self._lines[self._at].rstrip()) if self.left() else None
        self._at += found is not None
        return found[1].strip() if found else ""

    def _added(self) -> list[str]:
        added = []
        while self.left() and not self._lines[self._at].startswith("*** "):
            line = self._lines[self._at]
            if line and not line.startswith("+"):
                raise self._wrong("each line of a new file begins with '+'")
            added.append(line[1:])
            self._at += 1
        return added[: len(added) - self._blank_before()]

    def _blank_before(self) -> int:
        """How many lines without a sign end just here: they part two sections and belong to none."""
        at = self._at
        while at and not self._lines[at - 1]:
            at -= 1
        return self._at - at

    def _hunks(self) -> list[Hunk]:
        hunks = []
        while self.left() and not _SECTION.fullmatch(self._lines[self._at].rstrip()):
            headers = []
            while self.left() and self._lines[self._at].startswith("@@"):
                headers.append(self._lines[self._at][2:].strip())
                self._at += 1
            lines = self._hunk_lines()
            at_end = bool(self._take(re.compile(rf"({re.escape(END_OF_FILE)})")))
            if not any(sign != " " for sign, _ in lines):
                raise self._wrong("a hunk needs at least one line that begins with '-' or '+'")
            named = tuple(each for each in headers if each and not _LINE_NUMBERS.match(each))
            hunks.append(Hunk(named, tuple(lines), at_end))
        return hunks

    def _hunk_lines(self) -> list[tuple[_Sign, str]]:
        lines: list[tuple[_Sign, str]] = []
        while self.left():
            line = self._lines[self._at]
            match line[:1]:
                case " " | "-" | "+" as sign:
                    lines.append((sign, line[1:]))
                case "":
                    lines.append((" ", ""))  # an empty line whose space got lost
                case "*" | "@" if line.startswith(("*** ", "@@")):
                    break
                case _:
                    raise self._wrong("each line of a hunk begins with ' ', '-' or '+'")
            self._at += 1
        return lines[: len(lines) - self._blank_before()]

    def _wrong(self, what: str) -> BadRequest:
        line = self._lines[self._at] if self.left() else END
        return BadRequest(f"line {self._at + 2} of the patch, {line[:80]!r}: {what}")


def apply_hunks(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """The text with all hunks applied. Raises BadRequest when one does not fit. Lines that stay are the text's own."""
    ending = "\r" if line_break(text) == "\r\n" else ""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    lines = text.removeprefix(mark).split("\n")
    last = lines.pop() if lines[-1] == "" else None  # what ends with a line break goes on doing so
    result: list[str] = []
    done = 0
    searched = _Searched(lines)
    for number, hunk in enumerate(hunks, start=1):
        at = _place(path, searched, hunk, done, number)
        result += lines[done:at]
        for sign, line in hunk.lines:
            if sign == "+":
                result.append(line + ending)
            else:
                result += lines[at : at + 1] if sign == " " else []
                at += 1
        done = at
    result += lines[done:]
    return mark + "\n".join([*result, *([last] if last is not None and result else [])])


def _place(path: str, searched: _Searched, hunk: Hunk, start: int, number: int) -> int:
    lines = searched.lines
    for header in hunk.headers:
        at = searched.seek([header], start)
        if at is None:
            raise BadRequest(f"hunk {number} of {path}: no line {header[:160]!r} after line {start}")
        start = at + 1
    old = hunk.old
    if not old:
        return start if hunk.headers and not hunk.at_end else len(lines)
    at = searched.seek(old, max(start, len(lines) - len(old)) if hunk.at_end else start)
    if at is None and hunk.at_end:
        at = searched.seek(old, start)
    if at is None:
        like = nearest("\n".join(lines), "\n".join(old))
        raise BadRequest(f"hunk {number} of {path} does not fit after line {start}. {like}")
    return at


class _Searched:
    """The lines of a text, to be looked for several in a row. Each likeness is prepared once for all hunks."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._views: list[tuple[str, list[int], set[str]]] = []

    def seek(self, wanted: list[str], start: int) -> int | None:
        """Where the lines are, first exactly, then without regard to spaces at their ends, then to indentation."""
        for number, alike in enumerate(_LIKENESS):
            text, breaks, known = self._view(number)
            target = [alike(line) for line in wanted]
            if known.issuperset(target):
                at = text.find("\n".join(["", *target, ""]), breaks[min(start, len(self.lines))])
                if at >= 0:
                    return bisect_left(breaks, at)
        return None

    def _view(self, number: int) -> tuple[str, list[int], set[str]]:
        """One text with a line break before and behind each line, where these breaks are, and which lines there are."""
        if number == len(self._views):
            have = [_LIKENESS[number](line) for line in self.lines]
            breaks = list(accumulate((len(line) + 1 for line in have), initial=0))
            self._views.append(("\n".join(["", *have, ""]), breaks, set(have)))
        return self._views[number]
