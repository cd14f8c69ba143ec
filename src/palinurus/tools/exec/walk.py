"""A bounded walk over the files of a folder, the upper ones first; what it did not come to is told."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator

SECONDS = 5.0
_CLOSED = frozenset({".git", ".pal"})  # what we and git keep


class Walk:
    """Neither follows links nor enters `.git`."""

    def __init__(self, root: str, most: int, *, hidden: bool) -> None:
        self._most = most
        self._hidden = hidden
        self.left: deque[str] = deque([root])  # folders that were not walked, or not to their end

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
            except OSError:  # it went away, or may not be read: then nothing there can be told either
                pass
            self.left.popleft()
