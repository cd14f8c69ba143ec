"""Forget words in `home.sqlite`: read every row, change rows in one transaction, then rewrite the file.

Packages declare which of their tables hold words and how words are removed there. Only sessions and their entries are
known here by name.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from palinurus.domain.errors import NotOffered
from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.domain.text_places import Scope, Spot, Stored, TextRows, Words, forget_in_json, strings_in, unescaped
from palinurus.operations.services import Services
from palinurus.sessions.session import NO_CHANGE, Session, changed
from palinurus.sessions.store import add_entry, extraction_of
from palinurus.sessions.transcript import FORGOTTEN, CustomEntry, Row, decode_row, timestamp
from palinurus.storage.transaction import Transaction, declare_queries, encoded, load_queries

declare_queries("forgetting", __file__)
T = TypeVar("T")

ENTRIES = "entries"
WRITES_NOTES = ("memory_write", "memory_retain", "write", "edit", "append")
ROUNDS = 5
NO_ROWS = "(SELECT '' AS at)"  # in whose place the query of a table is put
QUOTED = 20  # rows of a table
PROGRESS_ROWS = 1000
ELSEWHERE = "the same words are there from another source or as a name"

Tell = Callable[[int, int], None]
"""Called with how many of how many rows were read, from any thread. Must not raise."""

EachRow = Callable[[Iterable[Any]], Iterator[Any]]
"""Passes rows on."""

Keys = dict[str, list[int]]
"""By table, the keys of rows that hold the words."""


class MatchedSession(Struct, frozen=True):
    id: str
    key: str


class SessionSources(Struct, frozen=True):
    """Text of the sessions, as far as it can be found in other places."""

    runs: frozenset[str]
    notes: tuple[str, ...]  # texts that were written to memory
    note_ids: tuple[str, ...]  # of records of notes, which mark notes in files
    said: tuple[str, ...]  # by a person


class WordMatches(Struct, frozen=True):
    """Where the words are in the database."""

    rows: Keys
    sessions: tuple[MatchedSession, ...] = ()  # whose transcripts hold it
    since: int = 0  # time of the first message with them, in milliseconds; 0: unknown
    quotes: dict[str, tuple[str, ...]] = {}  # by table: the words as the first rows have them


class WordTable:
    """A table that holds words, with its queries."""

    def __init__(self, declared: TextRows) -> None:
        self.declared = declared
        self.name = declared.table
        declare_queries(declared.noun, declared.module)
        names = load_queries(declared.noun)
        how = next((how for how in ("set", "drop") if f"{how}_{self.name}" in names), "")
        self.change = how and f"{declared.noun}.{how}_{self.name}"  # the query; empty: nothing changes here
        self.is_removed = how == "drop"
        self._find = f"{declared.noun}.find_{self.name}"

    def changes(
        self, tx: Transaction, scope: Scope, only: list[int] | None = None, each_row: EachRow = iter
    ) -> Iterator[tuple[int, list[str | None]]]:
        """Keys and new texts of the rows that change."""
        rows: Any = tx.each(self._find) if only is None else self.among(tx, only)
        clean = self.declared.clean
        for key, session_id, session_key, run_id, *texts in each_row(rows):
            whole = session_id in scope.sessions or session_key in scope.keys or run_id in scope.runs
            if whole or scope.covers(session_key or ""):
                new = [None if text is None else clean(text, scope.words, whole=whole) for text in texts]
                if new != texts:
                    yield key, new

    def among(self, tx: Transaction, keys: list[int]) -> list[Stored]:
        """The rows with these keys."""
        wanted = tx.sql("forgetting.chosen").replace(NO_ROWS, f"({tx.sql(self._find).rstrip().removesuffix(';')})")
        return tx.execute(wanted, {"keys": json.dumps(keys)}).fetchall() if keys else []


class WordRows:
    """The database of a home. Failures raise StorageError, and then the call has changed nothing."""

    def __init__(self, services: Services, places: Sequence[TextRows]) -> None:
        if services.database is None:
            raise NotOffered("this home has no database")
        self._services = services
        self._database = services.database
        self._tables = [WordTable(place) for place in places]

    async def sessions(self, which: str) -> list[MatchedSession]:
        """All sessions of a key, archived ones too, or the one with this id."""

        rows = await self._database.read(lambda tx: tx.all("forgetting.sessions_called", which=which))
        return [MatchedSession(*row) for row in rows]

    async def sources(self, sessions: frozenset[str]) -> SessionSources:
        return await self._read_apart(lambda tx: _sources(tx, sessions))

    async def look(self, scope: Scope, tell: Tell = lambda _, __: None) -> WordMatches:
        """Find all rows. Reads on its own connection, however long it takes."""

        def work(tx: Transaction) -> WordMatches:
            keys = self._keys(tx, scope, tell)
            return msgspec.structs.replace(_matches(tx, keys), quotes=self._quotes(tx, scope, keys))

        return await self._read_apart(work)

    def spots(self, looked: WordMatches, *, quoting: bool) -> list[Spot]:
        """Where the words are, for people."""
        spots = []
        for each in (table.declared for table in self._tables):
            quotes = looked.quotes.get(each.table, ()) if quoting else ()
            if count := len(looked.rows[each.table]):
                spots.append(Spot(f"home.sqlite: {each.called}", each.action, count, quotes=quotes))
        return spots

    async def prepare(self, looked: WordMatches) -> None:
        """Call what the owners of tables have declared to run before rows change."""
        for table in self._tables:
            keys = looked.rows[table.name]
            if table.declared.before is not None and keys:
                rows = await self._read_apart(lambda tx, table=table, keys=keys: table.among(tx, keys))  # type: ignore[misc]
                await table.declared.before(self._services, rows)

    async def forget(self, scope: Scope, forgetting: str) -> None:
        """Remove the words, in one transaction; entries keep their positions."""
        changing = [table for table in self._tables if table.change]
        now = self._services.clock.now_ms()
        for _ in range(ROUNDS):  # the next round finds messages added meanwhile
            keys = await self._read_apart(lambda tx: self._keys(tx, scope))
            if not any(keys[table.name] for table in changing):
                break
            work = partial(_forget, scope=scope, forgetting=forgetting, now=now, keys=keys, tables=changing)
            found: WordMatches = await self._database.write(work)
            for session in found.sessions:
                self._services.session_changed(session.id)

    async def scrub(self) -> None:
        """Drop the index of transcripts and rewrite the file: no byte of removed words stays in it or in its log."""
        await self._services.index.discard()
        await self._database.scrub(rewrite=True)

    async def remains(self, words: Words, tell: Tell = lambda _, __: None) -> list[Spot]:
        """Every column of every table that still holds the words, and in how many rows."""
        found = await self._read_apart(lambda tx: _remains(tx, words, tell))
        kept = {name: why for table in self._tables for name, why in table.declared.kept.items()}
        reasons = {name: kept.get(name) or kept.get(name.partition(".")[0]) or ELSEWHERE for name in found}
        return [Spot(f"home.sqlite {name}", "stays", count, reasons[name]) for name, count in found.items()]

    def _keys(self, tx: Transaction, scope: Scope, tell: Tell = lambda _, __: None) -> Keys:
        each_row = _row_progress(tx, tell)
        return {table.name: [key for key, _ in table.changes(tx, scope, each_row=each_row)] for table in self._tables}

    def _quotes(self, tx: Transaction, scope: Scope, keys: Keys) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for table in self._tables:
            rows = table.among(tx, keys[table.name][:QUOTED])
            texts = [unescaped(text) for row in rows for text in row[4:] if text]
            found[table.name] = tuple(dict.fromkeys(quote for text in texts for quote in scope.words.quotes(text)))
        return found

    async def _read_apart(self, work: Callable[[Transaction], T]) -> T:
        """On its own connection and thread: it may take long, and others need not wait for it."""
        await self._database.flush()

        def read() -> T:
            with self._database.apart() as tx:
                return work(tx)

        return await asyncio.to_thread(read)


def _forget(
    tx: Transaction, scope: Scope, forgetting: str, now: int, keys: Keys, tables: Sequence[WordTable]
) -> WordMatches:
    matches = _matches(tx, keys)
    counts = {table: len(found) for table, found in keys.items() if found}
    tx.run("forgetting.begin_forgetting", id=forgetting, at=now, row=json.dumps(counts))
    with tx.overwriting():
        for table in tables:
            found = keys[table.name]
            rows = [(key, []) for key in found] if table.is_removed else table.changes(tx, scope, found)
            for key, texts in rows:
                tx.execute(tx.sql(table.change), (key, *texts))
    for session in matches.sessions:
        _leave_tombstone(tx, session.id, forgetting, now)
    tx.run("forgetting.end_forgetting", id=forgetting)
    return matches


def _leave_tombstone(tx: Transaction, session_id: str, forgetting: str, now: int) -> None:
    row, tail, count = tx.one("forgetting.session_and_tail", id=session_id)
    entry = CustomEntry(
        id=f"{forgetting}-{count}",
        timestamp=timestamp(now),
        parent_id=tail,
        custom_type=FORGOTTEN,
        data={"forgetting": forgetting},
    )
    add_entry(tx, session_id, entry)
    session = msgspec.json.decode(row, type=Session)
    grown = changed(session, NO_CHANGE, now=session.updated_at, entries=1)
    tx.run("forgetting.keep_session", id=session_id, row=encoded(grown))


def _row_progress(tx: Transaction, tell: Tell) -> EachRow:
    """Counts rows of all tables against the number of entries, which are most of a home."""
    total = tx.value("forgetting.entries_in_all")
    done = 0

    def each_row(rows: Iterable[Any]) -> Iterator[Any]:
        nonlocal done
        for row in rows:
            done += 1
            if done % PROGRESS_ROWS == 0:
                tell(min(done, total), total)
            yield row

    return each_row


def _matches(tx: Transaction, keys: Keys) -> WordMatches:
    entries = json.dumps(keys.get(ENTRIES, []))
    sessions = tuple(MatchedSession(*row) for row in tx.all("forgetting.conversations_of", keys=entries))
    try:
        first = datetime.fromisoformat(tx.value("forgetting.first_said", keys=entries))
    except (TypeError, ValueError):
        return WordMatches(keys, sessions)
    return WordMatches(keys, sessions, int(first.timestamp() * 1000))


def _sources(tx: Transaction, sessions: frozenset[str]) -> SessionSources:
    ids = sorted(sessions)
    runs = frozenset(run for (run,) in tx.all("forgetting.runs_in", sessions=json.dumps(ids)))
    notes: list[str] = []
    said: list[str] = []
    for session_id in ids:
        for row in tx.each("sessions.entries_of", session_id=session_id, after=0):
            message = getattr(decode_row(Row(*row)), "message", None)
            if isinstance(message, UserMessage):
                said.append(message.text)
            elif isinstance(message, AssistantMessage):
                notes += [text for call in message.calls for text in _written_notes(call.name, call.arguments)]
    made = [extraction_of(*row) for each in ids for row in tx.each("sessions.extractions_of", session_id=each)]
    notes += [each.notes for each in made]
    return SessionSources(runs, tuple(filter(None, notes)), tuple(each.id for each in made), tuple(said))


def _written_notes(tool: str, arguments: dict[str, Any]) -> list[str]:
    """What a tool call has written to memory."""
    path = str(arguments.get("path", ""))
    if tool not in WRITES_NOTES or (not tool.startswith("memory_") and not path.lower().startswith("memory")):
        return []
    return [text for name, value in arguments.items() if name != "path" for text in strings_in(value)]


def _remains(tx: Transaction, words: Words, tell: Tell) -> dict[str, int]:
    found: Counter[str] = Counter()
    each_row = _row_progress(tx, tell)
    for table, column in tx.all("forgetting.text_columns"):
        everything = f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'  # noqa: S608  # names of our own schema
        rows = tx.each_of(everything)
        for (value,) in each_row(rows) if (table, column) == ("entries", "payload") else rows:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            if words.hold(text) or ("\\" in text and forget_in_json(text, words) != text):
                found[f"{table}.{column}"] += 1
    return found
