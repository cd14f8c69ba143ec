"""Hard links: a file with several names, one of which may lie outside the workspace.

Of such a file nothing tells whose it is: the same bytes may be somebody's key in another folder. So it is neither read
nor copied unless as many names as it has are found inside the workspace. Files of folders that programs fill with
links (a package cache gives its files to `.venv` and `node_modules`, a local clone to `.git`) are not asked about.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

MAX_LOOKS = 20_000
FILLED_BY_PROGRAMS = frozenset({".git", ".venv", "venv", "site-packages", "node_modules"})
OUTSIDE_NAME = "has another name outside the workspace (a hard link), so what it holds may be somebody else's"

_Key = tuple[int, int, int, int]


def leads_out(root: Path, path: str, found: os.stat_result) -> bool:
    """Whether a file at `path` below the root has names that are not in it. Costs nothing for one with a single name.

    A tree that is too large to be looked through counts as one in which they were not found.
    """
    if found.st_nlink < 2 or FILLED_BY_PROGRAMS & set(path.split("/")):
        return False
    return _names_of(root).count(found) < found.st_nlink


class _Names:
    """How many names inside one root each file with several has, as the last look through the tree found them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._counts: dict[_Key, int] = {}

    def count(self, found: os.stat_result) -> int:
        """A name that comes or goes changes the file's time of change, and with it the key."""
        key = _key(found)
        if key not in self._counts:
            self._counts = {key: 0, **self._look()}
        return self._counts[key]

    def _look(self) -> dict[_Key, int]:
        counts: dict[_Key, int] = {}
        looks = MAX_LOOKS
        for _, folders, files, fd in os.fwalk(self._root.resolve(), follow_symlinks=False):
            folders[:] = [name for name in folders if name not in FILLED_BY_PROGRAMS]
            for name in files:
                seen = _seen(name, fd)
                if seen is not None and stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
                    counts[_key(seen)] = counts.get(_key(seen), 0) + 1
            looks -= len(files) + len(folders)
            if looks < 0:
                break
        return counts


@lru_cache(maxsize=64)
def _names_of(root: Path) -> _Names:
    return _Names(root)


def _seen(name: str, fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return None


def _key(found: os.stat_result) -> _Key:
    return found.st_dev, found.st_ino, found.st_nlink, found.st_ctime_ns
