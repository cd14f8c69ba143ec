"""Finds and reads the markdown of the workspace and of the user's collections.

A scan reads names and stamps only, a few milliseconds for a thousand files, so that every search can afford one. Links,
FIFOs and devices are never opened; excluded files with a matching name are listed in `skipped`. A file is read through
the workspace's boundary (promise 14), whole or not at all.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.memory.answer import SkippedFile
from palinurus.memory.document import MEMORY, SESSIONS, DocumentRef, MemoryDocument, Stamp
from palinurus.memory.settings import ALL_MARKDOWN, Collection
from palinurus.workspace.boundary import DIRECTORY, MAX_BYTES, Boundary

MAX_DEPTH = 32
MAX_FILES = 200_000
MAX_TOLD = 100  # maximum skipped files
PASSED_BY = frozenset({"node_modules", "__pycache__"})
_KIND = 0o170000  # of a mode
_NOT_TEXT = re.compile("[\ud800-\udfff]")  # how a byte appears that is not UTF-8
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_ENDINGS = frozenset({".md", ".MD", ".Md", ".mD"})
_TICK_NS = 50_000_000
_COARSE_TICK_NS = 2_100_000_000
"""A second write within one tick of the file system's clock may leave the stamp unchanged. Some file systems count in
whole seconds, or in two.
"""

_HONEST = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
NowNs = Callable[[], int]


Mask = re.Pattern[str]
"""Matches the path in citations of a collection's markdown, the collection's name included."""


class FolderListing(Struct, frozen=True):
    """The relevant names in one folder."""

    stamp: Stamp
    files: list[tuple[str, str]]  # name and path
    folders: list[str]
    odd: list[tuple[str, str]]  # path of a skipped file, and why


class FolderWalk:
    """One walk. `known` holds the listings of earlier ones, by path, and is added to."""

    def __init__(self, known: dict[str, FolderListing], now_ns: NowNs, stopped: Callable[[], bool]) -> None:
        self._known = known
        self._now_ns = now_ns
        self._stopped = stopped
        self.stamps: dict[str, Stamp] = {}
        self.skipped: list[SkippedFile] = []
        self.unseen: dict[str, str] = {}  # prefixes of paths that could not be read, and why

    def skip(self, path: str, reason: str) -> None:
        if len(self.skipped) < MAX_TOLD:
            self.skipped.append(SkippedFile(path.encode("utf-8", "replace").decode(), reason))

    def fail(self, path: str, error: OSError) -> None:
        """A folder that cannot be opened just now is not an empty one."""
        self.skip(path, why(error))
        if not is_not_there(error):
            self.unseen[path] = why(error)

    def take_names(self, folder: int, names: tuple[str, ...]) -> None:
        """Takes files of a folder that is not walked. On a case-insensitive disk two names are one file."""
        seen: set[int] = set()
        for name in names:
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if found.st_ino not in seen:
                seen.add(found.st_ino)
                self._look(folder, [(name, name)])

    def enter(self, folder: int, prefix: str, mask: Mask | None, depth: int = MAX_DEPTH) -> None:
        """Its files, and those of its folders."""
        try:
            listing = self._listing(folder, prefix, mask)
        except OSError as error:
            self.fail(prefix, error)
            return
        if len(self.stamps) + len(listing.files) > MAX_FILES:
            self.skip(prefix, f"there are more than {MAX_FILES:,} files")
            return
        self._look(folder, listing.files)
        for path, reason in listing.odd:
            self.skip(path, reason)
        for name in listing.folders:
            self.descend(folder, name, f"{prefix}{name}/", mask, depth - 1)

    def _look(self, folder: int, files: list[tuple[str, str]]) -> None:
        """The one loop that runs for every file at every search."""
        look, stamps = os.stat, self.stamps
        for name, path in files:
            try:
                found = look(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.fail(path, error)
                continue
            if found.st_mode & _KIND == stat.S_IFREG and found.st_size <= MAX_BYTES:
                stamps[path] = (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)
            elif not stat.S_ISDIR(found.st_mode):
                self.skip(path, _why_not(found))

    def descend(self, folder: int, name: str, prefix: str, mask: Mask | None, depth: int = MAX_DEPTH) -> None:
        """Walks into a subfolder, if it is one."""
        if self._stopped():
            return
        if depth <= 0:
            self.skip(prefix, f"it lies more than {MAX_DEPTH} folders deep")
            return
        try:
            inner = os.open(name, DIRECTORY, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fail(prefix, error)
            return
        try:
            self.enter(inner, prefix, mask, depth)
        finally:
            os.close(inner)

    def _listing(self, folder: int, prefix: str, mask: Mask | None) -> FolderListing:
        found = os.fstat(folder)
        known = self._known.get(prefix)
        if known is not None and known.stamp == stamp_of(found):
            return known
        listing = _listed(folder, stamp_of(found), prefix, mask)
        self._known.pop(prefix, None)
        if is_settled(found, self._now_ns()) and found.st_dev in _honest_devices():
            self._known[prefix] = listing
        return listing


def stamp_of(found: os.stat_result) -> Stamp:
    return (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


def is_settled(found: os.stat_result, now_ns: int) -> bool:
    """Whether no later change can have the same stamp."""
    tick = _TICK_NS if found.st_ctime_ns % 1_000_000_000 else _COARSE_TICK_NS
    return now_ns - found.st_ctime_ns > tick


def why(error: OSError) -> str:
    if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:
        return "it is a link or a file, not a folder"
    return (error.strerror or str(error)).lower()


def _listed(folder: int, stamp: Stamp, prefix: str, mask: Mask | None) -> FolderListing:
    listing = FolderListing(stamp, [], [], [])
    with os.scandir(folder) as entries:
        for entry in entries:
            name, path = entry.name, prefix + entry.name
            if name[0] == "." or name in PASSED_BY:
                continue
            if name[-3:] in _ENDINGS:
                if _NOT_TEXT.search(path):
                    listing.odd.append((path, "its name is not UTF-8"))
                elif mask is None or mask.fullmatch(path):
                    listing.files.append((name, path))
            elif entry.is_dir(follow_symlinks=False):
                listing.folders.append(name)
            elif entry.is_symlink() and entry.is_dir():
                listing.odd.append((f"{path}/", "it is a link; add what it points to as a collection"))
    return listing


@cache
def _honest_devices() -> frozenset[int]:
    """File systems of this machine that update a folder's stamp when its names change. None if that is not known."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        kinds = {(fields[2], fields[fields.index("-") + 1]) for fields in mounts}
    except (OSError, ValueError, IndexError):
        return frozenset()
    return frozenset(os.makedev(*map(int, device.split(":"))) for device, kind in kinds if kind in _HONEST)


def _why_not(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "it is a link"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    return f"it has {found.st_size:,} bytes; up to {MAX_BYTES:,} are read"


def is_not_there(error: OSError) -> bool:
    return error.errno in _NOT_THERE


NAMES = ("MEMORY.md", "memory.md", "USER.md")
FOLDER = "memory"


class Scan(Struct, frozen=True):
    """The result: stamps by path in citations."""

    stamps: dict[str, Stamp]
    skipped: tuple[SkippedFile, ...]
    unseen: dict[str, str] = {}  # prefixes of paths that could not be read, and why
    missing: str = ""  # a missing root


class Scanner:
    """Scans one agent's roots. `scan` and `read` block: they are called in threads, and may overlap."""

    def __init__(
        self,
        workspace: Path,
        collections: Sequence[Collection] = (),
        *,
        sources: Sequence[str],
        now_ns: NowNs = time.time_ns,
    ) -> None:
        """`now_ns` is compared with the stamps of files, so it is the system clock except in tests."""
        self.workspace = workspace
        self.collections = tuple(each for each in collections if each.name.lower() not in (MEMORY, SESSIONS, ""))
        self._with_memory = MEMORY in sources
        self._now_ns = now_ns
        self._masks = {each.name: mask_of(each) for each in self.collections}
        self._boundaries = {each.name: Boundary(each.path) for each in self.collections}
        self._boundaries[MEMORY] = Boundary(workspace)
        self._listings: dict[str, FolderListing] = {}
        self._stopped = False

    def stop(self) -> None:
        """Ends a scan in progress early, which then raises WorkspaceError."""
        self._stopped = True

    def scan(self) -> Scan:
        walk, missing = FolderWalk(self._listings, self._now_ns, lambda: self._stopped), list[str]()
        if self._with_memory:
            with _root(self.workspace, walk, missing, (*NAMES, f"{FOLDER}/")) as roots:
                for root in roots:
                    walk.take_names(root, NAMES)
                    walk.descend(root, FOLDER, f"{FOLDER}/", None)
        for each in self.collections:
            with _root(each.path, walk, missing, (f"{each.name}/",)) as roots:
                for root in roots:
                    walk.enter(root, f"{each.name}/", self._masks[each.name])
        if self._stopped:
            raise WorkspaceError("the files were not looked at: the index was closed meanwhile", hint="ask again")
        return Scan(walk.stamps, tuple(walk.skipped), walk.unseen, ", ".join(missing))

    def ref_of(self, path: str) -> DocumentRef:
        name = path.partition("/")[0]
        return DocumentRef(name if name in self._masks else MEMORY, path)

    def read(self, path: str) -> MemoryDocument | SkippedFile | None:
        """The current text; None if it no longer exists."""
        ref = self.ref_of(path)
        try:
            return self._read(ref, path if ref.source == MEMORY else path.partition("/")[2])
        except NotFound:
            return None
        except WorkspaceError as error:
            return SkippedFile(path, error.message)

    def folders(self) -> tuple[list[Path], list[Path]]:
        """What a watcher watches: single folders, and folders with everything below them."""
        deep = [each.path for each in self.collections]
        if not self._with_memory:
            return [], deep
        return [self.workspace], [self.workspace / FOLDER, *deep]

    def _read(self, ref: DocumentRef, inside: str) -> MemoryDocument | SkippedFile:
        with self._boundaries[ref.source].open_file(inside) as file:
            if file.path != inside:  # it was replaced by a link
                return SkippedFile(ref.path, "it is a link")
            data = file.read(MAX_BYTES)
            now, after = self._now_ns(), os.fstat(file.fd)
        same = stamp_of(after) == stamp_of(file.stat) and is_settled(after, now)
        # An impossible stamp, so that the file is read again next time.
        stamp = stamp_of(after) if same else (after.st_size, after.st_mtime_ns, 0, 0)
        return MemoryDocument(ref, stamp, sha256(data).digest(), decoded(data))


def decoded(data: bytes) -> str:
    """As text: an invalid byte costs one character and not the file."""
    coding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(coding, errors="replace").replace("\0", "\ufffd")


@contextmanager
def _root(path: Path, walk: FolderWalk, missing: list[str], holds: tuple[str, ...]) -> Iterator[list[int]]:
    """Its descriptor, or None and the reason. A root may be a link: the user has named it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        walk.skip(str(path), why(error))
        if is_not_there(error):
            missing.append(str(path))
        else:
            walk.unseen |= dict.fromkeys(holds, why(error))
        yield []
        return
    try:
        yield [fd]
    finally:
        os.close(fd)


def mask_of(collection: Collection) -> Mask | None:
    """A glob as a pattern: `*` and `?` stay inside a folder, `**/` is any number of folders, `{a,b}` is either."""
    if collection.mask == ALL_MARKDOWN:
        return None
    name = re.escape(f"{collection.name}/")
    try:
        return re.compile(name + "".join(_translated(collection.mask)), re.IGNORECASE)
    except re.error:  # braces that do not close
        return re.compile(name + re.escape(collection.mask), re.IGNORECASE)


def _translated(mask: str) -> Iterator[str]:
    depth = 0
    for sign in re.findall(r"\*\*/?|.", mask, re.DOTALL):
        if sign in ("{", "}") or (sign == "," and depth):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            yield {"{": "(?:", "}": ")", ",": "|"}[sign]
        else:
            yield {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign)
