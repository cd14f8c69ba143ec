"""A folder for a moment, of which nothing remains, also after its maker was killed: the next one sweeps."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder, and away with those of this prefix that nobody uses any more.

    As long as it is used its maker holds a lock on it, which the kernel takes back when the maker dies.
    """
    folder = Path(parent or tempfile.gettempdir())
    for left in folder.glob(f"{prefix}*"):
        _sweep(left)
    place, lock = _make(prefix, folder)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def _make(prefix: str, folder: Path) -> tuple[Path, int]:
    while True:
        place = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        with suppress(FileNotFoundError):  # somebody swept before it was locked
            lock = _open(place)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if place.exists():
                return place, lock
            os.close(lock)


def _sweep(place: Path) -> None:
    with suppress(OSError):  # another user's, no folder, or gone
        lock = _open(place)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError while it is in use
            shutil.rmtree(place, ignore_errors=True)
        finally:
            os.close(lock)


def _open(place: Path) -> int:
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
