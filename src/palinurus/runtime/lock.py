"""The lock of a home: one process writes, and the kernel lets go of the lock when that process dies."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from palinurus.domain.errors import StorageError, StorageReadOnly


class HomeLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self, command: str) -> bool:
        """Whether this process now holds the home. Raises StorageReadOnly when it may not write there."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise StorageReadOnly(
                    f"the home {self._path.parent} cannot be written: {error.strerror}", hint="check who owns it"
                ) from None
            raise StorageError(f"{self._path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        with suppress(OSError):  # the name is for people; on a full disk the lock holds without it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()} {command}\n".encode(), 0)
        self._file = file
        return True

    def keep(self, command: str) -> bool:
        """Whether the file that others look at is still the one that this process has locked.

        A file that somebody has removed is made and locked anew; False when another process was quicker.
        """
        if self._file is None:
            return False
        mine = os.fstat(self._file)
        with suppress(FileNotFoundError):
            if os.path.samestat(mine, self._path.stat()):
                return True
        before, self._file = self._file, None
        os.close(before)
        return self.acquire(command)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def holder(self) -> str:
        """Who holds it, for people: "pid 123 (pal chat)"."""
        try:
            pid, _, command = self._path.read_text(encoding="utf-8", errors="replace").strip().partition(" ")
        except OSError:
            return "another process"
        return f"pid {pid} ({command})" if pid else "another process"
