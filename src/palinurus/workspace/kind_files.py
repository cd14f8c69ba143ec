"""The files of a folder that are from outside by their kind, found again without reading folders that did not change.

Every command asks for them. A folder's own time tells whether names in it have come or gone, so the second walk costs
one look at each folder instead of one at each file.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from palinurus.workspace.untrusted_paths import UntrustedPaths

MAX_KNOWN = 20_000  # folders
MAX_ENTRIES = 20_000  # of one folder
_SETTLED_NS = 50_000_000  # within one tick of the file system's clock a second change leaves the time as it was


class _Folder(Struct, frozen=True):
    stamp: tuple[int, int, int]
    count: int
    files: tuple[str, ...]  # those of the kind
    folders: tuple[str, ...]


class KindFiles:
    """Safe to use from several threads."""

    def __init__(self, kinds: UntrustedPaths) -> None:
        self._kinds = kinds
        self._known: dict[tuple[str, str], _Folder] = {}

    def below(self, root: str, most: int) -> list[str]:
        """Paths of such files, of the upper folders first; hidden folders and links are left out. Blocks."""
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
