"""The log of a home: one JSON object a line in `logs/pal.jsonl`, older ones beside it. Written by runtime."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest

FOLDER = "logs"
NAME = "pal.jsonl"
OLD_FILES = 3  # pal.1.jsonl is the newest of them

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")


class LogLine(Struct, frozen=True, omit_defaults=True):
    at: str  # ISO 8601, UTC
    level: Level
    text: str
    source: str = ""  # the module that says it
    pid: int = 0
    run: str = ""
    session: str = ""
    trace: str = ""


class LogFilter(Struct, frozen=True):
    """What is wanted: from a level up, and of one run, named by the beginning of its id."""

    level: Level = "info"
    run: str = ""

    def takes(self, line: LogLine) -> bool:
        return LEVELS.index(line.level) >= LEVELS.index(self.level) and line.run.startswith(self.run)


def log_filter(level: str, run: str) -> LogFilter:
    known = next((name for name in LEVELS if name == level.lower()), None)
    if known is None:
        raise BadRequest(f"not a level: {level!r}", hint=", ".join(LEVELS))
    return LogFilter(known, run)


def log_files(root: Path) -> list[Path]:
    """The files of a home's log, the oldest first."""
    folder = root / FOLDER
    old = [folder / f"pal.{number}.jsonl" for number in range(OLD_FILES, 0, -1)]
    return [path for path in (*old, folder / NAME) if path.is_file()]


def read_logs(root: Path, wanted: LogFilter, limit: int) -> list[LogLine]:
    """The last lines that are wanted, the oldest first."""
    found: deque[LogLine] = deque(maxlen=limit)
    for path in log_files(root):
        try:
            with path.open("rb") as file:
                found.extend(line for raw in file if (line := _decoded(raw)) and wanted.takes(line))
        except OSError:  # rotated away a moment ago
            continue
    return list(found)


def follow_logs(root: Path, wanted: LogFilter, wait: Callable[[], None]) -> Iterator[LogLine]:
    """Lines as they are written, from now on. `wait` is called when there is none; it ends this by raising."""
    path = root / FOLDER / NAME
    file: BinaryIO | None = None
    begun = False
    rest = b""
    try:
        while True:
            if file is None:
                file = _opened(path)
                if file is not None and not begun:
                    file.seek(0, 2)
                begun = True  # a file that comes later is read from its beginning
            data = file.read(65536) if file is not None else b""
            if not data:
                if file is not None and _replaced(path, file):
                    file.close()
                    file, rest = None, b""
                    continue
                wait()
                continue
            *lines, rest = (rest + data).split(b"\n")
            yield from (line for raw in lines if (line := _decoded(raw)) and wanted.takes(line))
    finally:
        if file is not None:
            file.close()


class LogTail(Struct, frozen=True, rename="camel"):
    """A piece of the log from a cursor on: whole lines, as they were written."""

    file: str
    cursor: int  # where the next piece begins
    size: int
    lines: tuple[str, ...]
    truncated: bool = False  # there were more before them than were asked for
    reset: bool = False  # the log has begun a new file since that cursor was given


def tail_logs(root: Path, *, cursor: int | None = None, limit: int = 500, max_bytes: int = 250_000) -> LogTail:
    """What was written since the cursor, or the last lines. A line that is still being written comes next time."""
    path = root / FOLDER / NAME
    file = _opened(path)
    if file is None:
        return LogTail(str(path), 0, 0, ())
    with file:
        size = os.fstat(file.fileno()).st_size
        reset = cursor is not None and cursor > size
        wanted = 0 if cursor is None or reset else cursor
        start = max(wanted, size - max_bytes)
        inside = start > 0 and start != cursor  # perhaps in the middle of a line
        file.seek(start - 1 if inside else start)
        data = file.read(size - file.tell())
    whole, newline, rest = data.rpartition(b"\n")
    lines = (whole + newline).decode("utf-8", "replace").splitlines()[1 if inside else 0 :]
    left_out = (inside and start > wanted) or len(lines) > limit
    return LogTail(str(path), size - len(rest), size, tuple(lines[-limit:]), left_out, reset)


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except OSError:
        return None


def _replaced(path: Path, file: BinaryIO) -> bool:
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except OSError:
        return False  # between two files: the next look finds the new one


def _decoded(raw: bytes) -> LogLine | None:
    try:
        return msgspec.json.decode(raw, type=LogLine)
    except msgspec.DecodeError:
        return None
