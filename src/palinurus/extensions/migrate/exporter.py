"""Read the sessions of this home page by page, and write them as lines with a colophon."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.extensions.migrate.cron_import import ImportedJob
from palinurus.extensions.migrate.foreign import ForeignDocument, ForeignEntry
from palinurus.extensions.migrate.import_store import SEPARATOR, stored_kind
from palinurus.extensions.migrate.openclaw.colophon import (
    ID,
    TYPE,
    Colophon,
    Odd,
    decode_object,
    result_line,
    short_result,
)
from palinurus.extensions.migrate.openclaw.entries import read_entry
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import VERSION, Row, timestamp
from palinurus.storage.database import Database
from palinurus.storage.transaction import declare_queries

declare_queries("exports", __file__)
HEADER = "session"
LINK = f'"{ID}'.encode()
STAND_IN = "palinurus:unreadable"
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

    async def imported_jobs(self) -> dict[str, ImportedJob]:
        """What is remembered of cron jobs that were imported, by their ids."""
        rows = await self._database.read(lambda tx: tx.all("imports.imported_jobs"))
        return {name: msgspec.json.decode(text, type=ImportedJob) for name, text in rows}


class TranscriptWriter:
    """Makes one line of each entry, page by page, and the colophon with what the lines do not say.

    `cwd` is where the agent works, which OpenClaw has in the header.
    """

    def __init__(self, home_session: HomeSession, cwd: str) -> None:
        self._home_session = home_session
        self._cwd = cwd
        self._digest = hashlib.sha256()
        self._numbers: list[tuple[int, int]] = []
        self._odd: list[Odd] = []
        self._results: list[int] = []
        self._behind = 0  # difference between the number that a line had and its number now
        self._last: str | None = None
        self.count = 0

    def lines(self, page: list[TypedRow]) -> bytes:
        """The next entries. Blocks."""
        return b"".join([self._line(row, kind) + b"\n" for kind, row in page])

    def colophon(self) -> bytes:
        """The last line."""
        session, digest = self._home_session.session, self._digest.hexdigest()
        about = (self.count, digest, self._home_session.extra, tuple(self._numbers), tuple(self._odd))
        made = Colophon(session.key, session, *about, tuple(self._results))
        line = {
            "type": "custom",
            "customType": TYPE,
            "id": f"{ID}{digest[:16]}",
            "parentId": self._last,
            "timestamp": timestamp(session.updated_at),
            "data": made,
        }
        return msgspec.json.encode(line) + b"\n"

    def _line(self, row: Row, kind: str) -> bytes:
        payload = row.payload.encode()
        self._digest.update(payload + SEPARATOR)
        line = _one_line(row, payload)
        is_header = self.count == 0 and kind == HEADER
        if is_header and not self._home_session.imported:  # it lacks what OpenClaw must read
            line = _header(line, self._cwd)
        elif LINK in line and (linked := _linked(line, row.parent_id)) != line:
            line = linked
        elif line == payload and (written := result_line(line)) != line:
            line = written
            if short_result(line) == payload:
                payload = line
                self._results.append(self.count)
        number, was = self.count + 1, _line_number(row.id)
        if was is not None and was != number + self._behind:
            self._behind = was - number
            self._numbers.append((self.count, was))
        read = read_entry(line, number + self._behind)
        # OpenClaw may write a header anew, so what it was is always said.
        whole = line == payload and not isinstance(read, str) and not is_header
        if isinstance(read, str) or not whole or self._differs(read, row, kind):
            self._odd.append(Odd(self.count, row.id, row.parent_id, kind, None if whole else row.payload))
        self._last = row.id
        self.count += 1
        return line

    def _differs(self, read: ForeignEntry, row: Row, kind: str) -> bool:
        parent = self._last if read.row.parent_id is None and read.is_flat else read.row.parent_id
        return (read.row.id, parent, stored_kind(read)) != (row.id, row.parent_id, kind)


def _header(line: bytes, cwd: str) -> bytes:
    """With a version, without which OpenClaw takes a transcript for one of the first version, and with a folder."""
    value: dict[str, Any] = msgspec.json.decode(line)
    return msgspec.json.encode({"type": HEADER, "version": VERSION, **value, "cwd": value.get("cwd") or cwd})


def _linked(line: bytes, parent_id: str | None) -> bytes:
    """An entry that OpenClaw added behind an earlier colophon, which is no longer there."""
    value = decode_object(line)
    is_behind = str(value.get("parentId")).startswith(ID)
    return msgspec.json.encode({**value, "parentId": parent_id}) if is_behind else line


def _one_line(row: Row, payload: bytes) -> bytes:
    """The payload, with blanks for line breaks between its tokens; or a stand-in for what is no entry."""
    line = payload.replace(b"\r", b" ").replace(b"\n", b" ").strip()
    if isinstance(read_entry(line, 1), ForeignEntry) and not line.startswith(b"\xef\xbb\xbf"):
        return line
    return msgspec.json.encode({"type": "custom", "customType": STAND_IN, "id": row.id, "parentId": row.parent_id})


def _line_number(entry_id: str) -> int | None:
    """The number in an id that was made of a line number."""
    head, _, number = entry_id.partition("-")
    return int(number) if head == "line" and number.isdecimal() and len(number) < 12 else None
