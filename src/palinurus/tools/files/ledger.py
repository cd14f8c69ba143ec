"""What the hands for files write down about what they wrote: whether its words are from outside (promise 18).

A file that an untrusted run writes is entered before it is touched, so that no crash comes between, and once more with
its inode and digest when it is there. Whoever writes a file anew without having read such text clears the entry; who
changes a part of it keeps it. A day's note is not entered: there each new line says by itself where it is from.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.clock import Clock
from palinurus.domain.errors import PalinurusError
from palinurus.domain.function_tool import failed
from palinurus.domain.messages import NOTED_OUTSIDE, OUTSIDE_MARK, Origin
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.tools.files.replace import changed_lines
from palinurus.tools.files.sources import is_marked
from palinurus.workspace.file_origins import FileOrigin, absolute, looked_at, named
from palinurus.workspace.files import WorkspaceFiles, is_private
from palinurus.workspace.instructions import Instructions
from palinurus.workspace.write import Written


class Saved(Struct, frozen=True):
    """What was done to one file, and where a copy of what it held lies."""

    written: Written
    backup: str = ""
    whole: bool = False  # nothing of what was there is left
    marked: bool = False  # its new lines say that they are from outside

    @property
    def remarks(self) -> str:
        said = f"; what it held is in {self.backup}" if self.backup else ""
        said += "; its new lines are marked as from outside" if self.marked else ""
        return said + ("; its other names (hard links) keep the old content" if self.written.other_names else "")


class FileLedger:
    """Of one call."""

    def __init__(self, run: ToolRun, files: WorkspaceFiles, clock: Clock, begins: Instructions) -> None:
        self._run = run
        self._boundary = files.boundary
        self._origins = files.origins
        self._clock = clock
        self._begins = begins
        self._wrote: list[Saved] = []

    def note(self, saved: Saved) -> Saved:
        """Called in a thread, once for each file that was changed."""
        self._wrote.append(saved)
        return saved

    async def around(
        self, work: Callable[[], ToolOutput], places: tuple[str, ...], moves: Mapping[str, str], *, shows: bool
    ) -> ToolOutput:
        """Do the work in a thread. `moves`: old places by new ones; `shows`: it tells what is in the files."""
        before = await asyncio.to_thread(self._look, places)
        fresh = [path for path in self._intended(places) if self._origins.entry(path) is None]
        await self._origins.enter([self._new(path) for path in fresh])
        try:
            output = await asyncio.to_thread(work)
        except PalinurusError as error:
            await self._settle(fresh, before, moves)
            if not (shows and (before.outside or before.marked)):
                raise
            return _from(failed(str(error)), before, before.marked)
        await self._settle(fresh, before, moves)
        marked = [each.written.path for each in self._wrote if _shows_mark(each)]
        return _from(output, before, marked) if shows else output

    def _look(self, places: tuple[str, ...]) -> Before:
        entered = {place for place in places if self._origins.is_held(self._boundary, place)}
        outside = tuple(place for place in places if place in entered or self._origins.kinds.has(place))
        return Before(outside, entered, tuple(place for place in places if self._has_mark(place)))

    def _has_mark(self, place: str) -> bool:
        if not is_private(place):
            return False
        with suppress(PalinurusError):
            return OUTSIDE_MARK.encode() in self._boundary.read_bytes(place)
        return False

    def _intended(self, places: tuple[str, ...]) -> list[str]:
        """Not what conversations begin with: a person has said yes to that, so it is the owner's."""
        if not self._run.untrusted:
            return []
        return [absolute(self._boundary, place) for place in places if not (self._begins.hold(place) or is_note(place))]

    def _new(self, path: str) -> FileOrigin:
        root = os.path.realpath(self._boundary.root)
        return FileOrigin(path, root, sources=named(self._run.suspects), at=self._clock.now_ms())

    async def _settle(self, fresh: list[str], before: Before, moves: Mapping[str, str]) -> None:
        entries, gone = await asyncio.to_thread(self._judge, before, moves)
        written = {absolute(self._boundary, each.written.path) for each in self._wrote}
        await self._origins.enter(entries)
        await self._origins.clear([*gone, *(path for path in fresh if path not in written)])

    def _judge(self, before: Before, moves: Mapping[str, str]) -> tuple[list[FileOrigin], list[str]]:
        """What holds words from outside from now on, and what does not any more."""
        entries: list[FileOrigin] = []
        gone: list[str] = []
        for each in self._wrote:
            place = each.written.path
            path = absolute(self._boundary, place)
            if each.backup and place in before.outside:
                entries.append(looked_at(self._new(absolute(self._boundary, each.backup))))
            moved = moves.get(place) in before.outside
            if each.written.after is not None and self._stays(each, place in before.entered, moved):
                entries.append(looked_at(self._origins.entry(path) or self._new(path)))
            else:
                gone.append(path)
        return entries, gone

    def _stays(self, each: Saved, was: bool, moved: bool) -> bool:
        place = each.written.path
        if self._run.untrusted and not is_note(place):
            return not self._begins.hold(place)
        if each.marked:
            return was and not each.whole
        return moved or (was and not each.whole)


class Before(Struct, frozen=True):
    """Places whose words were from outside before the call: all of them, and those that were entered."""

    outside: tuple[str, ...]
    entered: set[str]
    marked: tuple[str, ...] = ()  # notes with lines that say they are from outside


def _from(output: ToolOutput, before: Before, marked: Iterable[str]) -> ToolOutput:
    shown = (f"{'written' if place in before.entered else 'file'}:{place}" for place in before.outside)
    sources = tuple(dict.fromkeys((*shown, *(f"written:{place}" for place in marked))))
    return replace(output, origin=Origin.OUTSIDE, sources=sources) if sources else output


def _shows_mark(saved: Saved) -> bool:
    """Whether the difference has lines of memory that say they are from outside."""
    before, after = (_text(data or b"") for data in (saved.written.before, saved.written.after))
    return is_private(saved.written.path) and is_marked(saved.written.path, changed_lines(before, after))


def is_note(place: str) -> bool:
    """Whether it is a file of notes, of which each line may say where it is from."""
    parts = place.casefold().split("/")
    return len(parts) > 1 and parts[0] == "memory" and parts[-1].endswith(".md")


def mark_new_lines(before: bytes | None, after: bytes) -> bytes:
    """With a mark behind each line that was not there before: an untrusted run's words, among the owner's."""
    known = Counter(map(str.strip, _text(before or b"").splitlines()))
    return "".join(_marked(line, known) for line in _text(after).splitlines(keepends=True)).encode(
        "utf-8", "surrogateescape"
    )


def _marked(line: str, known: Counter[str]) -> str:
    words = line.strip()
    if known[words] > 0:
        known[words] -= 1
        return line
    if OUTSIDE_MARK in line or not any(map(str.isalpha, words)):  # a bare date, a rule, a fence
        return line
    end = len(line.rstrip())
    return f"{line[:end]}{NOTED_OUTSIDE}{line[end:]}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
