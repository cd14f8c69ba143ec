"""Guarded opens: every path is walked inside one root, and the descriptor that was checked is the one used.

A path is resolved here and not by the kernel: component by component, each directory held open, `..` and links
answered from the descriptors already held. A link is followed as long as it stays inside; nothing that happens to
the tree meanwhile can make the walk leave it, because no step ever looks a whole path up again. Only regular files
are opened, without blocking, so that a FIFO or a device put in a file's place can neither hang nor act; and of those
none that is a name for something outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.links import OUTSIDE_NAME, leads_out
from palinurus.workspace.steps import Guard, Place, anything, steps, told

MAX_BYTES = 2 * 1024 * 1024
MAX_WRITTEN = 5_000  # paths that wait for somebody to ask for them
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OpenFile(NamedTuple):
    """A regular file inside the root, open for reading. `path` is where it really is, relative to the root."""

    fd: int
    path: str
    stat: os.stat_result

    def read(self, limit: int = MAX_BYTES) -> bytes:
        """The whole content. Raises WorkspaceError when it is over the limit, whatever its size was said to be."""
        _check_size(self.path, self.stat.st_size, limit)
        pieces: list[bytes] = []
        size = 0
        while piece := os.read(self.fd, limit + 1 - size):
            pieces.append(piece)
            size += len(piece)
            _check_size(self.path, size, limit)
        return b"".join(pieces)


class Entry(Struct, frozen=True):
    name: str
    is_directory: bool


class Listing(Struct, frozen=True):
    """One directory, sorted by name. `complete` is False when there were more entries than were asked for."""

    path: str
    entries: tuple[Entry, ...]
    complete: bool


class Found(Struct, frozen=True, order=True):
    """A regular file or a directory, as the walk met it."""

    path: str
    is_directory: bool
    modified_ns: int


class Walked(Struct, frozen=True):
    """What lies under a directory, in path order. `complete` is False when a bound cut the walk short."""

    found: tuple[Found, ...]
    complete: bool

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(each.path for each in self.found if not each.is_directory)


class Boundary:
    """All access to one workspace. Holds no descriptor between calls, so a workspace may be moved or remade."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 — resolve() would hide the name the owner knows
        self._written: set[str] = set()

    @contextmanager
    def steps(self, path: str, *, make_parents: bool = False, guard: Guard = anything) -> Iterator[Place]:
        """The walk to a path: see steps.py. Everything that touches a file of the workspace begins here."""
        with steps(self.root, path, make_parents=make_parents, guard=guard) as place:
            yield place

    def holding(self, path: str) -> Boundary:
        """The boundary of the folder that really has a path: this one, unless a workspace is made of two."""
        return self

    def note_written(self, path: str) -> None:
        """A file was made, changed or deleted through us: whoever keeps a history asks which."""
        if len(self._written) < MAX_WRITTEN:
            self._written.add(path)

    def take_written(self) -> set[str]:
        """The paths since they were last taken. Safe while others write."""
        taken: set[str] = set()
        with suppress(KeyError):
            while True:
                taken.add(self._written.pop())
        return taken

    @contextmanager
    def open_file(self, path: str) -> Iterator[OpenFile]:
        """Open a regular file for reading. Raises NotFound, OutsideWorkspace or WorkspaceError."""
        with self.steps(path) as place, told(path):
            _check_regular(path, place.stat)
            fd = os.open(place.name, READ, dir_fd=place.directory)
            try:
                found = os.fstat(fd)
                _check_regular(path, found)
                self.check_links(place.path, fd)
                yield OpenFile(fd, place.path, found)
            finally:
                os.close(fd)

    def check_links(self, place: str, fd: int) -> None:
        """Raises WorkspaceError for a file that has names outside: see links.py. `place` is where it really lies."""
        for _ in range(2):  # a file of ours has two names for a moment while it is made: see write.py
            if not leads_out(self.holding(place).root, place, os.fstat(fd)):
                return
        raise WorkspaceError(f"{place} {OUTSIDE_NAME}", hint="if it belongs here, put a copy in its place")

    def read_bytes(self, path: str) -> bytes:
        with self.open_file(path) as file:
            return file.read()

    def stat_names(self, names: tuple[str, ...]) -> tuple[os.stat_result | None, ...]:
        """What lies directly in the root under these names, links not followed; None for nothing. One cheap look."""
        with self.steps(".") as place:
            return tuple(_look(name, place.directory) for name in names)

    def is_directory(self, path: str) -> bool:
        """Whether the path, links inside followed, is a directory. Raises as `open_file` does."""
        with self.steps(path) as place:
            if place.stat is None:
                raise NotFound(f"there is no {path} in the workspace", hint="list the directory to see what is there")
            return stat.S_ISDIR(place.stat.st_mode)

    def list_directory(self, path: str = ".", *, max_entries: int = 2_000) -> Listing:
        with self.steps(path) as place, told(path), _directory(place, path) as fd, os.scandir(fd) as scan:
            found = [Entry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(scan, max_entries + 1)]
        found.sort(key=lambda entry: entry.name)
        return Listing(place.path, tuple(found[:max_entries]), complete=len(found) <= max_entries)

    def walk(self, path: str = ".", *, hidden: bool = False, max_files: int = 5_000, max_depth: int = 16) -> Walked:
        """The regular files and directories under `path`. Links are not followed; `.git` is never entered."""
        with self.steps(path) as place, told(path), _directory(place, path) as fd:
            walk = _Walk(hidden, max_files)
            walk.enter(fd, "" if place.path == "." else f"{place.path}/", max_depth)
        return Walked(tuple(sorted(walk.found)), walk.complete)


class _Walk:
    """A bounded descent; the bound on looked-at entries keeps a huge directory from costing more than a moment."""

    def __init__(self, hidden: bool, max_files: int) -> None:
        self.hidden = hidden
        self.room = max_files
        self.looks = max_files * 4
        self.files = 0
        self.found: list[Found] = []
        self.complete = True

    def enter(self, fd: int, prefix: str, depth: int) -> None:
        with os.scandir(fd) as scan:
            entries = sorted(islice(scan, self.looks), key=lambda entry: entry.name)
            self.looks -= len(entries)
            self.complete = self.complete and next(scan, None) is None
        for entry in entries:
            if self.files >= self.room:
                self.complete = False
                return
            if entry.name == ".git" or (entry.name.startswith(".") and not self.hidden):
                continue
            self._take(fd, entry, prefix, depth)

    def _take(self, fd: int, entry: os.DirEntry[str], prefix: str, depth: int) -> None:
        # The entry is looked up from the open directory again: scandir's own answer came from before.
        found = _look(entry.name, fd)
        if found is None:
            return
        if stat.S_ISREG(found.st_mode):
            self.files += 1
            self.found.append(Found(prefix + entry.name, False, found.st_mtime_ns))
        elif stat.S_ISDIR(found.st_mode):
            self.found.append(Found(prefix + entry.name, True, found.st_mtime_ns))
            if depth <= 0:
                self.complete = False
                return
            try:
                below = os.open(entry.name, DIRECTORY, dir_fd=fd)
            except OSError:  # unreadable, or replaced a moment ago: the rest of the walk is still worth having
                self.complete = False
                return
            try:
                self.enter(below, f"{prefix}{entry.name}/", depth - 1)
            finally:
                os.close(below)


@contextmanager
def _directory(place: Place, path: str) -> Iterator[int]:
    if place.stat is None:
        raise NotFound(f"there is no directory {path} in the workspace", hint="list its parent to see what is there")
    if not stat.S_ISDIR(place.stat.st_mode):
        raise WorkspaceError(f"{path} is a file, not a directory", hint="read it instead")
    # `.` opens the root itself; a name opens the entry, and only if it is still the directory that was seen.
    fd = os.open(place.name or ".", DIRECTORY, dir_fd=place.directory)
    try:
        yield fd
    finally:
        os.close(fd)


def _look(name: str, directory: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


def _check_regular(path: str, found: os.stat_result | None) -> None:
    if found is None:
        raise NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")
    if stat.S_ISDIR(found.st_mode):
        raise WorkspaceError(f"{path} is a directory, not a file", hint="list it instead")
    if not stat.S_ISREG(found.st_mode):
        raise WorkspaceError(f"{path} is not a regular file", hint="only plain files are read")


def _check_size(path: str, size: int, limit: int) -> None:
    if size > limit:
        raise WorkspaceError(
            f"{path} has {size:,} bytes; a workspace file may have {limit:,}", hint="split it into smaller files"
        )
