"""Write one conversation out as lines, a part at a time, with a colophon at the end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import BinaryIO

from palinurus.migrate.export.exporter import Kept, KeptRow, SessionExporter
from palinurus.migrate.importer import BETWEEN
from palinurus.migrate.openclaw.colophon import Colophon, Oddities, colophon_line
from palinurus.sessions.transcript import timestamp

PART = 1000  # entries at a time

OnBytes = Callable[[int], None]
"""Told how many bytes were written since the last time. Must not raise."""


async def write_transcript(
    exporter: SessionExporter, kept: Kept, file: BinaryIO, told: OnBytes = lambda _: None, *, cwd: str = ""
) -> Colophon:
    """All entries of a session and the colophon. Raises OSError and StorageError."""
    writing = Writing(kept, cwd)
    position = 0
    while rows := await exporter.rows(kept.session.id, position, PART):
        position = rows[-1].position
        told(await asyncio.to_thread(writing.add, rows, file))
    return writing.end(file)


class Writing:
    """Makes lines of entries, a part at a time. `cwd` is where the agent works, which OpenClaw tells in the header."""

    def __init__(self, kept: Kept, cwd: str) -> None:
        self._kept = kept
        self._oddities = Oddities(ours=not kept.imported, cwd=cwd)
        self._digest = hashlib.sha256()
        self._count = 0
        self._last: str | None = None

    def add(self, rows: list[KeptRow], file: BinaryIO) -> int:
        lines = []
        for kept in rows:
            lines.append(self._oddities.line(kept.row, kept.kind))
            self._digest.update(kept.row.payload.encode() + BETWEEN)
        self._count += len(rows)
        self._last = rows[-1].row.id
        return file.write(b"\n".join((*lines, b"")))

    def end(self, file: BinaryIO) -> Colophon:
        session = self._kept.session
        made = Colophon(
            key=session.key,
            session=session,
            entries=self._count,
            digest=self._digest.hexdigest(),
            extra=self._kept.extra,
            numbers=tuple(self._oddities.numbers),
            odd=tuple(self._oddities.odd),
        )
        file.write(colophon_line(made, self._last, timestamp(session.updated_at)) + b"\n")
        return made
