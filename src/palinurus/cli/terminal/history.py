"""What was typed before, kept in the home for the next time: one JSON text a line, mode 0600, without secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import StorageError

if TYPE_CHECKING:
    from prompt_toolkit.history import History

NAME = "chat-history.jsonl"
KEPT = 1000


class TypedLines:
    """The file. Whatever is wrong with it, typing goes on: it is a comfort and no record."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._path = path
        self._redact = redact

    def newest_first(self) -> list[str]:
        lines = self._lines()
        if len(lines) > 2 * KEPT:
            with suppress(StorageError):
                write_atomic(self._path, "".join(line + "\n" for line in lines[-KEPT:]))
        read = [text for line in lines[-KEPT:] if (text := _decoded(line)) is not None]
        return read[::-1]

    def add(self, text: str) -> None:
        line = msgspec.json.encode(self._redact(text)) + b"\n"
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)  # one write: two terminals do not mix their lines
            finally:
                os.close(file)

    def _lines(self) -> list[str]:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []


def _decoded(line: str) -> str | None:
    try:
        return msgspec.json.decode(line, type=str)
    except msgspec.DecodeError:
        return None


def history_of(lines: TypedLines) -> History:
    """The same, as the input line wants it."""
    from prompt_toolkit.history import History

    class KeptHistory(History):
        def load_history_strings(self) -> Iterable[str]:
            return lines.newest_first()

        def store_string(self, string: str) -> None:
            lines.add(string)

    return KeptHistory()
