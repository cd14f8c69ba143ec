"""Space of the disk that is kept back, so that what was accepted can still be written when the disk is full.

A file of a few megabytes lies in the home. When the database finds no space the file is removed: what runs comes to
its end and the house can be shut in order, while nothing new is accepted. When there is space again the file is made
anew. A disk that has little to give from the start gets none.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from palinurus.domain.errors import StorageFull

SIZE = 4 * 1024 * 1024
PLENTY = 8 * SIZE  # that must be free before so much is kept back
LITTLE = 1024 * 1024  # a disk with less to give counts as full for those who ask how we are
FULL = "the disk is full: nothing new is taken until some space is freed"

log = logging.getLogger(__name__)


class Reserve:
    """Used by the thread that writes and by those who ask; whoever is late finds it done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_given = False

    def keep(self) -> bool:
        """Whether it is there now."""
        try:
            if self._path.exists() and self._path.stat().st_size == SIZE:
                self._is_given = False
                return True
            if self._free() < PLENTY:
                return False
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._make()
        except OSError as error:  # it is a help in need and no condition of work
            log.info("no space is kept back: %s", error.strerror)
            return False
        if self._is_given:
            log.warning("there is space on the disk again: new messages are taken")
            self._is_given = False
        return True

    def give(self) -> bool:
        """Give it back to the disk; whether there was anything to give."""
        try:
            self._path.unlink()
        except OSError:
            return False
        self._is_given = True
        log.error("%s", FULL)
        return True

    def check(self) -> None:
        """Before something new is accepted. Raises StorageFull while the space that was given back is needed."""
        if self._is_given and not self.keep():
            raise StorageFull(FULL, hint="free some space; what was accepted before goes on")

    def trouble(self) -> str:
        """How the disk is, for those who ask: empty when it is well."""
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
