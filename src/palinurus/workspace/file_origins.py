"""Which files hold text from outside: written while such text was read, copied from there, or of a kind that is.

Text that was read in one conversation and written into a file is still that text in the next one (promise 18). So what
an untrusted run writes is entered here, and whoever shows a file's words asks first. An entry is met again by the
file's path (an editor makes a new file under the old name), by its inode (a move, a hard link) and by its digest (a
copy). It is kept in the home's database and held in memory, because it is asked at every read.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.handling import UNTRUSTED_PATHS
from palinurus.domain.provenance import OutsideText
from palinurus.workspace.boundary import READ, Boundary
from palinurus.workspace.kind_files import KindFiles
from palinurus.workspace.untrusted_paths import UntrustedPaths

MAX_SOURCES = 20  # that an entry names
MAX_DIGESTED = 16 * 1024 * 1024  # bytes; a larger file is known by its path and inode alone
MAX_DIGESTED_TOGETHER = 4 * MAX_DIGESTED  # of the files that one command has changed
_PIECE = 1024 * 1024

Identity = tuple[int, int]  # device and inode


class FileOrigin(Struct, frozen=True):
    """A file, or a folder with all that lies below it, whose words came from outside."""

    path: str  # absolute, links followed
    workspace: str = ""
    device: int = 0
    inode: int = 0
    size: int = 0
    digest: str = ""  # SHA-256; empty: not known
    sources: tuple[str, ...] = ()  # what its writer had read: see domain/provenance.py
    at: int = 0
    is_folder: bool = False

    @property
    def identity(self) -> Identity:
        return self.device, self.inode


class FileOriginStore(Protocol):
    async def all(self) -> list[FileOrigin]:
        """Oldest first."""

    async def put(self, entries: Sequence[FileOrigin]) -> None:
        """Each takes the place of one with the same path."""

    async def remove(self, paths: Sequence[str]) -> None:
        """Of paths that are not there nothing is said."""


class NoFileOrigins:
    """Implements FileOriginStore: what is entered lives as long as the process."""

    async def all(self) -> list[FileOrigin]:
        return []

    async def put(self, entries: Sequence[FileOrigin]) -> None:
        return None

    async def remove(self, paths: Sequence[str]) -> None:
        return None


class FileOrigins:
    """Those of a whole home. Questions may be asked from any thread; changes are made on the event loop."""

    def __init__(self, store: FileOriginStore | None = None, kinds: Iterable[str] = UNTRUSTED_PATHS) -> None:
        self._store = store or NoFileOrigins()
        self.use_kinds(kinds)
        self._entries: dict[str, FileOrigin] = {}
        self._places: dict[Identity, str] = {}
        self._copied: Counter[tuple[int, str]] = Counter()  # sizes and digests
        self._sizes: Counter[int] = Counter()
        self._folders: frozenset[str] = frozenset()
        self._writing: dict[object, tuple[str, int]] = {}  # folders where somebody writes now, and since when
        self._lock = threading.Lock()
        self._loaded = store is None

    def use_kinds(self, patterns: Iterable[str]) -> None:
        """What counts as outside without an entry, from now on."""
        self.kinds = UntrustedPaths(patterns)
        self.kind_files = KindFiles(self.kinds)

    async def load(self) -> None:
        """Read what earlier processes have entered; costs nothing the second time."""
        if not self._loaded:
            self._hold(await self._store.all(), ())
            self._loaded = True

    # -- questions ----------------------------------------------------------------------------------------------------

    def sources_of(self, boundary: Boundary, place: str) -> tuple[str, ...]:
        """Where the words of a file come from, as far as that is outside; nothing when they are the owner's. Blocks.

        `place` is where it really lies, links followed.
        """
        return (self.name_source(absolute(boundary, place), place),) if self.is_outside(boundary, place) else ()

    def name_source(self, path: str, place: str) -> str:
        """The source that such a file is. Trust in a folder is for what its owner puts there, and never for what an
        untrusted run has written into it: that has a name of its own. Blocks."""
        return f"{'written' if self.is_held_at(path) else 'file'}:{place}"

    def is_outside(self, boundary: Boundary, place: str) -> bool:
        return self.kinds.has(place) or self.is_held(boundary, place)

    def is_held(self, boundary: Boundary, place: str) -> bool:
        """Whether it was entered, under this name or another."""
        return not self.is_empty and self.is_held_at(absolute(boundary, place))

    def is_held_at(self, path: str) -> bool:
        """The same for an absolute path, links followed."""
        if self.is_empty:
            return False
        return self.is_entered(path) or self._is_copy(path) or self._is_being_written(path)

    def is_entered(self, path: str) -> bool:
        """By its path, or a folder above it."""
        if path in self._entries:
            return True
        return bool(self._folders) and any(str(above) in self._folders for above in Path(path).parents)

    def has_inode(self, identity: Identity) -> bool:
        """Whether a file that was entered is this one. A name that has a new file since then no longer counts."""
        path = self._places.get(identity)
        if path is None:
            return False
        with suppress(OSError):
            now = os.lstat(path)
            return (now.st_dev, now.st_ino) == identity
        return True  # it was moved

    def has_below(self, path: str) -> bool:
        """Whether it was entered, or something in it."""
        return self.is_entered(path) or (not self.is_empty and bool(self.below(path)))

    def below(self, folder: str) -> list[FileOrigin]:
        """All entries at or below an absolute path, newest first."""
        prefix = f"{folder.rstrip('/')}/"
        with self._lock:
            found = [each for path, each in self._entries.items() if path == folder or path.startswith(prefix)]
        return sorted(found, key=lambda each: -each.at)

    @property
    def is_empty(self) -> bool:
        return not self._entries and not self._writing

    def _is_being_written(self, path: str) -> bool:
        """Whether it was changed while a command runs whose changes are entered at its end."""
        with self._lock:
            since = [at for root, at in self._writing.values() if path.startswith(f"{root}/")]
        with suppress(OSError):
            return bool(since) and os.lstat(path).st_ctime_ns >= min(since)
        return False

    def _is_copy(self, path: str) -> bool:
        try:
            seen = os.lstat(path)
        except OSError:
            return False
        if not stat.S_ISREG(seen.st_mode):
            return False
        if self.has_inode((seen.st_dev, seen.st_ino)):
            return True
        return bool(seen.st_size) and seen.st_size in self._sizes and (seen.st_size, digest_of(path)) in self._copied

    # -- changes ------------------------------------------------------------------------------------------------------

    async def enter(self, entries: Sequence[FileOrigin]) -> None:
        """They are held at once, and when this returns they outlive the process. Raises StorageError."""
        if entries:
            self._hold(entries, ())
            await self._store.put(entries)

    def watch(self, writer: object, root: str, since: int) -> None:
        """Whatever changes below a folder from this time on (as files tell it) is from outside, until `unwatch`."""
        with self._lock:
            self._writing[writer] = root, since

    def unwatch(self, writer: object) -> None:
        """What it has changed was entered."""
        with self._lock:
            self._writing.pop(writer, None)

    async def clear(self, paths: Sequence[str]) -> None:
        """For files that are gone, or that somebody has written anew who had read nothing from outside."""
        if known := [path for path in paths if path in self._entries]:
            await self._store.remove(known)
            self._hold((), known)

    def entry(self, path: str) -> FileOrigin | None:
        return self._entries.get(path)

    def _hold(self, entries: Iterable[FileOrigin], gone: Iterable[str]) -> None:
        with self._lock:
            for path in gone:
                self._drop(path)
            for each in entries:
                self._drop(each.path)
                self._entries[each.path] = each
                if each.inode:
                    self._places[each.identity] = each.path
                if each.digest:
                    self._copied[each.size, each.digest] += 1
                    self._sizes[each.size] += 1
            self._folders = frozenset(each.path for each in self._entries.values() if each.is_folder)

    def _drop(self, path: str) -> None:
        old = self._entries.pop(path, None)
        if old is None:
            return
        if self._places.get(old.identity) == path:
            del self._places[old.identity]
        if old.digest:
            self._copied -= Counter([(old.size, old.digest)])
            self._sizes -= Counter([old.size])


def absolute(boundary: Boundary, place: str) -> str:
    """Where a place of a workspace really is on this machine."""
    return os.path.join(os.path.realpath(boundary.holding(place).root), place)  # noqa: PTH118  asked at every read


def named(suspects: Iterable[OutsideText]) -> tuple[str, ...]:
    """The sources of these texts, as far as an entry names them."""
    return tuple(dict.fromkeys(text.source for text in suspects if text.source))[:MAX_SOURCES]


def looked_at(entry: FileOrigin, *, digest: bool = True) -> FileOrigin:
    """The entry with what lies at its path now. Blocks."""
    with suppress(OSError):
        seen = os.lstat(entry.path)
        if stat.S_ISREG(seen.st_mode):
            known = replace(entry, device=seen.st_dev, inode=seen.st_ino, size=seen.st_size)
            return replace(known, digest=digest_of(entry.path) if digest else "")
    return replace(entry, device=0, inode=0, size=0, digest="")


def looked_at_all(entries: Iterable[FileOrigin]) -> list[FileOrigin]:
    """The same for many: digests of as much as can be read in a moment, then of no more. Blocks."""
    found: list[FileOrigin] = []
    room = MAX_DIGESTED_TOGETHER
    for entry in entries:
        found.append(looked_at(entry, digest=room > 0))
        room -= found[-1].size
    return found


def digest_of(path: str) -> str:
    """Of a regular file's content; empty for one that is too large, or gone. Blocks."""
    taken, size = hashlib.sha256(), 0
    try:
        fd = os.open(path, READ)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        with suppress(OSError):
            while piece := file.read(_PIECE):
                taken.update(piece)
                size += len(piece)
                if size > MAX_DIGESTED:
                    return ""
            return taken.hexdigest() if size else ""
    return ""
