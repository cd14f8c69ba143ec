"""Which files hold text from outside: written by a run that had read such text, copied from such a file, or of such
a kind.

Text that was read in one conversation and written into a file is still from outside in the next one (promise 18). So
the files that an untrusted run writes are entered here, and code that shows a file asks first. A file is recognised
by its path (an editor makes a new file under the old name), by its inode (a move, a hard link) and by its digest (a
copy). The entries are stored in the home's database and held in memory, because every read asks.

Some files are from outside by their kind (mail, saved pages, folders such as inbox), and every command asks for
them. The modification time of a folder shows whether names in it have changed, so the second walk costs one `stat`
for each folder instead of one for each file.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.messages import OutsideText
from palinurus.storage.database import Database
from palinurus.storage.transaction import declare_queries, decoded, encoded
from palinurus.workspace.boundary import READ, Boundary
from palinurus.workspace.settings import UNTRUSTED_PATHS

MAX_KNOWN = 20_000  # folders
MAX_ENTRIES = 20_000  # of one folder
_SETTLED_NS = 50_000_000  # a second change within one tick of the file system's clock leaves the time unchanged
MAX_SOURCES = 20  # maximum sources of an entry
MAX_DIGESTED = 16 * 1024 * 1024  # bytes; a larger file is recognised by path and inode only
MAX_DIGESTED_TOGETHER = 4 * MAX_DIGESTED  # files changed by one command
_PIECE = 1024 * 1024
_BYTES = "bytes:"  # no absolute path begins so
declare_queries("file_origins", __file__)

Identity = tuple[int, int]  # device and inode


class UntrustedPaths:
    """Patterns as the config has them: `*.eml` is a file's name, `inbox/` a folder at any depth, `docs/mail/*` a path.

    Case is ignored.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(dict.fromkeys(pattern.strip().casefold().removeprefix("./") for pattern in patterns))
        plain = [each for each in self.patterns if each.strip("/")]
        self._folders = frozenset(each[:-1] for each in plain if each.endswith("/") and "/" not in each[:-1])
        self._paths = tuple(each for each in plain if "/" in each[:-1])
        self._endings = tuple(each[1:] for each in plain if each.startswith("*.") and not set(each[1:]) & set("*?[/"))
        endings = {f"*{end}" for end in self._endings}
        self._names = tuple(each for each in plain if "/" not in each and each not in endings)

    def has(self, place: str) -> bool:
        """Whether the file at this path from the workspace root matches."""
        path = place.casefold()
        above, _, name = path.rpartition("/")
        if name.endswith(self._endings) or self.has_folder(above) or self._fits(path):
            return True
        return any(fnmatchcase(name, each) for each in self._names)

    def has_folder(self, place: str) -> bool:
        """Whether everything below this folder matches, including file names."""
        path = place.casefold()
        return bool(path) and (not self._folders.isdisjoint(path.split("/")) or self._fits(f"{path}/"))

    def _fits(self, path: str) -> bool:
        return any(path.startswith(each) if each.endswith("/") else fnmatchcase(path, each) for each in self._paths)


class _Folder(Struct, frozen=True):
    stamp: tuple[int, int, int]
    count: int
    files: tuple[str, ...]  # matching files
    folders: tuple[str, ...]


class KindFiles:
    """Safe to use from several threads."""

    def __init__(self, kinds: UntrustedPaths) -> None:
        self._kinds = kinds
        self._known: dict[tuple[str, str], _Folder] = {}

    def below(self, root: str, most: int) -> list[str]:
        """Paths of matching files, upper folders first, without hidden folders and links. Blocks."""
        found: list[str] = []
        waiting = deque([root])
        while waiting and most > 0:
            path = waiting.popleft()
            folder = self._folder(root, path)
            if folder is not None:
                most -= 1 + folder.count
                found += (f"{path}/{name}" for name in folder.files)
                waiting += (f"{path}/{name}" for name in folder.folders)
        return found

    def _folder(self, root: str, path: str) -> _Folder | None:
        with suppress(OSError):
            seen = os.lstat(path)
            stamp = seen.st_dev, seen.st_ino, seen.st_mtime_ns
            known = self._known.get((root, path))
            if known is not None and known.stamp == stamp:
                return known
            folder = self._scanned(root, path, stamp)
            if time.time_ns() - seen.st_mtime_ns > _SETTLED_NS:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[root, path] = folder
            return folder
        return None

    def _scanned(self, root: str, path: str, stamp: tuple[int, int, int]) -> _Folder:
        prefix = f"{path[len(root) + 1 :]}/" if path != root else ""
        files: list[str] = []
        folders: list[str] = []
        count = 0
        with os.scandir(path) as scan:
            for entry in islice(scan, MAX_ENTRIES):
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        folders.append(entry.name)
                elif self._kinds.has(prefix + entry.name) and not entry.is_symlink():
                    files.append(entry.name)
        return _Folder(stamp, count, tuple(files), tuple(folders))


class FileOrigin(Struct, frozen=True):
    """A file, or a folder with everything below it, that holds outside text."""

    path: str  # absolute, links followed
    workspace: str = ""
    device: int = 0
    inode: int = 0
    size: int = 0
    digest: str = ""  # SHA-256; empty: not known
    sources: tuple[str, ...] = ()  # the sources its writer had read: see domain/messages.py
    at: int = 0
    is_folder: bool = False

    @property
    def identity(self) -> Identity:
        return self.device, self.inode


class FileOriginStore:
    """Stores them in the home's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[FileOrigin]:
        """Oldest first."""
        rows = await self._database.read(lambda tx: tx.all("file_origins.all"))
        return [_read(decoded(row, FileOrigin, "the row of a file's origin")) for (row,) in rows]

    async def put(self, entries: Sequence[FileOrigin]) -> None:
        """Each replaces one with the same path."""
        rows = [{"path": _text(each.path), "at": each.at, "row": encoded(_written(each))} for each in entries]
        await self._database.write(lambda tx: tx.many("file_origins.put", rows))

    async def remove(self, paths: Sequence[str]) -> None:
        """Ignores paths without an entry."""
        rows = [{"path": _text(path)} for path in paths]
        await self._database.write(lambda tx: tx.many("file_origins.remove", rows))


def _written(entry: FileOrigin) -> FileOrigin:
    sources = tuple(source.encode("utf-8", "replace").decode() for source in entry.sources)
    return replace(entry, path=_text(entry.path), workspace=_text(entry.workspace), sources=sources)


def _read(entry: FileOrigin) -> FileOrigin:
    return replace(entry, path=_path(entry.path), workspace=_path(entry.workspace))


def _text(path: str) -> str:
    """Encodes a path whose bytes are not valid text, for JSON and SQLite."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _BYTES + os.fsencode(path).hex()
    return path


def _path(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text.removeprefix(_BYTES))) if text.startswith(_BYTES) else text


class FileOrigins:
    """All entries of a home. Queries may come from any thread; changes are made on the event loop.

    Without a store, entries last as long as the process.
    """

    def __init__(self, store: FileOriginStore | None = None) -> None:
        self._store = store
        self.use_kinds(UNTRUSTED_PATHS)
        self._entries: dict[str, FileOrigin] = {}
        self._places: dict[Identity, str] = {}
        self._copied: Counter[tuple[int, str]] = Counter()  # sizes and digests
        self._sizes: Counter[int] = Counter()
        self._folders: frozenset[str] = frozenset()
        self._writing: dict[object, tuple[str, int]] = {}  # folders that a command is writing to, and since when
        self._lock = threading.Lock()
        self._loaded = False

    def use_kinds(self, patterns: Iterable[str]) -> None:
        """Sets which paths count as outside without an entry."""
        self.kinds = UntrustedPaths(patterns)
        self.kind_files = KindFiles(self.kinds)

    async def load(self) -> None:
        """Loads the stored entries; a second call costs nothing."""
        if self._store is not None and not self._loaded:
            self._hold(await self._store.all(), ())
            self._loaded = True

    # -- questions ----------------------------------------------------------------------------------------------------

    def sources_of(self, boundary: Boundary, place: str) -> tuple[str, ...]:
        """The outside sources of a file's text; empty if it is the owner's. Blocks.

        `place` is its path after links.
        """
        is_outside = self.kinds.has(place) or self.is_held(boundary, place)
        return (self.name_source(absolute(boundary, place), place),) if is_outside else ()

    def name_source(self, path: str, place: str) -> str:
        """The source name of such a file. Trust in a folder covers what its owner puts there, and never what an
        untrusted run has written into it: that has a separate name. Blocks.
        """
        return f"{'written' if self.is_held_at(path) else 'file'}:{place}"

    def is_held(self, boundary: Boundary, place: str) -> bool:
        """Whether it has an entry, under this name or another."""
        return not self.is_empty and self.is_held_at(absolute(boundary, place))

    def is_held_at(self, path: str) -> bool:
        """The same for an absolute path, links followed."""
        if self.is_empty:
            return False
        return self.is_entered(path) or self._is_copy(path) or self._is_being_written(path)

    def is_entered(self, path: str) -> bool:
        """Whether its path or a folder above it has an entry."""
        if path in self._entries:
            return True
        return bool(self._folders) and any(str(above) in self._folders for above in Path(path).parents)

    def has_inode(self, identity: Identity) -> bool:
        """Whether a file with an entry has this inode. A name that has a new file since no longer counts."""
        path = self._places.get(identity)
        if path is None:
            return False
        with suppress(OSError):
            now = os.lstat(path)
            return (now.st_dev, now.st_ino) == identity
        return True  # the file was moved

    def has_below(self, path: str) -> bool:
        """Whether it or anything below it has an entry."""
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
        """Whether it changed while a running command is watched, whose changes are entered at its end."""
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
        """Adds entries: in memory at once, and on the disk when this returns. Raises StorageError."""
        if entries:
            self._hold(entries, ())
            if self._store is not None:
                await self._store.put(entries)

    def watch(self, writer: object, root: str, since: int) -> None:
        """Treats every change below a folder from this file time on as outside text, until `unwatch`."""
        with self._lock:
            self._writing[writer] = root, since

    def unwatch(self, writer: object) -> None:
        """Ends a watch after its changes were entered."""
        with self._lock:
            self._writing.pop(writer, None)

    async def clear(self, paths: Sequence[str]) -> None:
        """Removes entries of files that were deleted, or rewritten by a run that had read no outside text."""
        if known := [path for path in paths if path in self._entries]:
            if self._store is not None:
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
    """The absolute path of a place in a workspace."""
    return os.path.join(os.path.realpath(boundary.holding(place).root), place)  # noqa: PTH118  asked at every read


def named(suspects: Iterable[OutsideText]) -> tuple[str, ...]:
    """The sources of these texts, up to the limit of an entry."""
    return tuple(dict.fromkeys(text.source for text in suspects if text.source))[:MAX_SOURCES]


def looked_at(entry: FileOrigin, *, digest: bool = True) -> FileOrigin:
    """The entry updated from the file at its path. Blocks."""
    with suppress(OSError):
        seen = os.lstat(entry.path)
        if stat.S_ISREG(seen.st_mode):
            known = replace(entry, device=seen.st_dev, inode=seen.st_ino, size=seen.st_size)
            return replace(known, digest=digest_of(entry.path) if digest else "")
    return replace(entry, device=0, inode=0, size=0, digest="")


def looked_at_all(entries: Iterable[FileOrigin]) -> list[FileOrigin]:
    """The same for many, with digests as far as a time limit allows. Blocks."""
    found: list[FileOrigin] = []
    left = MAX_DIGESTED_TOGETHER
    for entry in entries:
        found.append(looked_at(entry, digest=left > 0))
        left -= found[-1].size
    return found


def digest_of(path: str) -> str:
    """The digest of a regular file; empty if it is too large or missing. Blocks."""
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
