"""The table of imports: transcripts of other homes are staged in batches and become visible in one small transaction.

The ids of entries are stored in sorted order once a transcript is complete: stored one by one, in the order in which
they arrive, they would touch pages all over a table that is far larger than the page cache.

What a compaction or a reset of the other home has put away needs a record (promise 2: nothing leaves the window of a
session without one). Its text is in the summary of that compaction.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.dispatch.pairing import Pairing, keep_pairings
from palinurus.domain.clock import Clock
from palinurus.domain.errors import NotFound, NotOffered, StorageError
from palinurus.extensions.migrate.foreign import ForeignDocument, ForeignEntry
from palinurus.operations.services import Services
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import Session
from palinurus.sessions.store import add_extraction
from palinurus.storage.database import Database
from palinurus.storage.transaction import ConstraintBroken, Transaction, declare_queries, encoded

declare_queries("imports", __file__)
PAGE = 500  # entries that are read at a time
STEP = 5_000  # entries that one transaction removes
IDS_STEP = 8_000  # ids that one transaction stores
ROWS_TOGETHER, IDS_TOGETHER = 1_200, 1_600  # of one statement: one of more than 16 KB would not be cached by SQLite
IMPORT_MARK = "import"
SEPARATOR = b"\x1e"  # follows each entry in a digest of entries
CUTS = ("compaction", "reset")
EXTRACTION_PLACE = "imported"  # of notes that are in the imported transcript and in no file here
LAST_POSITION = 2**63 - 1

EntryId = tuple[str, int, str]
"""Id, position and type of an entry."""


class Destination(Struct, frozen=True):
    """Where files go."""

    workspaces: Mapping[str, Path]  # by agent
    skills: Path  # of those that all agents share


class ImportState(Struct, frozen=True):
    """How much of a source is stored. Entries come in order, so the count says which."""

    session_id: str
    entries: int = 0
    digest: str = ""  # of these entries
    finished: bool = False
    visible: bool = False
    continued: bool = False  # the session has entries that were added here


class VisibleSession(Struct, frozen=True):
    """A session that has just become visible."""

    session_id: str
    key: str
    archived: bool
    note: str = ""  # why it is not the current session of its key although it was that


class Cut(Struct, frozen=True, rename="camel"):
    """What a compaction or reset says. `first_kept_entry_id` None: no earlier entry stays in the window."""

    first_kept_entry_id: str | None = None
    summary: str = ""


def import_store_of(services: Services) -> ImportStore:
    """Raises NotOffered for services without a database."""
    return ImportStore(database_of(services), services.clock, services.session_changed, services.index.discard)


def database_of(services: Services) -> Database:
    if services.database is None:
        raise NotOffered("this home has no database")
    database: Database = services.database
    return database


class ImportStore(Struct):
    """Stores transcripts batch by batch and makes all complete ones visible at once.

    A staged session is found by nobody, holds no key and can be removed again. When a call that writes returns, its
    data is on disk. A source is a text that names one transcript of one home for good.
    """

    database: Database
    clock: Clock
    session_changed: Callable[[str], None] = lambda _: None  # called with the id of each session that has grown
    discard_index: Callable[[], Awaitable[None]] | None = None  # drops what was derived from removed entries

    async def state(self, source: str) -> ImportState | None:
        return await self.database.read(lambda tx: _state(tx, source))

    async def adopt(self, source: str, known: ImportState) -> str:
        """All entries of a visible session are also in a transcript of another home, which may go on from there.

        Returns the source: another one if the session was imported before.
        """
        values = {"id": known.session_id, "entries": known.entries, "digest": known.digest, "at": self.clock.now_ms()}

        def work(tx: Transaction) -> str:
            named = str(tx.value("imports.source_of", id=known.session_id) or source)
            tx.run("imports.adopt", source=named, **values)
            return named

        return await self.database.write(work)

    async def begin(self, source: str, session: Session) -> ImportState:
        """Stage a transcript under the session's id, or a similar one if that id is in use."""
        at = self.clock.now_ms()

        def work(tx: Transaction) -> ImportState:
            row = replace(session, id=_free_id(tx, session.id, source), archived_at=0)
            values = {"id": row.id, "key": row.key, "agent": row.agent, "updated_at": row.updated_at}
            tx.run("imports.stage_session", **values, row=encoded(row))
            tx.expect_much(True)
            tx.run("imports.add_import", source=source, session_id=row.id, at=at)
            return ImportState(row.id)

        return await self.database.write(work)

    async def add(self, source: str, entries: Sequence[ForeignEntry], digest: str) -> None:
        """Store the next entries, and the digest of all so far. Two entries with one id are both stored."""
        at = self.clock.now_ms()

        def work(tx: Transaction) -> str:
            known = _require_state(tx, source)
            _add_entries(tx, known, entries, at)
            tx.run("imports.import_grew", source=source, count=len(entries), digest=digest, at=at)
            return known.session_id

        self.session_changed(await self.database.write(work))

    async def finish(self, source: str, session: Session, details: str) -> None:
        """Mark it as complete. `session` is its final row except for the id; `details` are fields we do not know."""
        known = await self.state(source)
        if known is not None and not known.visible:
            await self._store_ids(known.session_id)

        def work(tx: Transaction) -> str:
            known = _require_state(tx, source)
            row = replace(session, id=known.session_id, entry_count=known.entries)
            if known.visible:  # it stays what it is here: current or archived, and what was chosen for it
                before = msgspec.json.decode(tx.value("sessions.session_by_id", id=row.id), type=Session)
                row = _grown(before, row, tx.value("imports.entry_count", id=row.id))
            values = {"id": row.id, "row": encoded(row), "updated_at": row.updated_at}
            tx.run("imports.set_imported_row", **values, extra=details or None)
            tx.run("imports.import_finished", source=source)
            return row.id

        self.session_changed(await self.database.write(work))

    async def discard(self, source: str) -> None:
        """Remove a staged transcript. Raises StorageError when it is visible already."""
        known = await self.state(source)
        if known is None:
            return
        here = known.session_id
        if known.visible:
            raise StorageError(f"the session {here} is part of the home and cannot be taken back")
        await self.database.write(lambda tx: tx.run("imports.drop_extractions", id=here))
        await self.database.write(lambda tx: tx.run("imports.drop_ids", id=here))
        while await self.database.write(lambda tx: tx.run("imports.drop_some_entries", id=here, limit=STEP)):
            pass  # in steps, so that others can write in between
        await self.database.write(partial(_drop_session, session_id=here))
        if self.discard_index is not None:
            await self.discard_index()

    async def publish(self) -> list[VisibleSession]:
        """Make all complete sessions visible, in one small transaction.

        A key that is in use keeps its session; the imported one becomes an archived session of that key.
        """
        return await self.database.write(_publish)

    async def payloads(self, session_id: str) -> AsyncIterator[list[str]]:
        """The entries of a visible session, page by page; none when there is no such session."""
        values: dict[str, Any] = {"id": session_id, "after": 0, "limit": PAGE}
        while rows := await self.database.read(lambda tx: tx.all("imports.next_payloads", **values)):
            values["after"] = rows[-1][0]
            yield [payload for _, payload in rows]

    async def keep_documents(self, source: str, documents: Sequence[ForeignDocument]) -> int:
        """Store documents unchanged; returns how many were new or different."""
        rows = [{"source": source, "at": self.clock.now_ms(), **msgspec.structs.asdict(each)} for each in documents]
        return await self.database.write(lambda tx: sum(tx.run("imports.keep_document", **row) for row in rows))

    async def keep_pairings(self, pairings: Sequence[Pairing]) -> int:
        """Senders of channels who were let in elsewhere, or wait; returns how many were not known here."""
        return await self.database.write(lambda tx: keep_pairings(tx, pairings))

    async def _store_ids(self, session_id: str) -> None:
        """Store the ids of its entries, then records of what its cuts put away, which are found by id."""
        cuts = list[int]()
        with closing(_sorted_ids(self.database, session_id)) as steps:
            while step := await asyncio.to_thread(next, steps, ()):
                cuts += [position for _, position, kind in step if kind in CUTS]
                await self.database.write(partial(_store_id_step, session_id=session_id, ids=step))
        at = self.clock.now_ms()

        def record(tx: Transaction) -> None:
            for position in sorted(cuts):
                entry_id, payload = tx.one("imports.entry_at", position=position)
                _record_cut(tx, session_id, entry_id, _read_cut(payload), at, before=position)

        if cuts:
            await self.database.write(record)


def _state(tx: Transaction, source: str) -> ImportState | None:
    row = tx.one("imports.import_by_source", source=source)
    if row is None:
        return None
    session_id, entries, digest, finished, staged, continued = row
    return ImportState(session_id, entries, digest, bool(finished), not staged, bool(continued))


def _require_state(tx: Transaction, source: str) -> ImportState:
    known = _state(tx, source)
    if known is None:
        raise NotFound(f"no import was started for {source!r}")
    return known


def _grown(here: Session, there: Session, entries: int) -> Session:
    """Our row after entries of the other home were added."""
    return replace(
        here,
        entry_count=entries,
        label=here.label or there.label,
        updated_at=max(here.updated_at, there.updated_at),
        last_interaction_at=max(here.last_interaction_at, there.last_interaction_at),
        compaction_count=max(here.compaction_count, there.compaction_count),
    )


def _drop_session(tx: Transaction, session_id: str) -> None:
    tx.run("imports.drop_import", id=session_id)
    tx.run("imports.drop_session", id=session_id)


def _free_id(tx: Transaction, wanted: str, source: str) -> str:
    """The id it had; if that is in use here, with a part of the source's digest."""
    if tx.value("imports.session_id_taken", id=wanted) is None:
        return wanted
    return f"{wanted}~{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _add_entries(tx: Transaction, known: ImportState, entries: Sequence[ForeignEntry], at: int) -> None:
    """In a visible session a cut needs its record before it is stored; in a staged one `finish` writes the records."""
    start = 0
    for index, entry in enumerate(entries):
        if known.visible and entry.kind in CUTS:
            _add_rows(tx, known.session_id, entries[start:index])
            _add_cut(tx, known.session_id, entry, at)
            start = index + 1
    _add_rows(tx, known.session_id, entries[start:])


def _add_cut(tx: Transaction, session_id: str, entry: ForeignEntry, at: int) -> None:
    cut = _read_cut(entry.row.payload)
    for kept in dict.fromkeys((cut.first_kept_entry_id, None)):
        _record_cut(tx, session_id, entry.row.id, replace(cut, first_kept_entry_id=kept), at)
        try:
            _add_rows(tx, session_id, [entry])
        except ConstraintBroken:
            if kept is None:
                raise
        else:
            return


def _add_rows(tx: Transaction, session_id: str, entries: Sequence[ForeignEntry]) -> None:
    rows = [(each.row.id, each.row.parent_id, stored_kind(each), each.row.payload) for each in entries]
    for start in range(0, len(rows), ROWS_TOGETHER):
        some = rows[start : start + ROWS_TOGETHER]
        try:
            tx.insert_together("imports.add_entries", session_id, some)
        except ConstraintBroken:  # none is stored then
            for row in some:
                _add_row(tx, session_id, *row)


def _add_row(tx: Transaction, session_id: str, entry_id: str, *rest: Any) -> None:
    """An id that is in use gets a number: two different lines may have one id, and both are stored."""
    free, number = entry_id, 1
    while tx.value("sessions.position_of", session_id=session_id, id=free) is not None:
        number += 1
        free = f"{entry_id}~{number}"
    tx.insert_together("imports.add_entries", session_id, [(free, *rest)])


def stored_kind(entry: ForeignEntry) -> str:
    return "message" if entry.role or entry.is_flat else entry.kind


def _publish(tx: Transaction) -> list[VisibleSession]:
    tx.expect_much(False)
    visible = []
    for session_id, row in tx.all("imports.finished_sessions"):
        session = msgspec.json.decode(row, type=Session)
        note = ""
        if session.archived_at is None and tx.value("imports.key_in_use", key=session.key):
            note = "another session uses its key here; this one is stored as an archived session"
            session = replace(session, archived_at=session.updated_at, archive_mark=IMPORT_MARK)
        tx.run("imports.show_session", id=session_id, archived_at=session.archived_at, row=encoded(session))
        visible.append(VisibleSession(session_id, session.key, session.archived_at is not None, note))
    return visible


def _sorted_ids(database: Database, session_id: str) -> Generator[Sequence[EntryId], None, None]:
    """The ids of a session's entries, a step at a time, as they were when the first step was read."""
    with database.apart() as tx:
        tx.run("imports.sort_ids", id=session_id)  # a temporary table: a long read would hold up the write-ahead log
        found = tx.each("imports.sorted_ids")
        while step := list(islice(found, IDS_STEP)):
            yield step


def _store_id_step(tx: Transaction, session_id: str, ids: Sequence[EntryId]) -> None:
    """Ids that are stored already stay; the second of two equal ids gets a number."""
    pairs = [(entry_id, position) for entry_id, position, _ in ids]
    for start in range(0, len(pairs), IDS_TOGETHER):
        some = pairs[start : start + IDS_TOGETHER]
        try:
            tx.insert_together("imports.enter_ids", session_id, some)
        except ConstraintBroken:  # none is stored then
            for entry_id, position in some:
                _store_id(tx, session_id, entry_id, position)


def _store_id(tx: Transaction, session_id: str, entry_id: str, position: int) -> None:
    free, number = entry_id, 1
    while (found := tx.value("imports.id_position", session_id=session_id, id=free)) is not None:
        if found == position:
            return
        number += 1
        free = f"{entry_id}~{number}"
    if free != entry_id:
        tx.run("imports.rename_entry", position=position, id=free)
    tx.insert_together("imports.enter_ids", session_id, [(free, position)])


def _read_cut(payload: str) -> Cut:
    try:
        return msgspec.json.decode(payload, type=Cut)
    except (msgspec.DecodeError, RecursionError):
        return Cut()


def _record_cut(
    tx: Transaction, session_id: str, entry_id: str, cut: Cut, at: int, before: int = LAST_POSITION
) -> None:
    """`before` is the position of the cut; by default it comes after all stored entries."""
    kept = cut.first_kept_entry_id
    up_to = tx.value("imports.cut_before", session_id=session_id, kept=kept, cut=before)
    if up_to is None:
        return
    made = Extraction(
        id=hashlib.sha256(f"{session_id}\0{entry_id}\0{up_to}".encode()).hexdigest()[:32],
        session_id=session_id,
        up_to=str(up_to),
        notes=cut.summary,
        made_by="model" if cut.summary else "extractor",
        private=False,
        day="",
        at=at,
        place=EXTRACTION_PLACE,
    )
    add_extraction(tx, made)
