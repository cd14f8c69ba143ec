"""The words of all transcripts, in a file of their own that may be deleted at any time.

There is no background work and nothing to go stale: a search first reads what was appended since the last one (the
entries have a running position), then looks. Behind an index that was deleted the first search reads everything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw

from palinurus.config.atomic import make_directory
from palinurus.domain.errors import StorageDamaged
from palinurus.domain.messages import AssistantMessage, UserMessage, text_of
from palinurus.sessions.store import Hit
from palinurus.sessions.transcript import CompactionEntry, CustomMessageEntry, MessageEntry, Row, decode_row
from palinurus.sessions.words import index_text, match_query
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries
from palinurus.storage.sqlite import SQL as HOME

SQL = load_queries("transcripts.sql")
IMPORTS = load_queries("imports.sql")
STEP = 500
SNIPPET = 240


class SqliteTranscriptIndex:
    """Implements sessions.store.TranscriptIndex over the home's database and a derived one of its own."""

    def __init__(self, home: Database, path: Path) -> None:
        self._home = home
        self._path = path
        self._index: Database | None = None

    async def search(self, query: str, *, agent: str = "", limit: int = 20) -> list[Hit]:
        wanted = match_query(query)
        if not wanted:
            return []
        values = {"query": wanted, "agent": agent, "limit": limit}
        try:
            rows = await self._find(values)
        except StorageDamaged:  # nothing is lost with it: what it knew stands in the home
            await self.discard()
            rows = await self._find(values)
        return [_hit(row, query) for row in rows]

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()
            self._index = None

    async def _find(self, values: dict[str, Any]) -> list[Any]:
        index = self._open()
        await self._catch_up(index)
        hidden = await self._home.read(lambda home: [found for (found,) in home.execute(IMPORTS["staged_sessions"])])
        wanted = {**values, "hidden": json.dumps(hidden)}
        return await index.read(lambda connection: connection.execute(SQL["find"], wanted).fetchall())

    async def discard(self) -> None:
        """Throw it away: the next search makes it anew."""
        await self.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _open(self) -> Database:
        if self._index is None:
            make_directory(self._path.parent)
            self._index = Database(self._path, "transcripts")
        return self._index

    async def _catch_up(self, index: Database) -> None:
        position, entry_id = await index.read(lambda connection: connection.execute(SQL["position"]).get)
        here = {"position": position}
        if position and entry_id != await self._home.read(lambda home: home.execute(HOME["entry_at"], here).get):
            raise StorageDamaged(f"{index.path} was made of another home")
        while rows := await self._new(position):
            position = rows[-1][0]
            await index.write(lambda connection, rows=rows: _add(connection, rows))  # type: ignore[misc]

    async def _new(self, position: int) -> list[Any]:
        values = {"position": position, "limit": STEP}
        return await self._home.read(lambda connection: connection.execute(HOME["entries_after"], values).fetchall())


def _add(connection: apsw.Connection, rows: list[Any]) -> None:
    for position, session_id, key, agent, entry_id, payload in rows:
        role, stamp, text = said(Row(entry_id, None, payload))
        if text:
            connection.execute(
                SQL["add_said"],
                {
                    "position": position,
                    "session_id": session_id,
                    "session_key": key,
                    "agent": agent,
                    "entry_id": entry_id,
                    "role": role,
                    "timestamp": stamp,
                    "text": text,
                },
            )
            connection.execute(SQL["add_words"], {"position": position, "words": index_text(text)})
    connection.execute(SQL["set_position"], {"position": rows[-1][0], "entry_id": rows[-1][4]})


def said(row: Row) -> tuple[str, str, str]:
    """Who said it, when, and what; empty for a row in which nobody says anything."""
    match decode_row(row):
        case MessageEntry(timestamp=stamp, message=UserMessage() as message):
            return "user", stamp, message.text
        case MessageEntry(timestamp=stamp, message=AssistantMessage() as message):
            return "assistant", stamp, message.text
        case MessageEntry(timestamp=stamp, message=message):
            return "tool", stamp, message.text
        case CustomMessageEntry(timestamp=stamp, content=content):
            return "system", stamp, text_of(content)
        case CompactionEntry(timestamp=stamp, summary=summary):
            return "summary", stamp, summary
        case _:
            return "", "", ""


def _hit(row: Any, query: str) -> Hit:
    session_id, key, entry_id, role, stamp, text, score = row
    return Hit(session_id, key, entry_id, role, stamp, _snippet(text, query), round(score, 3))


def _snippet(text: str, query: str) -> str:
    """The part of the text around the first word that was asked for."""
    flat = " ".join(text.split())
    places = [at for word in query.lower().split() if (at := flat.lower().find(word)) >= 0]
    start = max(0, (min(places) if places else 0) - SNIPPET // 4)
    return ("…" if start else "") + flat[start : start + SNIPPET] + ("…" if len(flat) > start + SNIPPET else "")
