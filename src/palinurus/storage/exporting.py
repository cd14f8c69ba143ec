"""Conversations on their way out of `home.sqlite`, read a part at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from palinurus.migrate.export.exporter import Kept, KeptRow
from palinurus.migrate.foreign import ForeignDocument
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Row
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries

SQL = load_queries("exports.sql")
IMPORTS = load_queries("imports.sql")


class SqliteExporter:
    """Implements migrate.export.exporter.SessionExporter."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions(self, session_id: str = "") -> list[Kept]:
        rows = await self._read(SQL["kept_sessions"], {"id": session_id})
        return [
            Kept(msgspec.json.decode(row, type=Session), extra or "", bool(imported), size or 0)
            for row, extra, imported, size in rows
        ]

    async def rows(self, session_id: str, after: int = 0, limit: int = 1000) -> list[KeptRow]:
        rows = await self._read(SQL["kept_rows"], {"id": session_id, "after": after, "limit": limit})
        return [KeptRow(position, kind, Row(*row)) for position, kind, *row in rows]

    async def documents(self) -> list[ForeignDocument]:
        rows = await self._read(IMPORTS["documents"], {"kind": ""})
        return [ForeignDocument(kind, name, text) for _, kind, name, text in rows]

    async def _read(self, sql: str, values: dict[str, Any]) -> list[Any]:
        return await self._database.read(lambda connection: connection.execute(sql, values).fetchall())
