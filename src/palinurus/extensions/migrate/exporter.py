"""Read the sessions of this home page by page, and write them as lines with a colophon."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import BinaryIO

import msgspec
from msgspec import Struct

from palinurus.extensions.migrate.foreign import ForeignDocument
from palinurus.extensions.migrate.import_store import SEPARATOR
from palinurus.extensions.migrate.openclaw.entries import Colophon, Oddities, colophon_line
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Row, timestamp
from palinurus.storage.database import Database
from palinurus.storage.transaction import declare_queries

declare_queries("exports", __file__)
TypedRow = tuple[str, Row]
"""The type of an entry, and the entry."""


class HomeSession(Struct, frozen=True):
    session: Session
    extra: str = ""  # fields of another home that we do not know: a JSON object, unchanged
    imported: bool = False  # its first entries came from another home
    bytes: int = 0


class SessionExporter:
    """Reads all visible sessions, archived ones included."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions(self, session_id: str = "") -> list[HomeSession]:
        """All, the oldest first, or the one with this id."""
        rows = await self._database.read(lambda tx: tx.all("exports.kept_sessions", id=session_id))
        return [
            HomeSession(msgspec.json.decode(row, type=Session), extra or "", bool(imported), size or 0)
            for row, extra, imported, size in rows
        ]

    async def pages(self, session_id: str, limit: int) -> AsyncIterator[list[TypedRow]]:
        """The entries of a transcript, at most `limit` at a time."""
        position = 0
        while True:
            values = {"id": session_id, "after": position, "limit": limit}
            rows = await self._database.read(lambda tx, values=values: tx.all("exports.kept_rows", **values))  # type: ignore[misc]
            if not rows:
                return
            position = rows[-1][0]
            yield [(kind, Row(*row)) for _, kind, *row in rows]

    async def documents(self) -> list[ForeignDocument]:
        """What was stored unchanged from other homes."""
        rows = await self._database.read(lambda tx: tx.all("imports.documents"))
        return [ForeignDocument(*row) for row in rows]


class TranscriptWriter:
    """Writes entries as lines, page by page. `cwd` is where the agent works, which OpenClaw has in the header."""

    def __init__(self, home_session: HomeSession, cwd: str) -> None:
        self._home_session = home_session
        self._oddities = Oddities(ours=not home_session.imported, cwd=cwd)
        self._digest = hashlib.sha256()
        self._last: str | None = None
        self.count = 0

    async def add(self, page: list[TypedRow], file: BinaryIO) -> int:
        """How many bytes were written. Raises OSError."""
        return await asyncio.to_thread(self._add, page, file)

    def _add(self, page: list[TypedRow], file: BinaryIO) -> int:
        lines = []
        for kind, row in page:
            lines.append(self._oddities.line(row, kind))
            self._digest.update(row.payload.encode() + SEPARATOR)
        self.count += len(page)
        self._last = page[-1][1].id
        return file.write(b"\n".join((*lines, b"")))

    def end(self, file: BinaryIO) -> None:
        """Write the colophon."""
        session = self._home_session.session
        made = Colophon(
            key=session.key,
            session=session,
            entries=self.count,
            digest=self._digest.hexdigest(),
            extra=self._home_session.extra,
            numbers=tuple(self._oddities.numbers),
            odd=tuple(self._oddities.odd),
        )
        file.write(colophon_line(made, self._last, timestamp(session.updated_at)) + b"\n")
