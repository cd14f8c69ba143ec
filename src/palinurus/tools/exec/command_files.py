"""Whether a command has read files that hold text from outside, and which files it has changed after that.

A command reads what it likes, so there are two looks. Before it starts: do its words name such a file, a folder that
holds one, or a glob that matches one? And at what it wrote: is a whole line of it in such a file of the workspace?
What an untrusted run's command has changed is found by a walk over the workspace and entered: see file_origins.py.
All of it is bounded, happens in threads, and the second walk only when there is something to enter.
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
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.domain.tool import ToolRun
from palinurus.tools.exec.call import Call
from palinurus.tools.exec.walk import Walk
from palinurus.tools.files.ledger import is_note
from palinurus.workspace.file_origins import MAX_SOURCES, FileOrigin, FileOrigins, looked_at_all, named
from palinurus.workspace.instructions import INSTRUCTIONS

MAX_WORDS = 200
SHORTEST_LINE = 20  # characters: shorter ones are in many files by chance
MAX_COMPARED = 64  # files, the newest ones
MAX_READ = 256 * 1024  # bytes of each
MAX_NOTE = 2 * 1024 * 1024
MAX_READ_TOGETHER = 4 * 1024 * 1024
MAX_LOOKED_AT = 5_000  # entries of the workspace, for files to compare with
MAX_WALKED = 200_000  # the same for files that were changed
MAX_CHANGED = 1_000  # files that are entered one by one
MAX_FOLDERS = 200
NOTES = "file:memory/"
COARSE = 5  # CLOCK_REALTIME_COARSE of Linux, which the module time does not name
TICK_NS = 50_000_000

_HISTORY = frozenset(
    ("log", "show", "diff", "blame", "annotate", "cat-file", "grep", "whatchanged", "format-patch", "archive", "stash")
)  # what git prints old content with
_WORD = re.compile(r"[^\s|&;<>()$`\"'=:,]+")
_PREFIX = re.compile(r"^[^:\t]{0,300}[:\t]")  # as grep and cat -n put them before a line


class Surroundings(Struct, frozen=True):
    """Where a command runs."""

    workspace: str  # links followed
    cwd: str


class CommandFiles:
    """Of one command."""

    def __init__(
        self, origins: FileOrigins, run: ToolRun, call: Call, around: Surroundings, clock: Clock, *, fetches: bool
    ) -> None:
        self._origins = origins
        self._run = run
        self._words = _words(call)
        self._root = around.workspace
        self._cwd = around.cwd
        self._clock = clock
        self._since = _file_time()
        self._named: tuple[str, ...] = ()
        self._entered: set[tuple[str, int]] = set()  # paths with their times of change
        self.tainted = run.untrusted or fetches  # whether what it writes may be text from outside
        self.heard = run.untrusted, named(run.suspects)  # what the run that started it had read

    async def look(self) -> None:
        """Before it starts."""
        self._named = await asyncio.to_thread(lambda: tuple(dict.fromkeys(self._names())))
        self.tainted = self.tainted or bool(self._named)
        self._since = _file_time()
        self._watch()

    async def sources(self, text: str) -> tuple[str, ...]:
        """Where what it wrote comes from, as far as that is outside and the files of the workspace tell."""
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
        """It has ended, and what it has changed is entered before anybody hears so."""
        await self.enter()
        self.leave()  # what could not be entered is watched as long as this process lives

    def leave(self) -> None:
        self._origins.unwatch(self)

    async def enter(self) -> None:
        """Enter what it has changed since it started, when that may be text from outside."""
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
        """A history holds what files held, also of those that are gone."""
        folder = self._cwd
        while folder != self._root and not os.path.lexists(f"{folder}/.git") and len(folder) > len(self._root):
            folder = os.path.dirname(folder)  # noqa: PTH120
        for each in self._origins.below(folder)[:MAX_SOURCES]:
            yield self._source(each.path)

    def _path(self, word: str) -> str:
        if word.startswith("~/") and os.path.lexists(home := f"{self._root}{word[1:]}"):  # in a sandbox it is home
            return os.path.realpath(home)
        return os.path.realpath(os.path.join(self._cwd, os.path.expanduser(word)))  # noqa: PTH111, PTH118

    def _source(self, path: str) -> str:
        return self._origins.name_source(path, self._place(path))

    def _is_outside(self, path: str) -> bool:
        place = self._place(path)
        return self._origins.kinds.has(place) or self._origins.is_held_at(path) or self._is_marked(path)

    def _is_marked(self, path: str) -> bool:
        """A note with lines that say they are from outside: a command may show them without their ends."""
        return is_note(self._place(path)) and OUTSIDE_MARK.encode() in _beginning(path, MAX_NOTE)

    def _notes(self) -> list[str]:
        """The newest notes that are so marked."""
        walk = Walk(os.path.join(self._root, "memory"), MAX_LOOKED_AT, hidden=False)  # noqa: PTH118
        newest = sorted((each.path for each in walk.files()), key=_newest)[:MAX_COMPARED]
        return [path for path in newest if self._is_marked(path)]

    def _in_folder(self, path: str) -> Iterator[str]:
        """What such a folder holds. The whole workspace does not count: there the lines are compared."""
        if path == self._root or self._root.startswith(f"{path.rstrip('/')}/"):
            return
        if self._origins.kinds.has_folder(place := self._place(path)) or self._origins.is_entered(path):
            yield f"{self._source(path)}/"
        for each in self._origins.below(path)[:MAX_SOURCES]:
            yield self._source(each.path)
        if f"{place}/".startswith("memory/"):
            yield from (f"file:{self._place(each)}" for each in self._notes())

    def _matching(self, word: str) -> Iterator[str]:
        """A glob; its `*` stands for slashes as well here, which is the safe side."""
        base = f"{self._place(self._cwd)}/" if self._cwd != self._root else ""
        wanted = word.removeprefix("./")
        for path in (*self.suspects, *self._notes()):
            place = self._place(path)
            names = (place, place.removeprefix(base), os.path.basename(place), path)  # noqa: PTH119
            if any(fnmatchcase(name, wanted) for name in names):
                yield self._source(path)

    def _elsewhere(self, word: str) -> Iterator[str]:
        """A name that is not here may be one in a folder that the command goes to first, or behind a variable."""
        name = os.path.basename(word)  # noqa: PTH119
        notes = self._notes() if name.casefold().endswith(".md") else ()
        for path in (*self.suspects, *notes) if name else ():
            if os.path.basename(path) == name:  # noqa: PTH119
                yield self._source(path)

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        """Files of the workspace that hold text from outside, as they were before it started."""
        return tuple(self._suspects())

    def _shared(self, text: str) -> Iterator[str]:
        if OUTSIDE_MARK in text and self._run.private:
            yield NOTES
        lines = set(_comparable(text))
        if not lines:
            return
        room = MAX_READ_TOGETHER
        for path in sorted(self._suspects(), key=_newest)[:MAX_COMPARED]:
            if room <= 0:
                return
            data = _beginning(path, min(MAX_READ, room))
            room -= len(data)
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
        held = (each.path for each in Walk(self._root, MAX_LOOKED_AT, hidden=False).files())
        found |= {path: None for path in held if self._origins.is_held_at(path)}
        return found | {each.path: None for each in self._origins.below(self._root) if not each.is_folder}

    # -- what it changed ----------------------------------------------------------------------------------------------

    def _changed(self) -> list[FileOrigin]:
        walk = Walk(self._root, MAX_WALKED, hidden=True)
        changed = [path for path, at in self._new_files(walk) if not INSTRUCTIONS.hold(self._place(path))]
        folders = list(walk.left)
        if len(changed) > MAX_CHANGED:
            above = dict.fromkeys(map(os.path.dirname, changed))
            folders += above if len(above) <= MAX_FOLDERS else dict.fromkeys(map(self._top, changed))
            changed = []
        if len(folders) > MAX_FOLDERS:
            folders = list(dict.fromkeys(map(self._top, folders)))
        now, sources = self._clock.now_ms(), self._named or named(self._run.suspects)
        entries = [FileOrigin(path, self._root, sources=sources, at=now) for path in changed]
        return [
            *looked_at_all(entries),
            *(FileOrigin(path, self._root, sources=sources, at=now, is_folder=True) for path in folders),
        ]

    def _new_files(self, walk: Walk) -> Iterator[tuple[str, int]]:
        """Those that changed and were not entered as they are now."""
        for entry in walk.files():
            with suppress(OSError):
                seen = entry.stat(follow_symlinks=False)
                if seen.st_ctime_ns >= self._since and (key := (entry.path, seen.st_ctime_ns)) not in self._entered:
                    self._entered.add(key)
                    yield key

    def _top(self, path: str) -> str:
        """The folder directly in the workspace that holds it; a file that lies there is itself."""
        return os.path.join(self._root, self._place(path).split("/", 1)[0])  # noqa: PTH118

    def _place(self, path: str) -> str:
        return path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else path


def _file_time() -> int:
    """Now, by the clock that file systems take the times of files from: it is up to a tick behind the other."""
    return time.clock_gettime_ns(COARSE) if sys.platform == "linux" else time.time_ns() - TICK_NS


def _words(call: Call) -> tuple[str, ...]:
    """What may be a name: the words as a shell has them, and the same without quotes and signs."""
    text = " ".join(call.argv) if call.argv else call.command
    found = dict.fromkeys(call.argv)
    with suppress(ValueError):
        found |= dict.fromkeys(shlex.split(text))
    found |= dict.fromkeys(word.replace("\\", "") for word in _WORD.findall(text))
    return tuple(islice((word for word in found if word and len(word) < 4096), MAX_WORDS))


def _comparable(text: str) -> Iterable[str]:
    """The lines of an output, also without what grep, cat -n or diff put before them."""
    for line in text.splitlines():
        yield from (each for each in _variants(line) if len(each) >= SHORTEST_LINE)


def _variants(line: str) -> tuple[str, ...]:
    once = _PREFIX.sub("", line, count=1)
    return line.strip(), line[1:].strip(), once.strip(), _PREFIX.sub("", once, count=1).strip()


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
