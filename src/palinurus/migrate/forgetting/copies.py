"""Where words of a home were written outside of it: wikis and exports. A small file in the home knows them.

It is a help and no truth: what was moved or deleted is told as away, and a copy that somebody made by hand is unknown.
The wiki of another home is noted in the home of whoever made it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.config.atomic import write_atomic
from palinurus.config.home import CONFIG_NAME
from palinurus.domain.errors import StorageError

NAME = "copies.json"
PATIENCE = 5.0  # seconds for another process that writes its line
PAUSE = 0.01


class Copy(Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: Literal["wiki", "export"]
    path: str
    source: str  # the home that it was made of
    written_at: int


class Copies:
    """Of one home. Everything here blocks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = root / NAME

    def all(self) -> list[Copy]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Copy])
        except (OSError, msgspec.DecodeError):
            return []

    def note(self, copy: Copy) -> None:
        """Nothing happens where there is no home. Raises StorageError when it cannot be noted."""
        if not is_home(self._root):
            return
        with self._alone():
            others = [each for each in self.all() if each.path != copy.path]
            write_atomic(self._file, msgspec.json.format(msgspec.json.encode([*others, copy])) + b"\n")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two processes may make wikis at once: neither loses its line."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _wait_for(folder, self._file)
            yield
        finally:
            os.close(folder)


def is_home(root: Path) -> bool:
    """Whether somebody lives there: a command that needs no home makes none."""
    return (root / CONFIG_NAME).is_file() or (root / "home.sqlite").is_file()


def _wait_for(folder: int, file: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise StorageError(f"{file} is being written by somebody else", hint="try again") from None
            time.sleep(PAUSE)
        else:
            return
