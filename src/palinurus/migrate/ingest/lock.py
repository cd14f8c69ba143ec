"""One at a time writes a wiki. The kernel holds the lock, so one that died holds nothing; nothing is left behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from palinurus.config.atomic import make_directory, storage_error
from palinurus.domain.errors import StorageError

FILE = ".pal-ingest.lock"


@contextmanager
def wiki_lock(wiki: Path, command: str) -> Iterator[None]:
    """Raises StorageError when somebody else writes it, or nobody can."""
    make_directory(wiki)
    path = wiki / FILE
    descriptor = _acquired(path)
    try:
        with suppress(OSError):  # the name is for people; on a full disk the lock holds without it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {command}\n".encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: whoever has opened it meanwhile looks again
        os.close(descriptor)


def _acquired(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise StorageError(f"{path.parent} is being written by {holder}", hint="wait until it is done") from None
        if _is_there(descriptor, path):
            return descriptor
        os.close(descriptor)  # the one before us took the file away when it was done


def _is_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    """For people: "pid 123 (pal ingest)"."""
    pid, _, command = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip().partition(" ")
    return f"pid {pid} ({command})" if pid else "another process"
