"""Reserved disk space, so that accepted work can still be written when the disk is full.

A file of a few megabytes lies in the home. When the database finds no space the file is removed: runs can finish and
the process can end in order, while new messages are refused. When there is space again the file is recreated. A disk
with little free space gets no such file.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from palinurus.domain.errors import StorageFull

SIZE = 4 * 1024 * 1024
PLENTY = 8 * SIZE  # free space required before a reserve is created
LITTLE = 1024 * 1024  # a disk with less free space is reported as full
FULL = "the disk is full: nothing new is taken until some space is freed"

log = logging.getLogger(__name__)


class Reserve:
    """Used by the writer thread and other threads at the same time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_given = False

    def keep(self) -> bool:
        """Creates the reserve if possible. Returns whether it exists."""
        try:
            if self._path.exists() and self._path.stat().st_size == SIZE:
                self._is_given = False
                return True
            if self._free() < PLENTY:
                return False
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._make()
        except OSError as error:  # works without it
            log.info("no space is kept back: %s", error.strerror)
            return False
        if self._is_given:
            log.warning("there is space on the disk again: new messages are taken")
            self._is_given = False
        return True

    def give(self) -> bool:
        """Frees the reserve. Returns whether there was one."""
        try:
            self._path.unlink()
        except OSError:
            return False
        self._is_given = True
        log.error("%s", FULL)
        return True

    def check(self) -> None:
        """Called before new work is accepted. Raises StorageFull while the freed space is needed."""
        if self._is_given and not self.keep():
            raise StorageFull(FULL, hint="free some space; accepted messages are still answered")

    def trouble(self) -> str:
        """What is wrong with the disk; empty if nothing is."""
        if self._is_given:
            return "" if self.keep() else FULL
        return FULL if self._free() < LITTLE else ""

    def _make(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, SIZE)
            else:
                os.write(file, bytes(SIZE))
            os.ftruncate(file, SIZE)
        except OSError:
            with suppress(OSError):
                self._path.unlink()
            raise
        finally:
            os.close(file)

    def _free(self) -> int:
        folder = next(path for path in self._path.parents if path.exists())
        try:
            space = os.statvfs(folder)
        except OSError:
            return PLENTY
        return space.f_bavail * space.f_frsize
