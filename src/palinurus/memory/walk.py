"""The descent into a folder of markdown: names and stamps, through descriptors, without following a link.

Looking at a file costs two microseconds; listing folders costs nearly as much again. So the names in a folder are
remembered for as long as the folder's own stamp is the same: on a file system of this machine no name comes or goes
without changing it. Of other file systems (of a network, of a stick) nothing is believed, and every folder is listed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from msgspec import Struct

from palinurus.memory.report import Skipped
from palinurus.workspace.boundary import DIRECTORY, MAX_BYTES

MAX_DEPTH = 32
MAX_FILES = 200_000
MAX_TOLD = 100  # of what was skipped
PASSED_BY = frozenset({"node_modules", "__pycache__"})
_KIND = 0o170000  # of a mode
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_ENDINGS = frozenset({".md", ".MD", ".Md", ".mD"})
_TICK_NS = 50_000_000
_COARSE_TICK_NS = 2_100_000_000
"""Within one tick of the file system's clock a second write may hide behind the stamp of the first. Some file systems
count in whole seconds, or in two."""
_HONEST = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})

Raw = tuple[int, int, int, int]
"""The fields of a Stamp. A scan makes thousands of them, most of which nobody looks at twice."""

NowNs = Callable[[], int]
SYSTEM_NOW: NowNs = time.time_ns


class Mask(Struct, frozen=True):
    """Which markdown is wanted: a pattern for what comes behind so many characters of a path."""

    pattern: re.Pattern[str]
    behind: int

    def has(self, path: str) -> bool:
        return self.pattern.fullmatch(path, self.behind) is not None


class Listing(Struct, frozen=True):
    """The names in one folder that matter."""

    stamp: Raw
    files: list[tuple[str, str]]  # name and path
    folders: list[str]
    odd: list[tuple[str, str]]  # path of what is left out, and why


class Walk:
    """One descent. `known` holds the listings of earlier ones, by path, and is added to."""

    def __init__(self, known: dict[str, Listing], now_ns: NowNs, stopped: Callable[[], bool] = lambda: False) -> None:
        self._known = known
        self._now_ns = now_ns
        self._stopped = stopped
        self.stamps: dict[str, Raw] = {}
        self.skipped: list[Skipped] = []
        self.unseen: dict[str, str] = {}  # beginnings of paths that may be there all the same, and why nobody knows

    def skip(self, path: str, reason: str) -> None:
        if len(self.skipped) < MAX_TOLD:
            self.skipped.append(Skipped(path.encode("utf-8", "replace").decode(), reason))

    def fail(self, path: str, error: OSError) -> None:
        """A folder that cannot be opened just now is not an empty one."""
        self.skip(path, why(error))
        if not is_not_there(error):
            self.unseen[path] = why(error)

    def take_names(self, folder: int, names: tuple[str, ...]) -> None:
        """Files in a folder that is not entered. Where names know no case, two of them are one file."""
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
        """Its files, and those of the folders in it."""
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
        """The one loop that runs for every file at every question."""
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
        """Into a folder of the folder, if it is one."""
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

    def _listing(self, folder: int, prefix: str, mask: Mask | None) -> Listing:
        found = os.fstat(folder)
        known = self._known.get(prefix)
        if known is not None and known.stamp == raw(found):
            return known
        listing = _listed(folder, raw(found), prefix, mask)
        if is_settled(found, self._now_ns()) and found.st_dev in _honest_devices():
            self._known[prefix] = listing
        else:
            self._known.pop(prefix, None)
        return listing


def raw(found: os.stat_result) -> Raw:
    return (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


def is_settled(found: os.stat_result, now_ns: int) -> bool:
    """Whether nothing more can have happened behind this stamp."""
    tick = _TICK_NS if found.st_ctime_ns % 1_000_000_000 else _COARSE_TICK_NS
    return now_ns - found.st_ctime_ns > tick


def why(error: OSError) -> str:
    if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:
        return "it is a link or a file, not a folder"
    return (error.strerror or str(error)).lower()


def _listed(folder: int, stamp: Raw, prefix: str, mask: Mask | None) -> Listing:
    listing = Listing(stamp, [], [], [])
    with os.scandir(folder) as entries:
        for entry in entries:
            name, path = entry.name, prefix + entry.name
            if name[0] == "." or name in PASSED_BY:
                continue
            if name[-3:] in _ENDINGS:
                if not (path.isascii() or _is_text(path)):
                    listing.odd.append((path, "its name is not UTF-8"))
                elif mask is None or mask.has(path):
                    listing.files.append((name, path))
            elif entry.is_dir(follow_symlinks=False):
                listing.folders.append(name)
            elif entry.is_symlink() and entry.is_dir():
                listing.odd.append((f"{path}/", "it is a link; add what it points to as a collection"))
    return listing


@cache
def _honest_devices() -> frozenset[int]:
    """File systems of this machine that change a folder's stamp with its names. None where that cannot be known."""
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


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
