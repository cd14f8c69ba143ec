"""The tool apply_patch, which changes several files by a patch in OpenAI's format:

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
All of it is worked out in memory before the first file is touched. Then the files are written one by one, each whole,
what is to go last of all; if one of them fails, the result says exactly which were done.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.events import Plan
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun, failed
from palinurus.tools.files.reach import FindAccess
from palinurus.tools.files.replace import decode, describe_nearest, encode, line_break
from palinurus.tools.files.writer import FileWriter, check_unchanged, shown_text

BEGIN, END, END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_SECTION = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE = re.compile(r"\*\*\* Move to: (.+)")
_LINE_NUMBERS = re.compile(r"-\d+(,\d+)? \+\d+(,\d+)? *(@@)?")  # a header of diff's own, which says nothing here
_LIKENESS: tuple[Callable[[str], str], ...] = (lambda line: line.rstrip("\r"), str.rstrip, str.strip)


class Hunk(Struct, frozen=True):
    headers: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]  # each with its sign: a space, - or +
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]


class PatchSection(Struct, frozen=True):
    """What the patch says about one file."""

    kind: Literal["Add", "Delete", "Update"]
    path: str
    content: str = ""  # of a file to add
    move_to: str = ""
    hunks: tuple[Hunk, ...] = ()


def parse_patch(text: str) -> tuple[PatchSection, ...]:
    """Parses a patch. Raises BadRequest, which names the line."""
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

    def section(self) -> PatchSection:
        found = _SECTION.fullmatch(self._lines[self._at].rstrip())
        if found is None:
            raise self._wrong("expected '*** Add File: ', '*** Update File: ' or '*** Delete File: '")
        self._at += 1
        kind, path = found[1], found[2].strip()
        if kind == "Add":
            lines = self._body("+", ("*** ",), "each line of a new file begins with '+'")
            return PatchSection("Add", path, content="".join(f"{line}\n" for _, line in lines))
        if kind == "Delete":
            return PatchSection("Delete", path)
        moved = self._take(_MOVE)
        section = PatchSection("Update", path, move_to=moved, hunks=tuple(self._hunks()))
        if not section.hunks and not moved:
            raise self._wrong(f"nothing to change in {path}")
        return section

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.fullmatch(self._lines[self._at].rstrip()) if self.left() else None
        self._at += found is not None
        return found[1].strip() if found else ""

    def _body(self, signs: str, stops: tuple[str, ...], wrong: str) -> list[tuple[str, str]]:
        """Returns lines with their signs, up to one that begins something else. An empty one has lost its space."""
        lines: list[str] = []
        while self.left() and not self._lines[self._at].startswith(stops):
            lines.append(self._lines[self._at])
            if lines[-1][:1] not in signs:
                raise self._wrong(wrong)
            self._at += 1
        while lines and not lines[-1]:  # blank lines at the end separate two sections and belong to none
            lines.pop()
        return [(line[:1] or " ", line[1:]) for line in lines]

    def _hunks(self) -> list[Hunk]:
        hunks = []
        while self.left() and not _SECTION.fullmatch(self._lines[self._at].rstrip()):
            headers = []
            while self.left() and self._lines[self._at].startswith("@@"):
                headers.append(self._lines[self._at][2:].strip())
                self._at += 1
            lines = self._body(" -+", ("*** ", "@@"), "each line of a hunk begins with ' ', '-' or '+'")
            at_end = bool(self._take(re.compile(rf"({re.escape(END_OF_FILE)})")))
            if not any(sign != " " for sign, _ in lines):
                raise self._wrong("a hunk needs at least one line that begins with '-' or '+'")
            named = tuple(each for each in headers if each and not _LINE_NUMBERS.match(each))
            hunks.append(Hunk(named, tuple(lines), at_end))
        return hunks

    def _wrong(self, what: str) -> BadRequest:
        line = self._lines[self._at] if self.left() else END
        return BadRequest(f"line {self._at + 2} of the patch, {line[:80]!r}: {what}")


def apply_hunks(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """Returns the text with all hunks applied. Raises BadRequest if one does not fit. Context lines keep the text of
    the file."""
    ending = "\r" if line_break(text) == "\r\n" else ""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    lines = text.removeprefix(mark).split("\n")
    last = lines.pop() if lines[-1] == "" else None  # a file that ends with a line break still does
    result: list[str] = []
    done = 0
    searched = _SearchableLines(lines)
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


def _place(path: str, searched: _SearchableLines, hunk: Hunk, start: int, number: int) -> int:
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
        like = describe_nearest("\n".join(lines), "\n".join(old))
        raise BadRequest(f"hunk {number} of {path} does not fit after line {start}. {like}")
    return at


class _SearchableLines:
    """The lines of a text, searched for several in a row. Each normalised view is prepared once for all hunks."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._views: list[tuple[str, list[int], set[str]]] = []

    def seek(self, wanted: list[str], start: int) -> int | None:
        """Finds the lines: exactly, then ignoring trailing spaces, then ignoring indentation."""
        for number, alike in enumerate(_LIKENESS):
            text, breaks, known = self._view(number)
            target = [alike(line) for line in wanted]
            if known.issuperset(target):
                at = text.find("\n".join(["", *target, ""]), breaks[min(start, len(self.lines))])
                if at >= 0:
                    return bisect_left(breaks, at)
        return None

    def _view(self, number: int) -> tuple[str, list[int], set[str]]:
        """Returns one text with a line break around each line, the positions of these breaks, and the set of lines."""
        if number == len(self._views):
            have = [_LIKENESS[number](line) for line in self.lines]
            breaks = list(accumulate((len(line) + 1 for line in have), initial=0))
            self._views.append(("\n".join(["", *have, ""]), breaks, set(have)))
        return self._views[number]


async def prepare_patch(run: ToolRun, reach: FindAccess, clock: Clock, text: str) -> PreparedCall:
    sections = parse_patch(text)
    writer = await asyncio.to_thread(lambda: FileWriter(run, reach(run.key), clock, _paths(sections)))
    named = ", ".join(writer.places)
    plan = Plan("apply_patch", f"patch {named}", arguments=shown_text(named, text))
    places = dict(zip(_paths(sections), writer.places, strict=True))
    moves = {places[each.move_to]: places[each.path] for each in sections if each.move_to}
    return writer.prepared(plan, lambda: _commit(writer, _staged(writer, sections)), moves, shows=True)


class StagedFile(Struct):
    """One file as it was read and as it will be; None: it does not exist."""

    path: str
    before: bytes | None
    after: bytes | None


def _paths(sections: tuple[PatchSection, ...]) -> tuple[str, ...]:
    return tuple(path for section in sections for path in (section.path, section.move_to) if path)


class _Stage(Struct):
    """The files of a patch by their real path, so that two names of one file are one."""

    writer: FileWriter
    places: dict[str, str]
    files: dict[str, StagedFile] = {}

    def take(self, path: str) -> StagedFile:
        place = self.places[path]
        if place not in self.files:
            before = self.writer.read(path)
            self.files[place] = StagedFile(path, before, before)
        return self.files[place]

    def add(self, path: str, data: bytes) -> None:
        staged = self.take(path)
        if staged.after is not None:
            raise BadRequest(f"{path} already exists", hint="use '*** Update File: ', or another name")
        staged.after = data

    def lift(self, path: str) -> tuple[StagedFile, bytes]:
        staged = self.take(path)
        if staged.after is None:
            raise NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")
        return staged, staged.after


def _staged(writer: FileWriter, sections: tuple[PatchSection, ...]) -> list[StagedFile]:
    stage = _Stage(writer, dict(zip(_paths(sections), writer.places, strict=True)))
    for section in sections:
        match section.kind:
            case "Add":
                stage.add(section.path, encode(section.path, section.content))
            case "Delete":
                staged, _ = stage.lift(section.path)
                staged.after = None
            case "Update":
                staged, data = stage.lift(section.path)
                text = apply_hunks(section.path, decode(section.path, data), section.hunks)
                staged.after = encode(section.path, text)
                if section.move_to:
                    stage.add(section.move_to, staged.after)
                    staged.after = None
    changed = [each for each in stage.files.values() if each.before != each.after]
    return sorted(changed, key=lambda each: each.after is None)


def _commit(writer: FileWriter, files: list[StagedFile]) -> ToolOutput:
    done: list[str] = []
    for number, staged in enumerate(files):
        try:
            done.append(_put(writer, staged))
        except PalinurusError as error:
            missing = ", ".join(each.path for each in files[number + 1 :])
            rest = f"\nnot tried: {missing}" if missing else ""
            return failed("\n".join([f"{staged.path} failed: {error}", *(done or ["nothing was changed"])]) + rest)
    return ToolOutput("\n".join(done) or "every file already has this content")


def _put(writer: FileWriter, staged: StagedFile) -> str:
    if staged.after is None:
        gone = writer.delete(staged.path, staged.before or b"")
        return f"deleted {gone.written.path}{gone.remarks}"
    after = staged.after

    def change(_: str, before: bytes | None) -> bytes:
        check_unchanged(staged.path, before, staged.before)
        return after

    saved = writer.write(staged.path, change)
    return f"{'created' if staged.before is None else 'updated'} {saved.written.path}{saved.remarks}"
