"""The sessions of one agent that are rows: `openclaw-agent.sqlite`, from 2026.8 on.

`session_nodes` holds the keys, `session_windows` the conversations that have stood under them, `transcript_events`
what was said: as JSON, or as zstd when it is long. What was deleted or reset is a packed file in a row of its own.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.migrate.foreign import ForeignEntry, ForeignSession
from palinurus.migrate.openclaw.colophon import is_colophon
from palinurus.migrate.openclaw.database import Damage, ForeignDatabase, told
from palinurus.migrate.openclaw.entries import read_entry
from palinurus.migrate.openclaw.lines import MAX_LINE, file_lines, packed_lines, stream_lines
from palinurus.migrate.openclaw.store import SESSION_ID, StoredRow, agent_key, read_row
from palinurus.migrate.openclaw.transcripts import entries_of
from palinurus.migrate.report import Losses, Origin

FILE = "agent/openclaw-agent.sqlite"
COLD = "cold"
_NODES = """SELECT CAST(session_key AS BLOB), CAST(entry_json AS BLOB), CAST(current_session_id AS BLOB)
FROM session_nodes ORDER BY rowid"""
_WINDOWS = "SELECT CAST(session_id AS BLOB), CAST(session_key AS BLOB) FROM session_windows ORDER BY rowid"
_IDS = "SELECT DISTINCT session_id FROM transcript_events"
_SIZE = "SELECT sum(length(event_json)) FROM transcript_events WHERE session_id = ?"
_SIZE_PACKED = """SELECT sum(coalesce(length(event_json), event_utf8_bytes)) FROM transcript_events
WHERE session_id = ?"""
_EVENTS = "SELECT seq, CAST(event_json AS BLOB), NULL FROM transcript_events WHERE session_id = ? ORDER BY seq"
_EVENTS_PACKED = _EVENTS.replace("NULL", "event_zstd")
_ARCHIVES = """SELECT rowid, CAST(session_id AS BLOB), CAST(session_key AS BLOB), reason, CAST(archive_name AS BLOB),
length(archive_blob) FROM session_transcript_archives ORDER BY rowid"""
_ARCHIVE = "SELECT encoding, archive_blob FROM session_transcript_archives WHERE rowid = ?"
_COLD = "SELECT CAST(session_id AS BLOB), CAST(archive_name AS BLOB) FROM session_transcript_cold_archives"
_COLD_BLOB = "SELECT archive_blob FROM session_transcript_cold_archives WHERE session_id = ?"


class AgentDatabase:
    """Reads one agent's database; `folder` is that of its session files, which cold archives lie below."""

    def __init__(self, database: ForeignDatabase, folder: Path, agent: str, losses: Losses) -> None:
        self._database = database
        self._folder = folder
        self._agent = agent
        self._losses = losses
        self._packed = database.has("transcript_events", "event_zstd", "event_utf8_bytes")
        self._cold = self._cold_archives()
        self.known: set[str] = set()  # ids of sessions and names of archives that are told here

    @property
    def holds_sessions(self) -> bool:
        return self._database.has("transcript_events", "session_id", "seq", "event_json")

    def sessions(self) -> Iterator[ForeignSession]:
        """Those that stand under a key, the earlier ones of those keys, what nobody names, and the archives."""
        self._examine()
        current: dict[str, str] = {}
        for row in self._nodes():
            first = current.setdefault(row.session_id, row.key)
            yield self._session(
                row, "live" if row.archived_at is None else "earlier", "" if first == row.key else first
            )
        for session_id, key in self._windows():
            if session_id not in self.known:
                yield self._session(StoredRow(key, session_id, ""), "earlier")
        for session_id in self._event_ids():
            if session_id not in self.known and SESSION_ID.fullmatch(session_id):
                key = agent_key(self._agent, f"explicit:{session_id}")
                yield self._session(StoredRow(key, session_id, ""), "unreferenced")
        yield from self._archives()

    def _session(self, row: StoredRow, origin: Origin, same_as: str = "") -> ForeignSession:
        self.known.add(row.session_id)
        return ForeignSession(
            agent=self._agent,
            key=row.key,
            session_id=row.session_id,
            origin=origin,
            file=f"{self._database.shown}#{row.session_id}",
            read=self._reader(row.session_id),
            size=self._size(row.session_id),
            details=row.details,
            label=row.label,
            updated_at=row.updated_at,
            same_as=same_as,
        )

    def _examine(self) -> None:
        """Say when the file is damaged: rows that SQLite can no longer reach would be missed by nobody."""
        for table in ("session_nodes", "session_windows", "transcript_events"):
            with told(self._database.shown, self._losses, f"the table {table}"):
                if table in self._database.tables:
                    for (answer,) in self._database.rows(f"PRAGMA quick_check({table})"):
                        if answer != "ok":
                            self._losses.add(self._database.shown, 0, f"the table {table} is damaged: {answer}"[:300])
                            break

    def _nodes(self) -> Iterator[StoredRow]:
        shown = self._database.shown
        with told(shown, self._losses, "the table of sessions"):
            if self._database.has("session_nodes", "session_key", "entry_json", "current_session_id"):
                for key, entry, current in self._database.rows(_NODES):
                    row = read_row(self._agent, _text(key), _text(entry), f"{shown}#{_text(key)}", self._losses)
                    if row is None:
                        row = self._bare(_text(key), _text(current))
                    if row is not None:
                        yield row

    def _bare(self, key: str, session_id: str) -> StoredRow | None:
        """A row whose details are damaged; its conversation need not be."""
        try:
            return StoredRow(agent_key(self._agent, key), session_id, "") if SESSION_ID.fullmatch(session_id) else None
        except BadRequest:
            return None

    def _windows(self) -> Iterator[tuple[str, str]]:
        with told(self._database.shown, self._losses, "the table of earlier conversations"):
            if self._database.has("session_windows", "session_id", "session_key"):
                for session_id, key in self._database.rows(_WINDOWS):
                    row = self._bare(_text(key), _text(session_id))
                    if row is not None:
                        yield row.session_id, row.key

    def _event_ids(self) -> list[str]:
        ids: list[str] = []
        with told(self._database.shown, self._losses, "the index of what was said"):
            ids += [found for (found,) in self._database.rows(_IDS) if isinstance(found, str)]
        return ids

    def _size(self, session_id: str) -> int:
        with told(self._database.shown, self._losses, f"the size of session {session_id}"):
            for (size,) in self._database.rows(_SIZE_PACKED if self._packed else _SIZE, (session_id,)):
                return size if isinstance(size, int) else 0
        return 0

    def _reader(self, session_id: str) -> Callable[[], Iterator[ForeignEntry]]:
        return lambda: self._entries(session_id)

    def _entries(self, session_id: str) -> Iterator[ForeignEntry]:
        if session_id in self._cold:
            yield from self._cold_entries(session_id)
        shown, seq = f"{self._database.shown}#{session_id}", -1
        try:
            for seq, text, packed in self._database.rows(_EVENTS_PACKED if self._packed else _EVENTS, (session_id,)):
                number = seq + 1 if isinstance(seq, int) else 0
                data = text if isinstance(text, bytes) else _unpacked(packed)
                entry = read_entry(data, number) if isinstance(data, bytes) else data
                if isinstance(entry, str):
                    self._losses.add(shown, number, entry)
                elif not is_colophon(entry):  # which OpenClaw has taken in with a tree of ours
                    yield entry
        except Damage as error:
            self._losses.add(shown, (seq if isinstance(seq, int) else 0) + 2, f"from here on it is damaged: {error}")

    def _archives(self) -> Iterator[ForeignSession]:
        columns = ("session_id", "session_key", "reason", "archive_name", "encoding", "archive_blob")
        with told(self._database.shown, self._losses, "the table of archives"):
            if not self._database.has("session_transcript_archives", *columns):
                return
            for number, session_id, key, reason, name, size in self._database.rows(_ARCHIVES):
                row = self._bare(_text(key), _text(session_id))
                if row is None:
                    self._losses.add(f"{self._database.shown}#archive-{number}", 0, "it names no session")
                    continue
                shown = f"{self._folder_shown}/{_text(name)}"
                self.known.add(_text(name))
                origin: Origin = "reset" if reason == "reset" else "deleted"
                read = self._archive_reader(number, shown)
                yield ForeignSession(self._agent, row.key, row.session_id, origin, shown, read, size or 0)

    @property
    def _folder_shown(self) -> str:
        return f"{self._database.shown.removesuffix(FILE)}sessions"

    def _archive_reader(self, number: int, shown: str) -> Callable[[], Iterator[ForeignEntry]]:
        def read() -> Iterator[ForeignEntry]:
            with told(shown, self._losses, "the archive"):
                for encoding, blob in self._database.rows(_ARCHIVE, (number,)):
                    yield from self._blob_entries(blob, encoding == "zstd", shown)

        return read

    def _blob_entries(self, blob: Any, packed: bool, shown: str) -> Iterator[ForeignEntry]:
        if not isinstance(blob, bytes):
            self._losses.add(shown, 0, "the archive is empty")
            return
        stream = io.BytesIO(blob)
        lines = packed_lines(stream, len(blob), shown, self._losses) if packed else None
        yield from entries_of(lines or stream_lines(stream, shown, self._losses), shown, self._losses)

    def _cold_archives(self) -> dict[str, str]:
        """Which session lies in which file of `sessions/cold`."""
        with told(self._database.shown, self._losses, "the table of cold archives"):
            if self._database.has("session_transcript_cold_archives", "session_id", "archive_name", "archive_blob"):
                return {_text(session_id): _text(name) for session_id, name in self._database.rows(_COLD)}
        return {}

    def _cold_entries(self, session_id: str) -> Iterator[ForeignEntry]:
        name = self._cold[session_id]
        shown = f"{self._folder_shown}/{COLD}/{name}"
        with told(shown, self._losses, "the cold archive"):
            for (blob,) in self._database.rows(_COLD_BLOB, (session_id,)):
                if isinstance(blob, bytes):
                    lines = packed_lines(io.BytesIO(blob), len(blob), shown, self._losses)
                elif "/" in name or name in (".", ".."):
                    return
                else:
                    lines = file_lines(self._folder / COLD / name, shown, self._losses)
                yield from entries_of(unwrapped(lines), shown, self._losses)


class _Record(Struct):
    kind: str = ""
    event: msgspec.Raw = msgspec.Raw(b"")


_records = msgspec.json.Decoder(_Record)


def unwrapped(lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The events of a cold archive, whose lines may be records that hold them."""
    for number, data in lines:
        try:
            record = _records.decode(data)
        except (msgspec.DecodeError, RecursionError):
            yield number, data
            continue
        if record.kind == "event" and bytes(record.event):
            yield number, bytes(record.event)
        elif record.kind not in ("header", "identity"):
            yield number, data


def _unpacked(packed: Any) -> bytes | str:
    """The text of a packed row, or what is wrong with it."""
    import zstandard

    if not isinstance(packed, bytes):
        return "the row is empty"
    try:
        if zstandard.frame_content_size(packed) > MAX_LINE:
            return f"the row is larger than {MAX_LINE >> 20} MB"
        return zstandard.ZstdDecompressor(max_window_size=MAX_LINE).decompress(packed, max_output_size=MAX_LINE)
    except zstandard.ZstdError as error:
        return f"the compressed row is damaged: {error}"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
