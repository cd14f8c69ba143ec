"""Guarded opens: every path is resolved inside one root, and the descriptor that was checked is the one used.

A path is resolved here and not by the kernel: component by component, each directory held open, `..` and links
resolved from the descriptors already held. A link is followed as long as it stays inside; no change to the tree can
make the walk leave it, because no step looks a whole path up again. Only regular files are opened, without blocking,
so a FIFO or a device in a file's place can neither hang nor act; and no file that has another name outside.

A workspace may consist of two folders: that of a sandbox, and in it what stays the agent's own. A sandboxed session
without access to the agent's workspace has its own folder. What the owner has told the agent (MEMORY.md, USER.md,
memory/) is in no copy: under those names the owner's sessions see the agent's own files. Each path leads to the
folder that has it; a link never leads from one folder into the other's files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.steps import (
    OUTSIDE_NAME,
    Guard,
    ResolvedPath,
    anything,
    leads_out,
    look_up,
    no_file,
    opened,
    outside,
    path_errors,
    steps,
)

MAX_BYTES = 2 * 1024 * 1024
MAX_WRITTEN = 5_000  # written paths that were not yet taken
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MEMORY_FILES = ("MEMORY.md", "USER.md")
MEMORY_DIRECTORY = "memory"
_ROOT_NAMES = frozenset({*(name.casefold() for name in MEMORY_FILES), MEMORY_DIRECTORY})
_BACKUPS = [".pal", "backups"]
Belongs = Callable[[str], bool]
"""Whether a path from the root belongs to the agent. True for a folder exactly if it is true for everything in it."""
# Folders of a workspace that skills are read from (skills/discovery.py) and that instructions.py therefore guards.
SKILLS, PROJECT_SKILLS = "skills", ".agents/skills"


class OpenFile(NamedTuple):
    """A regular file inside the root, open for reading. `path` is where it really is, relative to the root."""

    fd: int
    path: str
    stat: os.stat_result

    def read(self, limit: int = MAX_BYTES) -> bytes:
        """The whole content. Raises WorkspaceError if it exceeds the limit, whatever size was reported."""
        _check_size(self.path, self.stat.st_size, limit)
        with os.fdopen(self.fd, "rb", closefd=False) as file:
            data = file.read(limit + 1)
        _check_size(self.path, len(data), limit)
        return data


class Entry(Struct, frozen=True):
    name: str
    is_directory: bool


class DirectoryListing(Struct, frozen=True):
    """One directory, sorted by name. `complete` is False if there were more entries than requested."""

    path: str
    entries: tuple[Entry, ...]
    complete: bool


class WalkEntry(Struct, frozen=True, order=True):
    """A regular file or a directory found by the walk."""

    path: str
    is_directory: bool
    modified_ns: int


class WalkResult(Struct, frozen=True):
    """The entries under a directory, in path order. `complete` is False if a limit ended the walk."""

    found: tuple[WalkEntry, ...]
    complete: bool

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(each.path for each in self.found if not each.is_directory)


class Boundary:
    """All access to one workspace. Holds no descriptor between calls, so a workspace may be moved or recreated."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 — resolve() would hide the name the owner knows
        self._written: set[str] = set()

    @contextmanager
    def steps(self, path: str, *, make_parents: bool = False, guard: Guard = anything) -> Iterator[ResolvedPath]:
        """The walk to a path: see steps.py. Every access to a file of the workspace starts here."""
        with steps(self.root, path, make_parents=make_parents, guard=guard) as place:
            yield place

    def holding(self, path: str) -> Boundary:
        """The boundary of the folder that holds a path: this one, unless a workspace consists of two."""
        return self

    def note_written(self, path: str) -> None:
        """Records that a file was created, changed or deleted through us; the history reads these paths."""
        if len(self._written) < MAX_WRITTEN:
            self._written.add(path)

    def take_written(self) -> set[str]:
        """Returns the paths recorded since the last call. Safe while others write."""
        taken: set[str] = set()
        with suppress(KeyError):
            while True:
                taken.add(self._written.pop())
        return taken

    @contextmanager
    def open_file(self, path: str) -> Iterator[OpenFile]:
        """Open a regular file for reading. Raises NotFound, OutsideWorkspace or WorkspaceError."""
        with self.steps(path) as place, path_errors(path):
            check_regular(path, place.stat)
            with opened(place.name, READ, place.directory) as fd:
                found = os.fstat(fd)
                check_regular(path, found)
                self.check_links(place.path, fd)
                yield OpenFile(fd, place.path, found)

    def check_links(self, place: str, fd: int) -> None:
        """Raises WorkspaceError for a file with names outside: see steps.py. `place` is its path after links."""
        for _ in range(2):  # our own new file has two names for a moment: see write.py
            if not leads_out(self.holding(place).root, place, os.fstat(fd)):
                return
        raise WorkspaceError(f"{place} {OUTSIDE_NAME}", hint="if it belongs here, put a copy in its place")

    def read_bytes(self, path: str) -> bytes:
        with self.open_file(path) as file:
            return file.read()

    def stat_names(self, names: tuple[str, ...]) -> tuple[os.stat_result | None, ...]:
        """Stats of these names in the root, links not followed; None if missing."""
        with self.steps(".") as place:
            return tuple(look_up(name, place.directory) for name in names)

    def is_directory(self, path: str) -> bool:
        """Whether the path, links inside followed, is a directory. Raises as `open_file` does."""
        with self.steps(path) as place:
            if place.stat is None:
                raise NotFound(f"there is no {path} in the workspace", hint="list the directory to see what is there")
            return stat.S_ISDIR(place.stat.st_mode)

    def list_directory(self, path: str = ".", *, max_entries: int = 2_000) -> DirectoryListing:
        with self.steps(path) as place, path_errors(path), _directory(place, path) as fd, os.scandir(fd) as scan:
            found = [Entry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(scan, max_entries + 1)]
        found.sort(key=lambda entry: entry.name)
        return DirectoryListing(place.path, tuple(found[:max_entries]), complete=len(found) <= max_entries)

    def walk(self, path: str = ".", *, hidden: bool = False, max_files: int = 5_000, max_depth: int = 16) -> WalkResult:
        """The regular files and directories under `path`. Links are not followed; `.git` is never entered."""
        with self.steps(path) as place, path_errors(path), _directory(place, path) as fd:
            walk = _Walk(hidden, max_files)
            walk.enter(fd, "" if place.path == "." else f"{place.path}/", max_depth)
        return WalkResult(tuple(sorted(walk.found)), walk.complete)


class _Walk:
    """A bounded walk; the limit on entries bounds the cost of a huge directory."""

    def __init__(self, hidden: bool, max_files: int) -> None:
        self.hidden, self.max_files, self.looks = hidden, max_files, max_files * 4
        self.files = 0
        self.found: list[WalkEntry] = []
        self.complete = True

    def enter(self, fd: int, prefix: str, depth: int) -> None:
        with os.scandir(fd) as scan:
            entries = sorted(islice(scan, self.looks), key=lambda entry: entry.name)
            self.looks -= len(entries)
            self.complete = self.complete and next(scan, None) is None
        for entry in entries:
            if self.files >= self.max_files:
                self.complete = False
                return
            if entry.name == ".git" or (entry.name.startswith(".") and not self.hidden):
                continue
            self._take(fd, entry, prefix, depth)

    def _take(self, fd: int, entry: os.DirEntry[str], prefix: str, depth: int) -> None:
        # The entry is looked up again from the open directory: scandir's result is older.
        found = look_up(entry.name, fd)
        if found is None:
            return
        if stat.S_ISREG(found.st_mode):
            self.files += 1
            self.found.append(WalkEntry(prefix + entry.name, False, found.st_mtime_ns))
        elif stat.S_ISDIR(found.st_mode):
            self.found.append(WalkEntry(prefix + entry.name, True, found.st_mtime_ns))
            try:
                below = os.open(entry.name, DIRECTORY, dir_fd=fd) if depth > 0 else -1
            except OSError:  # unreadable or just replaced: continue with the rest
                below = -1
            if below < 0:
                self.complete = False
                return
            try:
                self.enter(below, f"{prefix}{entry.name}/", depth - 1)
            finally:
                os.close(below)


@contextmanager
def _directory(place: ResolvedPath, path: str) -> Iterator[int]:
    if place.stat is None:
        raise NotFound(f"there is no directory {path} in the workspace", hint="list its parent to see what is there")
    if not stat.S_ISDIR(place.stat.st_mode):
        raise WorkspaceError(f"{path} is a file, not a directory", hint="read it instead")
    # `.` opens the root itself; a name opens the entry, and only if it is still the directory that was seen.
    with opened(place.name or ".", DIRECTORY, place.directory) as fd:
        yield fd


def check_regular(path: str, found: os.stat_result | None, instead: str = "list it instead", use: str = "read") -> None:
    """Raises NotFound or WorkspaceError for what is not a regular file; the rest is for the hints."""
    if found is None:
        raise no_file(path)
    if stat.S_ISDIR(found.st_mode):
        raise WorkspaceError(f"{path} is a directory, not a file", hint=instead)
    if not stat.S_ISREG(found.st_mode):
        raise WorkspaceError(f"{path} is not a regular file", hint=f"only plain files are {use}")


def _check_size(path: str, size: int, limit: int) -> None:
    if size > limit:
        limits = f"{size:,} bytes; a workspace file may have {limit:,}"
        raise WorkspaceError(f"{path} has {limits}", hint="split it into smaller files")


def is_memory(path: str) -> bool:
    """Whether it is the owner's memory, or a backup of it."""
    parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
    if parts[:2] == _BACKUPS:
        return len(parts) > 2 and parts[2] in _ROOT_NAMES
    return bool(parts) and parts[0] in _ROOT_NAMES and (parts[0] == MEMORY_DIRECTORY or len(parts) == 1)


class OverlayBoundary(Boundary):
    """`root` is the sandbox's folder; paths for which `belongs` is true are in `own`."""

    def __init__(self, root: Path, own: Boundary, belongs: Belongs = is_memory) -> None:
        super().__init__(root)
        self._own = own
        self._belongs = belongs

    @contextmanager
    def steps(self, path: str, *, make_parents: bool = False, guard: Guard = anything) -> Iterator[ResolvedPath]:
        inside = self._plain(path)
        if inside is None or not self._belongs(inside):
            with steps(self.root, path, make_parents=make_parents, guard=guard) as place:
                if not self._belongs(place.path):
                    yield place
                    return
                inside = place.path  # a link inside, or a path with `..`, leads to one of the agent's own files

        def check_own(where: str) -> None:
            if not self._belongs(where):
                raise outside(path)
            guard(where)

        with steps(self._own.root, inside, make_parents=make_parents, guard=check_own) as place:
            if not self._belongs(place.path):  # by a link there
                raise outside(path)
            yield place

    def holding(self, path: str) -> Boundary:
        return self._own if self._belongs(path) else self

    def stat_names(self, names: tuple[str, ...]) -> tuple[os.stat_result | None, ...]:
        here, own = super().stat_names(names), self._own.stat_names(names)
        return tuple(own[at] if self._belongs(name) else here[at] for at, name in enumerate(names))

    def list_directory(self, path: str = ".", *, max_entries: int = 2_000) -> DirectoryListing:
        listing = super().list_directory(path, max_entries=max_entries)
        if listing.path != ".":
            return listing
        own = self._own.list_directory(max_entries=max_entries)
        entries = [entry for entry in listing.entries if not self._belongs(entry.name)]
        entries += [entry for entry in own.entries if self._belongs(entry.name)]
        entries.sort(key=lambda entry: entry.name)
        return DirectoryListing(".", tuple(entries[:max_entries]), listing.complete and len(entries) <= max_entries)

    def walk(self, path: str = ".", *, hidden: bool = False, max_files: int = 5_000, max_depth: int = 16) -> WalkResult:
        walked = super().walk(path, hidden=hidden, max_files=max_files, max_depth=max_depth)
        with self.steps(path) as place:
            if place.path != ".":
                return walked
        found = [each for each in walked.found if not self._belongs(each.path)]
        complete = walked.complete
        for name, is_directory in self._names():
            (seen,) = self._own.stat_names((name,))
            found += [WalkEntry(name, is_directory, seen.st_mtime_ns)] if seen else []
            if is_directory:
                try:
                    below = self._own.walk(name, hidden=hidden, max_files=max_files, max_depth=max_depth - 1)
                except (NotFound, WorkspaceError):
                    continue
                found += below.found
                complete = complete and below.complete
        return WalkResult(tuple(sorted(found)), complete)

    def _names(self) -> list[tuple[str, bool]]:
        """The agent's own files and folders directly in the root; links are skipped, as in every walk."""
        entries = [entry for entry in self._own.list_directory().entries if self._belongs(entry.name)]
        return [(entry.name, entry.is_directory) for entry in entries if not (self._own.root / entry.name).is_symlink()]

    def _plain(self, path: str) -> str | None:
        """The path from the root, if it can be computed without reading the disk."""
        if path.startswith("/"):
            root = str(self.root).rstrip("/") + "/"
            if not path.startswith(root):
                return None
            path = path[len(root) :]
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return None if ".." in parts else "/".join(parts)
