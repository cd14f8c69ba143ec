"""A bar for work that takes a while, on standard error, and only where a person looks on."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

WIDTH = 28


class Bar:
    """One line that is written over. `close` takes it away, so that what comes next begins on a clean line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = 0
        self._live = self._stream.isatty()

    def show(self, what: str, done: int, total: int) -> None:
        if not self._live:
            return
        line = bar_line(what, done, total)[: max(20, shutil.get_terminal_size().columns - 1)]
        self._write(f"\r{line}{' ' * (self._shown - len(line))}")
        self._shown = len(line)

    def close(self) -> None:
        if self._shown:
            self._write(f"\r{' ' * self._shown}\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def bar_line(what: str, done: int, total: int) -> str:
    """How far it is, in one line; without a total only a count."""
    if total <= 0:
        return f"{what}: {done:,}"
    share = min(done / total, 1.0)
    filled = int(share * WIDTH)
    return f"{what} [{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}  {done:,} of {total:,}"
