"""The tools that change files (write, edit and delete), and the record of where their text is from (promise 18).

All first check the real path of the file and whether it may be written, then change it completely or not at all. A copy
is kept of a person's markdown and of every deleted file: see workspace/write.py. Files that later sessions start with
(AGENTS.md, skills) are not changed in a turn that has read text from outside unless a person approves, because their
text counts as the owner's.

A file that an untrusted run writes is recorded before it is changed, so that no crash can come between, and again with
its inode and digest afterwards. Writing a whole file without having read such text clears the record; changing a part
keeps it. A daily note is not recorded: there each new line is marked.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, json, structs

from palinurus.domain.clock import Clock
from palinurus.domain.errors import NotFound, PalinurusError, WorkspaceError
from palinurus.domain.events import Plan
from palinurus.domain.messages import NOTED_OUTSIDE, OUTSIDE_MARK, Origin
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun, failed
from palinurus.tools.files.reach import Edit, FileAccess, check_writing, is_marked, is_note
from palinurus.tools.files.replace import apply_edits, changed_lines, decode, difference, encode
from palinurus.workspace.file_origins import FileOrigin, absolute, looked_at, named
from palinurus.workspace.files import is_private
from palinurus.workspace.write import (
    NEW_FILE,
    Change,
    WrittenFile,
    delete_file,
    is_owned,
    keep_backup,
    loses,
    rewrite,
    whereabouts,
)

MAX_PLANNED = 2_000  # characters of a text shown to a person; the digest covers all of it


class FileChange(Struct, frozen=True):
    """What was done to one file, and where the copy of its old content is."""

    written: WrittenFile
    backup: str = ""
    whole: bool = False  # none of the old content is left
    marked: bool = False  # its new lines are marked as from outside

    @property
    def remarks(self) -> str:
        said = f"; what it held is in {self.backup}" if self.backup else ""
        said += "; its new lines are marked as from outside" if self.marked else ""
        return said + ("; its other names (hard links) keep the old content" if self.written.other_names else "")


class FilesBefore(Struct, frozen=True):
    """Paths with text from outside before the call: all of them, and those that were recorded."""

    outside: tuple[str, ...]
    entered: set[str]
    marked: tuple[str, ...] = ()  # notes with lines marked as from outside


class FileWriter:
    """Writes these files in this run. Creating a writer changes nothing and raises what forbids it."""

    def __init__(self, run: ToolRun, reach: FileAccess, clock: Clock, paths: tuple[str, ...]) -> None:
        self._run = run
        self._reach = reach
        self._boundary = reach.files.boundary
        self._clock = clock
        for path in paths:
            check_writing(run, reach, path, path)
        self.places = tuple(whereabouts(self._boundary, path) for path in paths)
        for path, place in zip(paths, self.places, strict=True):
            check_writing(run, reach, path, place)
            self._check_links(path)
        self._begins = reach.instructions.followed(self._boundary.root)
        self._instructions = tuple(place for place in self.places if self._begins.hold(place))
        self._origins = reach.files.origins
        self._changes: list[FileChange] = []

    def prepare_write(self, path: str, content: str) -> PreparedCall:
        data = encode("content", content)
        about = shown_text(self.places[0], content)
        plan = Plan("write", f"write {self.places[0]}: {describe_size(data)}", arguments=about)
        return self.prepared(plan, lambda: ToolOutput(_written_text(self.write(path, lambda *_: data, whole=True))))

    def prepare_edits(self, path: str, changes: tuple[Edit, ...]) -> PreparedCall:
        about = shown_text(self.places[0], json.encode(changes).decode())
        plan = Plan("edit", f"edit {self.places[0]}: {_counted(len(changes), 'replacement')}", arguments=about)

        def change(_: str, before: bytes | None) -> bytes:
            return apply_edits(path, decode(path, before or b""), changes).encode()

        return self.prepared(plan, lambda: ToolOutput(_edited_text(self.write(path, change, create=False))), shows=True)

    def prepare_delete(self, path: str) -> PreparedCall:
        """Prepares a deletion. Blocks."""
        before = self.read(path)
        if before is None:
            raise NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")
        about = {"path": self.places[0], "sha256": hashlib.sha256(before).hexdigest()}
        plan = Plan("delete", f"delete {self.places[0]}: {describe_size(before)}", arguments=about)
        return self.prepared(plan, lambda: ToolOutput(_deleted_text(self.delete(path, before, keep=True))))

    def prepared(
        self, plan: Plan, work: Callable[[], ToolOutput], moves: Mapping[str, str] = {}, *, shows: bool = False
    ) -> PreparedCall:
        """Returns the prepared call. `moves`: old paths by new ones; `shows`: the result shows file contents."""
        why = f"{self._instructions[0]} is read at the start of later sessions" if self._instructions else ""
        return PreparedCall(plan, partial(self._run_and_enter, work, moves, shows=shows), when_untrusted=why)

    def _check_links(self, path: str) -> None:
        """Checks links, because a diff and a backup would reveal the content of the replaced file."""
        seen = None
        with suppress(NotFound), self._boundary.steps(path) as place:
            seen = place.stat
        if seen is not None and stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
            with self._boundary.open_file(path):
                pass

    def read(self, path: str) -> bytes | None:
        """Returns the content of a writable file; None if there is none."""
        try:
            with self._boundary.open_file(path) as file:
                self._check(path, file.path)
                return file.read()
        except NotFound:
            return None

    def write(self, path: str, change: Change, *, create: bool = True, whole: bool = False) -> FileChange:
        backup, marked = "", False

        def keeping(place: str, before: bytes | None) -> bytes:
            nonlocal backup, marked
            after = change(place, before)
            if self._run.untrusted and is_note(place):
                after, marked = mark_new_lines(before, after), True
            backup = self._keep(place, before, after)
            return after

        mode = 0o600 if any(map(is_private, self.places)) else NEW_FILE
        written = rewrite(self._boundary, path, keeping, create=create, mode=mode, guard=partial(self._check, path))
        return self._note(FileChange(written, backup, whole or written.before is None, marked))

    def delete(self, path: str, expected: bytes, *, keep: bool = False) -> FileChange:
        """Deletes a file. `keep`: copies any file, not only a person's markdown."""
        backup = ""

        def check(place: str, before: bytes) -> None:
            nonlocal backup
            check_unchanged(path, before, expected)
            backup = self._keep(place, before, None, keep)

        gone = delete_file(self._boundary, path, check, guard=partial(self._check, path))
        return self._note(FileChange(gone, backup))

    def _note(self, change: FileChange) -> FileChange:
        self._changes.append(change)
        return change

    def _keep(self, place: str, before: bytes | None, after: bytes | None, always: bool = False) -> str:
        if before is None or not (always or is_owned(place)) or not loses(before, after):
            return ""
        return keep_backup(self._boundary, place, before, self._clock.now_ms())

    def _check(self, path: str, place: str) -> None:
        """Ensures that only planned files are written: a link created since then cannot redirect the write."""
        check_writing(self._run, self._reach, path, place)
        # Planned are the files and the folders that are created on the path to one.
        planned = any(f"{each}/".startswith(f"{place}/") for each in self._instructions)
        if self._run.untrusted and self._begins.hold(place) and not planned:
            raise WorkspaceError(f"{path} was replaced while it was being opened", hint="try again")

    async def _run_and_enter(
        self, work: Callable[[], ToolOutput], moves: Mapping[str, str], *, shows: bool
    ) -> ToolOutput:
        """Does the work in a thread. `moves`: old paths by new ones; `shows`: the result shows file contents."""
        before = await asyncio.to_thread(self._look)
        fresh = [path for path in self._intended() if self._origins.entry(path) is None]
        await self._origins.enter([self._new(path) for path in fresh])
        try:
            output = await asyncio.to_thread(work)
        except PalinurusError as error:
            await self._settle(fresh, before, moves)
            if not (shows and (before.outside or before.marked)):
                raise
            return _with_sources(failed(str(error)), before, before.marked)
        await self._settle(fresh, before, moves)
        marked = [each.written.path for each in self._changes if _shows_mark(each)]
        return _with_sources(output, before, marked) if shows else output

    def _look(self) -> FilesBefore:
        entered = {place for place in self.places if self._origins.is_held(self._boundary, place)}
        outside = tuple(place for place in self.places if place in entered or self._origins.kinds.has(place))
        return FilesBefore(outside, entered, tuple(filter(self._has_mark, self.places)))

    def _has_mark(self, place: str) -> bool:
        with suppress(PalinurusError):
            return is_private(place) and OUTSIDE_MARK.encode() in self._boundary.read_bytes(place)
        return False

    def _intended(self) -> list[str]:
        """Returns the files to record. Files that sessions start with are not among them: a person approved those."""
        places = self.places if self._run.untrusted else ()
        return [absolute(self._boundary, place) for place in places if not (self._begins.hold(place) or is_note(place))]

    def _new(self, path: str) -> FileOrigin:
        root = os.path.realpath(self._boundary.root)
        return FileOrigin(path, root, sources=named(self._run.suspects), at=self._clock.now_ms())

    async def _settle(self, fresh: list[str], before: FilesBefore, moves: Mapping[str, str]) -> None:
        entries, gone = await asyncio.to_thread(self._judge, before, moves)
        written = {absolute(self._boundary, each.written.path) for each in self._changes}
        await self._origins.enter(entries)
        await self._origins.clear([*gone, *(path for path in fresh if path not in written)])

    def _judge(self, before: FilesBefore, moves: Mapping[str, str]) -> tuple[list[FileOrigin], list[str]]:
        """Returns which files have text from outside from now on, and which no longer do."""
        entries: list[FileOrigin] = []
        gone: list[str] = []
        for each in self._changes:
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

    def _stays(self, each: FileChange, was: bool, moved: bool) -> bool:
        place = each.written.path
        if self._run.untrusted and not is_note(place):
            return not self._begins.hold(place)
        return (moved and not each.marked) or (was and not each.whole)


def check_unchanged(path: str, before: bytes | None, expected: bytes | None) -> None:
    if before != expected:
        raise WorkspaceError(f"{path} was changed by another program meanwhile", hint="read it again, then try again")


def shown_text(place: str, text: str) -> dict[str, Any]:
    """Returns what the plan shows of a text: enough to judge it, what is omitted, and a digest of all of it."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    left_out = {"notShown": f"the last {len(text) - MAX_PLANNED:,} characters"} if len(text) > MAX_PLANNED else {}
    return {"path": place, "text": text[:MAX_PLANNED], "sha256": digest, **left_out}


def _written_text(change: FileChange) -> str:
    done, after = change.written, describe_size(change.written.after)
    if done.before is None:
        return f"created {done.path}: {after}"
    if done.before == done.after:
        return f"{done.path} already has this content: {after}"
    return f"replaced {done.path}: {after}, before {describe_size(done.before)}{change.remarks}"


def _deleted_text(change: FileChange) -> str:
    return f"deleted {change.written.path}: {describe_size(change.written.before)}{change.remarks}"


def _edited_text(change: FileChange) -> str:
    before, after = ((data or b"").decode() for data in (change.written.before, change.written.after))
    return f"edited {change.written.path}{change.remarks}\n{difference(before, after)}"


def describe_size(data: bytes | None) -> str:
    data = data or b""
    lines = data.count(b"\n") + (not data.endswith(b"\n") if data else 0)
    return f"{_counted(lines, 'line')}, {_counted(len(data), 'byte')}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _with_sources(output: ToolOutput, before: FilesBefore, marked: Iterable[str]) -> ToolOutput:
    shown = (f"{'written' if place in before.entered else 'file'}:{place}" for place in before.outside)
    sources = tuple(dict.fromkeys((*shown, *(f"written:{place}" for place in marked))))
    return structs.replace(output, origin=Origin.OUTSIDE, sources=sources) if sources else output


def _shows_mark(change: FileChange) -> bool:
    """Returns whether the diff shows memory lines marked as from outside."""
    before, after = (_text(data or b"") for data in (change.written.before, change.written.after))
    return is_private(change.written.path) and is_marked(change.written.path, changed_lines(before, after))


def mark_new_lines(before: bytes | None, after: bytes) -> bytes:
    """Returns the text with a mark on each new line, because an untrusted run wrote it among the owner's."""
    known = Counter(map(str.strip, _text(before or b"").splitlines()))
    marked = "".join(_marked(line, known) for line in _text(after).splitlines(keepends=True))
    return marked.encode("utf-8", "surrogateescape")


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
