"""The sessions of one agent that are rows: `openclaw-agent.sqlite`, from 2026.8 on.

`session_nodes` has the keys, `session_windows` all sessions that a key has had, `transcript_events` the entries: as
JSON, or as zstd when they are long. A deleted or reset session is a compressed file in a row of its own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.errors import BadRequest
from palinurus.extensions.migrate.files import MAX_LINE, Line, file_lines, stream_lines, zstd_lines
from palinurus.extensions.migrate.foreign import ForeignEntry, ForeignSession
from palinurus.extensions.migrate.openclaw.colophon import ID, Colophon, decode_colophon
from palinurus.extensions.migrate.openclaw.database import Damage, ForeignDatabase, text_of
from palinurus.extensions.migrate.openclaw.transcripts import (
    SESSION_ID,
    agent_key,
    entries_of,
    own_entries,
    own_row,
    read_row,
)
from palinurus.extensions.migrate.report import Origin

FILE = "agent/openclaw-agent.sqlite"
COLD = "cold"
_NODES = """SELECT CAST(session_key AS BLOB), CAST(entry_json AS BLOB), CAST(current_session_id AS BLOB)
FROM session_nodes ORDER BY rowid"""
_WINDOWS = "SELECT CAST(session_id AS BLOB), CAST(session_key AS BLOB) FROM session_windows ORDER BY rowid"
_NODE_COLUMNS = ("session_nodes", "session_key", "entry_json", "current_session_id")
_WINDOW_COLUMNS = ("session_windows", "session_id", "session_key")
_IDS = "SELECT DISTINCT session_id FROM transcript_events"
_SIZES = "SELECT session_id, sum(length(event_json)) FROM transcript_events GROUP BY session_id"
_SIZES_PACKED = _SIZES.replace("length(event_json)", "coalesce(length(event_json), event_utf8_bytes)")
_EVENTS = "SELECT seq, CAST(event_json AS BLOB), NULL FROM transcript_events WHERE session_id = ? ORDER BY seq"
_EVENTS_PACKED = _EVENTS.replace("NULL", "event_zstd")
_MARKED = """SELECT CAST(e.session_id AS BLOB), CAST(e.event_json AS BLOB), NULL FROM transcript_event_identities i
JOIN transcript_events e ON e.session_id = i.session_id AND e.seq = i.seq WHERE i.event_id GLOB ? ORDER BY e.seq"""
_MARKED_PACKED = _MARKED.replace("NULL", "e.event_zstd")
_ARCHIVES = """SELECT rowid, CAST(session_id AS BLOB), CAST(session_key AS BLOB), reason, CAST(archive_name AS BLOB),
length(archive_blob) FROM session_transcript_archives ORDER BY rowid"""
_ARCHIVE_COLUMNS = ("session_id", "session_key", "reason", "archive_name", "encoding", "archive_blob")
_ARCHIVE = "SELECT encoding, archive_blob FROM session_transcript_archives WHERE rowid = ?"
_COLD = "SELECT CAST(session_id AS BLOB), CAST(archive_name AS BLOB) FROM session_transcript_cold_archives"
_COLD_COLUMNS = ("session_transcript_cold_archives", "session_id", "archive_name", "archive_blob")
_COLD_BLOB = "SELECT archive_blob FROM session_transcript_cold_archives WHERE session_id = ?"


class AgentDatabase:
    """Reads one agent's database; `folder` has its session files, and a folder with cold archives."""

    def __init__(self, database: ForeignDatabase, folder: Path, agent: str) -> None:
        self._database = database
        self._folder = folder
        self._agent = agent
        self._losses = database.losses
        self._packed = database.has("transcript_events", "event_zstd", "event_utf8_bytes")
        self._shown = database.shown
        self._folder_shown = f"{database.shown.removesuffix(FILE)}sessions"
        cold = database.read(_COLD, "the table of cold archives", needs=_COLD_COLUMNS)
        self._cold = {text_of(session_id): text_of(name) for session_id, name in cold}  # files in `sessions/cold`
        self._sizes: dict[str, int] = {}  # bytes by session id
        self._colophons: dict[str, Colophon] = {}  # of sessions that a Palinurus had exported, by session id
        self.known: set[str] = set()  # ids of sessions and names of archives that were returned

    def sessions(self) -> Iterator[ForeignSession]:
        """The current session of each key, earlier ones, those without a key, and archives."""
        if not self._database.has("transcript_events", "session_id", "seq", "event_json"):
            return
        self._check_tables()
        sizes = self._database.read(_SIZES_PACKED if self._packed else _SIZES, "the size of the sessions")
        self._sizes = {named: size for named, size in sizes if isinstance(named, str) and isinstance(size, int)}
        self._colophons = self._find_colophons()
        first_keys: dict[str, str] = {}
        for row in self._nodes():
            first = first_keys.setdefault(row.session_id, row.key)
            yield replace(self._session(row), same_as="" if first == row.key else first)
        for session_id, key in self._database.read(_WINDOWS, "the table of earlier sessions", needs=_WINDOW_COLUMNS):
            window = self._row(key, session_id, "earlier")
            if window is not None and window.session_id not in self.known:
                yield self._session(window)
        for (session_id,) in list(self._database.read(_IDS, "the index of what was said")):
            if isinstance(session_id, str) and session_id not in self.known and SESSION_ID.fullmatch(session_id):
                key = agent_key(self._agent, f"explicit:{session_id}")
                yield self._session(ForeignSession(self._agent, key, session_id, "unreferenced"))
        yield from self._archives()

    def _session(self, row: ForeignSession) -> ForeignSession:
        self.known.add(row.session_id)
        file, size = f"{self._shown}#{row.session_id}", self._sizes.get(row.session_id, 0)
        colophon = self._colophons.get(row.session_id)
        own = own_row(colophon, self._agent) if colophon is not None else None
        if own is None or colophon is None or own.session_id != row.session_id or own.key != row.key:
            lines = partial(self._lines, row.session_id)
            return replace(row, file=file, read=lambda: entries_of(lines(), file, self._losses), size=size)
        read = partial(own_entries, partial(self._lines, row.session_id), file, self._losses, colophon)
        return replace(row, file=file, read=read, size=size, own=own.own, extra=own.extra)

    def _find_colophons(self) -> dict[str, Colophon]:
        """OpenClaw imports an export of ours with its colophons."""
        needs = ("transcript_event_identities", "session_id", "seq", "event_id")
        sql, found = _MARKED_PACKED if self._packed else _MARKED, {}
        for session_id, text, packed in self._database.read(sql, "the index of entries", (f"{ID}*",), needs=needs):
            data = text if isinstance(text, bytes) else _unpack(packed)
            if isinstance(data, bytes) and (colophon := decode_colophon(data)) is not None:
                found[text_of(session_id)] = colophon
        return found

    def _check_tables(self) -> None:
        """Report a damaged file: nothing else would notice rows that SQLite can no longer reach."""
        for table in ("session_nodes", "session_windows", "transcript_events"):
            answers = self._database.read(f"PRAGMA quick_check({table})", f"the table {table}", needs=(table,))
            if damage := next((answer for (answer,) in answers if answer != "ok"), ""):
                self._losses.add(self._shown, 0, f"the table {table} is damaged: {damage}"[:300])

    def _nodes(self) -> Iterator[ForeignSession]:
        for key, entry, current in self._database.read(_NODES, "the table of sessions", needs=_NODE_COLUMNS):
            where = f"{self._shown}#{text_of(key)}"
            row = read_row(self._agent, text_of(key), text_of(entry), where, self._losses)
            if row := row or self._row(key, current, "live"):  # the details may be damaged; the session need not be
                yield row

    def _row(self, key: Any, session_id: Any, origin: Origin) -> ForeignSession | None:
        """A session without details; None when the row names none."""
        named = text_of(session_id)
        with suppress(BadRequest):
            if SESSION_ID.fullmatch(named):
                return ForeignSession(self._agent, agent_key(self._agent, text_of(key)), named, origin)
        return None

    def _lines(self, session_id: str) -> Iterator[Line]:
        if session_id in self._cold:
            yield from self._cold_lines(session_id)
        shown, seq = f"{self._shown}#{session_id}", -1
        try:
            for seq, text, packed in self._database.rows(_EVENTS_PACKED if self._packed else _EVENTS, (session_id,)):
                number = seq + 1 if isinstance(seq, int) else 0
                data = text if isinstance(text, bytes) else _unpack(packed)
                if isinstance(data, str):
                    self._losses.add(shown, number, data)
                else:
                    yield number, data
        except Damage as error:
            self._losses.add(shown, (seq if isinstance(seq, int) else 0) + 2, f"from here on it is damaged: {error}")

    def _archives(self) -> Iterator[ForeignSession]:
        needs = ("session_transcript_archives", *_ARCHIVE_COLUMNS)
        rows = self._database.read(_ARCHIVES, "the table of archives", needs=needs)
        for number, session_id, key, reason, name, size in rows:
            row = self._row(key, session_id, "reset" if reason == "reset" else "deleted")
            if row is None:
                self._losses.add(f"{self._shown}#archive-{number}", 0, "it names no session")
                continue
            self.known.add(text_of(name))
            shown = f"{self._folder_shown}/{text_of(name)}"
            yield replace(row, file=shown, read=partial(self._archived, number, shown), size=size or 0)

    def _archived(self, number: int, shown: str) -> Iterator[ForeignEntry]:
        for encoding, blob in self._database.read(_ARCHIVE, "the archive", (number,), shown=shown):
            if not isinstance(blob, bytes):
                self._losses.add(shown, 0, "the archive is empty")
                continue
            stream = io.BytesIO(blob)
            packed = zstd_lines(stream, len(blob), shown, self._losses) if encoding == "zstd" else None
            yield from entries_of(packed or stream_lines(stream, shown, self._losses), shown, self._losses)

    def _cold_lines(self, session_id: str) -> Iterator[Line]:
        name = self._cold[session_id]
        shown = f"{self._folder_shown}/{COLD}/{name}"
        for (blob,) in self._database.read(_COLD_BLOB, "the cold archive", (session_id,), shown=shown):
            if isinstance(blob, bytes):
                lines = zstd_lines(io.BytesIO(blob), len(blob), shown, self._losses)
            elif "/" in name or name in (".", ".."):
                return
            else:
                lines = file_lines(self._folder / COLD / name, shown, self._losses)
            yield from _unwrap(lines)


class _ColdRecord(Struct):
    kind: str = ""
    event: msgspec.Raw = msgspec.Raw(b"")


_cold_records = msgspec.json.Decoder(_ColdRecord)


def _unwrap(lines: Iterator[Line]) -> Iterator[Line]:
    """The events of a cold archive, whose lines may be records that hold them."""
    for number, data in lines:
        record = _ColdRecord()
        with suppress(msgspec.DecodeError, RecursionError):
            record = _cold_records.decode(data)
        if record.kind == "event" and bytes(record.event):
            yield number, bytes(record.event)
        elif record.kind not in ("header", "identity"):
            yield number, data


def _unpack(packed: Any) -> bytes | str:
    """The text of a compressed row, or what is wrong with it."""
    import zstandard

    if not isinstance(packed, bytes):
        return "the row is empty"
    try:
        if zstandard.frame_content_size(packed) > MAX_LINE:
            return f"the row is larger than {MAX_LINE >> 20} MB"
        return zstandard.ZstdDecompressor(max_window_size=MAX_LINE).decompress(packed, max_output_size=MAX_LINE)
    except zstandard.ZstdError as error:
        return f"the compressed row is damaged: {error}"
