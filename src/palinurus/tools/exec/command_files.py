"""Finds out whether a command has read files with text from outside, and which files it changed after that.

A command can read any file, so there are two checks. Before the start: do its words name such a file, a folder with
one, or a glob that matches one? After the end: is a complete line of its output in such a file of the workspace? Files
changed by a command of an untrusted run are found by a walk over the workspace and recorded: see file_origins.py. All
of it is bounded and runs in threads; the second walk happens only if there is something to record.
"""

from __future__ import annotations

import asyncio
import glob
import os
import re
import shlex
import stat
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice

from palinurus.domain.clock import Clock
from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.domain.tool import ToolRun
from palinurus.tools.commands.shell import Argv, name_set
from palinurus.tools.files.reach import is_note
from palinurus.workspace.file_origins import MAX_SOURCES, FileOrigin, FileOrigins, looked_at_all, named
from palinurus.workspace.instructions import INSTRUCTIONS

SECONDS = 5.0
_CLOSED = frozenset({".git", ".pal"})  # folders of ours and of git
MAX_WORDS = 200
SHORTEST_LINE = 20  # characters: shorter lines occur in many files by chance
MAX_COMPARED = 64  # files, the newest ones
MAX_READ = 256 * 1024  # bytes of each
MAX_NOTE = 2 * 1024 * 1024
MAX_READ_TOGETHER = 4 * 1024 * 1024
MAX_LOOKED_AT = 5_000  # entries of the workspace that are searched for files to compare
MAX_WALKED = 200_000  # the same limit for changed files
MAX_CHANGED = 1_000  # files that are recorded one by one
MAX_FOLDERS = 200
NOTES = "file:memory/"
COARSE = 5  # CLOCK_REALTIME_COARSE of Linux, which the time module does not define
TICK_NS = 50_000_000
# git commands that print old content
_HISTORY = name_set("log show diff blame annotate cat-file grep whatchanged format-patch archive stash")
_WORD = re.compile(r"[^\s|&;<>()$`\"'=:,]+")
_PREFIX = re.compile(r"^[^:\t]{0,300}[:\t]")  # prefixes that grep and cat -n put before a line


class FileWalk:
    """A bounded walk over the files of a folder, upper levels first. It does not follow links or enter `.git`."""

    def __init__(self, root: str, most: int, *, hidden: bool) -> None:
        self._most = most
        self._hidden = hidden
        self.left: deque[str] = deque([root])  # folders that were not walked completely

    def files(self) -> Iterator[os.DirEntry[str]]:
        until = time.monotonic() + SECONDS
        while self.left:
            folder = self.left[0]
            try:
                with os.scandir(folder) as scan:
                    for entry in scan:
                        self._most -= 1
                        if self._most < 0 or time.monotonic() > until:
                            return
                        if entry.is_symlink():
                            continue
                        if not entry.is_dir():
                            yield entry
                        elif entry.name not in _CLOSED and (self._hidden or not entry.name.startswith(".")):
                            self.left.append(entry.path)
            except OSError:  # it was removed or cannot be read: nothing can be found there
                pass
            self.left.popleft()


class CommandFiles:
    """The files of one command. `words` are the words that may name a file."""

    def __init__(
        self, origins: FileOrigins, run: ToolRun, words: Argv, clock: Clock, workspace: str, cwd: str, *, fetches: bool
    ) -> None:
        self._origins = origins
        self._run = run
        self._words = words
        self._root = os.path.realpath(workspace)
        self._cwd = os.path.realpath(cwd)
        self._clock = clock
        self._since = _file_time()
        self._named: tuple[str, ...] = ()
        self._entered: set[tuple[str, int]] = set()  # paths with their modification times
        self.tainted = run.untrusted or fetches  # whether its output may contain text from outside
        self.run_sources = run.untrusted, named(run.suspects)  # what the run had read when it started the command

    async def look(self) -> None:
        """Looks for named files before the start."""
        self._named = await asyncio.to_thread(lambda: tuple(dict.fromkeys(self._names())))
        self.tainted = self.tainted or bool(self._named)
        self._since = _file_time()
        self._watch()

    async def sources(self, text: str) -> tuple[str, ...]:
        """Returns the outside sources of its output, as far as the files of the workspace show them."""
        if not text.strip():
            return ()
        found = self._named or await asyncio.to_thread(lambda: tuple(dict.fromkeys(self._shared(text))))
        if found and not self.tainted:
            self.tainted = True
            self._watch()
            await self.enter()
        return found

    def _watch(self) -> None:
        if self.tainted:
            self._origins.watch(self, self._root, self._since)

    async def end(self) -> None:
        """Records what the ended command has changed, before its end is reported."""
        await self.enter()
        self.leave()  # changes that could not be recorded are watched while this process runs

    def leave(self) -> None:
        self._origins.unwatch(self)

    async def enter(self) -> None:
        """Records what it has changed since its start, if that may be text from outside."""
        if self.tainted:
            await self._origins.enter(await asyncio.to_thread(self._changed))

    # -- what it read -------------------------------------------------------------------------------------------------

    def _names(self) -> Iterator[str]:
        for word in self._words:
            path = self._path(word)
            if os.path.isdir(path):  # noqa: PTH112
                yield from self._in_folder(path)
            elif os.path.lexists(path):
                if self._is_outside(path):
                    yield self._source(path)
            elif glob.has_magic(word):
                yield from self._matching(word)
            elif "/" in word or "." in word or not self._origins.is_empty:
                yield from self._elsewhere(word)
        if "git" in map(os.path.basename, self._words) and not _HISTORY.isdisjoint(self._words):
            yield from self._in_repository()

    def _in_repository(self) -> Iterator[str]:
        """Whether it prints repository history, which contains earlier content, also of deleted files."""
        folder = self._cwd
        while folder != self._root and not os.path.lexists(f"{folder}/.git") and len(folder) > len(self._root):
            folder = os.path.dirname(folder)  # noqa: PTH120
        for each in self._origins.below(folder)[:MAX_SOURCES]:
            yield self._source(each.path)

    def _path(self, word: str) -> str:
        if word.startswith("~/") and os.path.lexists(home := f"{self._root}{word[1:]}"):  # the home in a sandbox
            return os.path.realpath(home)
        return os.path.realpath(os.path.join(self._cwd, os.path.expanduser(word)))  # noqa: PTH111, PTH118

    def _source(self, path: str) -> str:
        return self._origins.name_source(path, self._place(path))

    def _is_outside(self, path: str) -> bool:
        place = self._place(path)
        return self._origins.kinds.has(place) or self._origins.is_held_at(path) or self._is_marked(path)

    def _is_marked(self, path: str) -> bool:
        """Whether a note has lines marked as from outside: a command may print them without their marks."""
        return is_note(self._place(path)) and OUTSIDE_MARK.encode() in _beginning(path, MAX_NOTE)

    def _notes(self) -> list[str]:
        """Returns the newest notes that have such marks."""
        walk = FileWalk(os.path.join(self._root, "memory"), MAX_LOOKED_AT, hidden=False)  # noqa: PTH118
        newest = sorted((each.path for each in walk.files()), key=_newest)[:MAX_COMPARED]
        return [path for path in newest if self._is_marked(path)]

    def _in_folder(self, path: str) -> Iterator[str]:
        """Returns the marked files in a named folder. The workspace itself does not count: there the lines are
        compared."""
        if path == self._root or self._root.startswith(f"{path.rstrip('/')}/"):
            return
        if self._origins.kinds.has_folder(place := self._place(path)) or self._origins.is_entered(path):
            yield f"{self._source(path)}/"
        for each in self._origins.below(path)[:MAX_SOURCES]:
            yield self._source(each.path)
        if f"{place}/".startswith("memory/"):
            yield from (f"file:{self._place(each)}" for each in self._notes())

    def _matching(self, word: str) -> Iterator[str]:
        """Returns the files that a glob matches; its `*` also matches slashes here, which is the safe side."""
        base = f"{self._place(self._cwd)}/" if self._cwd != self._root else ""
        wanted = word.removeprefix("./")
        for path in (*self.suspects, *self._notes()):
            place = self._place(path)
            names = (place, place.removeprefix(base), os.path.basename(place), path)  # noqa: PTH119
            if any(fnmatchcase(name, wanted) for name in names):
                yield self._source(path)

    def _elsewhere(self, word: str) -> Iterator[str]:
        """Resolves a name that does not exist here: it may be in a folder that the command enters, or behind a
        variable."""
        name = os.path.basename(word)  # noqa: PTH119
        notes = self._notes() if name.casefold().endswith(".md") else ()
        for path in (*self.suspects, *notes) if name else ():
            if os.path.basename(path) == name:  # noqa: PTH119
                yield self._source(path)

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        """Returns the workspace files with text from outside, as they were before the start."""
        return tuple(self._suspects())

    def _shared(self, text: str) -> Iterator[str]:
        if OUTSIDE_MARK in text and self._run.private:
            yield NOTES
        lines, left = set(_comparable(text)), MAX_READ_TOGETHER
        for path in sorted(self._suspects(), key=_newest)[:MAX_COMPARED] if lines else ():
            if left <= 0:
                return
            data = _beginning(path, min(MAX_READ, left))
            left -= len(data)
            held = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
            if not lines.isdisjoint(line for line in held if len(line) >= SHORTEST_LINE):
                yield self._source(path)
            elif self._has_told_name(path, lines):
                yield f"file:{os.path.dirname(self._place(path))}/"  # noqa: PTH120

    def _has_told_name(self, path: str, lines: set[str]) -> bool:
        place = self._place(path)
        if not self._origins.kinds.has_folder(os.path.dirname(place)):  # noqa: PTH120
            return False
        return os.path.basename(path) in lines or place in lines or f"./{place}" in lines  # noqa: PTH119

    def _suspects(self) -> dict[str, None]:
        found = dict.fromkeys(self._origins.kind_files.below(self._root, MAX_LOOKED_AT))
        if self._origins.is_empty:
            return found
        held = (each.path for each in FileWalk(self._root, MAX_LOOKED_AT, hidden=False).files())
        found |= {path: None for path in held if self._origins.is_held_at(path)}
        return found | {each.path: None for each in self._origins.below(self._root) if not each.is_folder}

    # -- what it changed ----------------------------------------------------------------------------------------------

    def _changed(self) -> list[FileOrigin]:
        walk = FileWalk(self._root, MAX_WALKED, hidden=True)
        changed = [path for path, at in self._new_files(walk) if not INSTRUCTIONS.hold(self._place(path))]
        folders = list(walk.left)
        if len(changed) > MAX_CHANGED:
            parents = dict.fromkeys(map(os.path.dirname, changed))
            folders += parents if len(parents) <= MAX_FOLDERS else dict.fromkeys(map(self._top, changed))
            changed = []
        if len(folders) > MAX_FOLDERS:
            folders = list(dict.fromkeys(map(self._top, folders)))
        now, sources = self._clock.now_ms(), self._named or named(self._run.suspects)
        entries = [FileOrigin(path, self._root, sources=sources, at=now) for path in changed]
        above = [FileOrigin(path, self._root, sources=sources, at=now, is_folder=True) for path in folders]
        return [*looked_at_all(entries), *above]

    def _new_files(self, walk: FileWalk) -> Iterator[tuple[str, int]]:
        """Returns changed files that are not recorded with their current content."""
        for entry in walk.files():
            with suppress(OSError):
                seen = entry.stat(follow_symlinks=False)
                if seen.st_ctime_ns >= self._since and (key := (entry.path, seen.st_ctime_ns)) not in self._entered:
                    self._entered.add(key)
                    yield key

    def _top(self, path: str) -> str:
        """Returns the top-level folder of the workspace that contains it; a top-level file is itself."""
        return os.path.join(self._root, self._place(path).split("/", 1)[0])  # noqa: PTH118

    def _place(self, path: str) -> str:
        return path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else path


def _file_time() -> int:
    """Returns the time by the clock that file systems use: it is up to one tick behind the normal clock."""
    return time.clock_gettime_ns(COARSE) if sys.platform == "linux" else time.time_ns() - TICK_NS


def command_words(command: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the words that may be names: as a shell splits them, and without quotes and punctuation."""
    text = " ".join(argv) if argv else command
    found = dict.fromkeys(argv)
    with suppress(ValueError):
        found |= dict.fromkeys(shlex.split(text))
    found |= dict.fromkeys(word.replace("\\", "") for word in _WORD.findall(text))
    return tuple(islice((word for word in found if word and len(word) < 4096), MAX_WORDS))


def _comparable(text: str) -> Iterable[str]:
    """Returns the lines of an output, also without the prefixes of grep, cat -n and diff."""
    for line in text.splitlines():
        once = _PREFIX.sub("", line, count=1)
        variants = map(str.strip, (line, line[1:], once, _PREFIX.sub("", once, count=1)))
        yield from (each for each in variants if len(each) >= SHORTEST_LINE)


def _beginning(path: str, most: int) -> bytes:
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return file.read(most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    return b""


def _newest(path: str) -> int:
    with suppress(OSError):
        return -os.lstat(path).st_mtime_ns
    return 0
