"""Stores in memory, held to the same contract suites as SQLite's. A crash of the house does not touch them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import tzinfo

import msgspec

from palinurus.dispatch.inbox import RunRecord
from palinurus.dispatch.parcel import Parcel
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import NotFound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.ledger.usage import By, UsageRow, UsageTotal, total_by
from palinurus.sessions.extraction import Extraction, check_saved
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange, archived, changed, new_session
from palinurus.sessions.store import Hit
from palinurus.sessions.transcript import Entry, Row, SessionHeader, encode_entry, timestamp
from palinurus.sessions.words import index_text, match_query
from palinurus.storage.transcripts import said
from palinurus.testing.outbox import MemoryOutbox


class MemorySessions:
    """Implements sessions.store.SessionStore."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._clock = clock
        self._new_id = new_id
        self.usage = MemoryUsage()
        self.sessions: dict[str, Session] = {}  # by id
        self.transcripts: dict[str, list[Row]] = {}
        self.extracted: dict[str, Extraction] = {}  # by id, in the order in which they were made

    async def open(self, key: SessionKey) -> Session:
        await asyncio.sleep(0)
        known = self._by_key(key)
        if known is not None:
            return known
        now = self._clock.now_ms()
        session = new_session(self._new_id(), key, now)
        self.sessions[session.id] = session
        self.transcripts[session.id] = [_row(SessionHeader(session.id, timestamp(now)))]
        return session

    async def find(self, key: SessionKey) -> Session | None:
        await asyncio.sleep(0)
        return self._by_key(key)

    async def recent(self, *, agent: str = "", limit: int = 100, archived: bool = False) -> list[Session]:
        await asyncio.sleep(0)
        going_on = [session for session in self.sessions.values() if archived or session.archived_at is None]
        known = [session for session in going_on if agent in ("", session.agent)]
        return sorted(known, key=lambda session: (-session.updated_at, session.key))[:limit]

    async def rows(self, session_id: str, after: int = 0) -> list[Row]:
        await asyncio.sleep(0)
        return self.transcripts.get(session_id, [])[after:]

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        await asyncio.sleep(0)
        if session_id not in self.sessions:
            raise NotFound(f"there is no session {session_id!r}")
        rows, extracted = list(self.transcripts[session_id]), dict(self.extracted)
        known = {row.id for row in rows}
        if (made := change.extraction) is not None:
            if made.up_to not in known:
                raise NotFound(f"there is no entry {made.up_to!r} in session {session_id!r}")
            extracted.setdefault(made.id, made)
        fresh = [entry for entry in entries if entry.id not in known]
        for entry in fresh:
            check_saved(rows, entry, lambda: _cursor(rows, extracted, session_id))
            rows.append(_row(entry))
        self.transcripts[session_id], self.extracted = rows, extracted
        if change.spent is not None:
            self.usage.add(change.spent)
        session = changed(self.sessions[session_id], change, now=self._clock.now_ms(), entries=len(fresh))
        self.sessions[session_id] = session
        return session

    async def archive(self, session_id: str, mark: str = "") -> Session:
        await asyncio.sleep(0)
        if session_id not in self.sessions:
            raise NotFound(f"there is no session {session_id!r}")
        session = archived(self.sessions[session_id], mark, now=self._clock.now_ms())
        self.sessions[session_id] = session
        return session

    async def archived(self, key: SessionKey) -> list[Session]:
        await asyncio.sleep(0)
        ended = [each for each in self.sessions.values() if each.key == str(key) and each.archived_at is not None]
        ended.reverse()  # of those that ended at the same moment the later one comes first
        return sorted(ended, key=lambda session: -(session.archived_at or 0))

    async def cursor(self, session_id: str) -> str:
        await asyncio.sleep(0)
        return _cursor(self.transcripts.get(session_id, ()), self.extracted, session_id)

    async def extractions(self, session_id: str) -> list[Extraction]:
        await asyncio.sleep(0)
        return [made for made in self.extracted.values() if made.session_id == session_id]

    async def unplaced(self, limit: int = 100) -> list[Extraction]:
        await asyncio.sleep(0)
        waiting = [made for made in self.extracted.values() if made.private and made.notes and not made.place]
        return waiting[:limit]

    async def set_place(self, extraction_id: str, place: str) -> None:
        await asyncio.sleep(0)
        if made := self.extracted.get(extraction_id):
            self.extracted[extraction_id] = msgspec.structs.replace(made, place=place)

    def _by_key(self, key: SessionKey) -> Session | None:
        going_on = (session for session in self.sessions.values() if session.archived_at is None)
        return next((session for session in going_on if session.key == str(key)), None)


class MemoryUsage:
    """Implements ledger.usage.UsageLedger."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], UsageRow] = {}

    def add(self, row: UsageRow) -> None:
        self.rows.setdefault((row.session_key, row.entry_id), row)

    async def append(self, row: UsageRow) -> None:
        await asyncio.sleep(0)
        self.add(row)

    async def totals(
        self, by: By, *, zone: tzinfo, since: int = 0, agent: str = "", session: str = ""
    ) -> list[UsageTotal]:
        await asyncio.sleep(0)
        wanted = [row for row in self.rows.values() if row.at >= since and agent in ("", row.agent)]
        return total_by([row for row in wanted if session in ("", row.session_key)], by, zone)


class MemoryInbox:
    """Implements dispatch.inbox.Inbox."""

    def __init__(self, outbox: MemoryOutbox | None = None) -> None:
        self.outbox = outbox or MemoryOutbox()
        self.records: dict[str, RunRecord] = {}  # by run id, in the order of acceptance

    async def accept(self, record: RunRecord) -> RunRecord:
        await asyncio.sleep(0)
        for known in self.records.values():
            if known.idempotency_key == record.idempotency_key:
                return known
        self.records[record.run_id] = record
        return record

    async def begin(self, run_id: str) -> None:
        await asyncio.sleep(0)
        record = self.records[run_id]
        self.records[run_id] = msgspec.structs.replace(record, attempts=record.attempts + 1)

    async def finish(self, result: RunResult, parcel: Parcel | None = None) -> Parcel | None:
        await asyncio.sleep(0)
        record = self.records[result.run_id]
        if record.result is not None:
            return None
        self.records[result.run_id] = msgspec.structs.replace(record, result=result)
        return self.outbox.put_reply(parcel) if parcel is not None else None

    async def find(self, run_id: str) -> RunRecord | None:
        await asyncio.sleep(0)
        return self.records.get(run_id)

    async def pending(self) -> list[RunRecord]:
        await asyncio.sleep(0)
        return [record for record in self.records.values() if record.result is None]


class MemoryIndex:
    """Implements sessions.store.TranscriptIndex by reading everything each time."""

    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions

    async def search(self, query: str, *, agent: str = "", limit: int = 20) -> list[Hit]:
        await asyncio.sleep(0)
        words = [word.strip('"') for word in match_query(query).split(" OR ") if word]
        hits = [
            hit
            for session in self._sessions.sessions.values()
            if agent in ("", session.agent)
            for row in self._sessions.transcripts[session.id]
            if (hit := _match(session, row, words))
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:limit]


def _match(session: Session, row: Row, words: Sequence[str]) -> Hit | None:
    role, stamp, text = said(row)
    found = index_text(text).lower()
    score = sum(word in found for word in words)
    return Hit(session.id, session.key, row.id, role, stamp, text[:240], float(score)) if score else None


def _cursor(rows: Sequence[Row], extracted: Mapping[str, Extraction], session_id: str) -> str:
    ids = {made.up_to for made in extracted.values() if made.session_id == session_id}
    return next((row.id for row in reversed(rows) if row.id in ids), "")


def _row(entry: Entry) -> Row:
    return Row(entry.id, entry.parent_id, encode_entry(entry))
