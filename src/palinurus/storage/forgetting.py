"""Words out of `home.sqlite`: found by reading everything, taken out in one transaction, and the file written anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import apsw
import msgspec

from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.migrate.forgetting.folding import unescaped
from palinurus.migrate.forgetting.store import Conversation, Looked, Scope, Sources, Tell, nobody
from palinurus.migrate.forgetting.words import Words, forget_in_json, strings_in
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.forgotten import FORGOTTEN, TOMBSTONE
from palinurus.sessions.session import NO_CHANGE, Session, changed
from palinurus.sessions.transcript import CustomEntry, MessageEntry, Row, decode_row, encode_entry, timestamp
from palinurus.storage.database import Database, translated
from palinurus.storage.queries import load_queries
from palinurus.storage.sqlite import SQL as HOME

SQL = load_queries("forgetting.sql")
T = TypeVar("T")

REWRITTEN = ("entries", "extractions", "runs", "sessions", "outbox", "imported_documents")
REMOVED = ("approvals", "grants", "traces")  # nothing leans on such a row
WRITES_NOTES = ("memory_write", "write", "edit", "append")
ROUNDS = 5
QUOTED = 20  # rows of a table
TOLD_EVERY = 1000  # rows
_encode = msgspec.json.encode


class SqliteForgetting:
    """Implements migrate.forgetting.store.ForgettingStore."""

    def __init__(
        self, database: Database, changed: Callable[[str], None], discard_index: Callable[[], Awaitable[None]]
    ) -> None:
        """`changed` is told the ids of sessions whose rows are others now: whoever remembers them reads them anew.

        `discard_index` throws away what was derived from transcripts.
        """
        self._database = database
        self._changed = changed
        self._discard_index = discard_index

    async def conversations(self, which: str) -> list[Conversation]:
        def work(connection: apsw.Connection) -> list[Conversation]:
            return [Conversation(*row) for row in connection.execute(SQL["sessions_called"], {"which": which})]

        return await self._database.read(work)

    async def sources(self, sessions: frozenset[str]) -> Sources:
        return await self._beside(lambda connection: _sources(connection, sessions))

    async def look(self, scope: Scope, tell: Tell = nobody) -> Looked:
        def work(connection: apsw.Connection) -> Looked:
            keys = _keys(connection, scope, tell)
            return msgspec.structs.replace(_looked(connection, scope, keys), quotes=_quotes(connection, scope, keys))

        return await self._beside(work)

    async def forget(self, scope: Scope, forgetting: str, now: int) -> Looked:
        done = Looked({})
        for _ in range(ROUNDS):  # what was said while we read is found by the next look
            keys = await self._beside(lambda connection: _keys(connection, scope))
            if not any(keys[table] for table in (*REWRITTEN, *REMOVED)):
                break
            found = await self._database.write(_Work(scope, forgetting, now, keys))
            done = _joined(done, found)
            for session in found.sessions:
                self._changed(session.id)
        return done

    async def scrub(self) -> None:
        await self._discard_index()
        await self._database.scrub(rewrite=True)

    async def remains(self, words: Words, tell: Tell = nobody) -> dict[str, int]:
        return await self._beside(lambda connection: _remains(connection, words, tell))

    async def _beside(self, work: Callable[[apsw.Connection], T]) -> T:
        """With a connection of its own, in a thread of its own: it may take long, and nobody waits for it."""
        await self._database.flush()
        return await asyncio.to_thread(self._read, work)

    def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        with translated(self._database.path), _reading(str(self._database.path)) as connection:
            return work(connection)


@contextmanager
def _reading(path: str) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    try:
        yield connection
    finally:
        connection.close()


class _Work:
    """One transaction of the writer."""

    def __init__(self, scope: Scope, forgetting: str, now: int, keys: dict[str, list[int]]) -> None:
        self._scope, self._forgetting, self._now, self._keys = scope, forgetting, now, keys

    def __call__(self, connection: apsw.Connection) -> Looked:
        looked = _looked(connection, self._scope, self._keys)
        about = {"id": self._forgetting, "at": self._now, "row": json.dumps(looked.rows)}
        connection.pragma("secure_delete", 1)
        connection.execute(SQL["begin_forgetting"], about)
        for table in REWRITTEN:
            for key, texts in _rewritten(connection, table, self._scope, self._keys[table]):
                connection.execute(SQL[f"set_{table}"], (key, *texts))
        for table in REMOVED:
            connection.executemany(SQL[f"drop_{table}"], [(key,) for key in self._keys[table]])
        for session in looked.sessions:
            self._leave_tombstone(connection, session.id)
        connection.execute(SQL["end_forgetting"], about)
        return looked

    def _leave_tombstone(self, connection: apsw.Connection, session_id: str) -> None:
        found: Any = connection.execute(SQL["session_and_tail"], {"id": session_id}).fetchall()
        row, tail = found[0]
        count = connection.execute(SQL["entry_count"], {"id": session_id}).get
        entry = CustomEntry(
            id=f"{self._forgetting}-{count}",
            timestamp=timestamp(self._now),
            parent_id=tail,
            custom_type=FORGOTTEN,
            data={"forgetting": self._forgetting},
        )
        connection.execute(
            HOME["add_entry"],
            {
                "session_id": session_id,
                "id": entry.id,
                "parent_id": tail,
                "type": "custom",
                "payload": encode_entry(entry),
            },
        )
        session = msgspec.json.decode(row, type=Session)
        grown = changed(session, NO_CHANGE, now=session.updated_at, entries=1)
        connection.execute(SQL["keep_session"], {"id": session_id, "row": _encode(grown).decode()})


def _keys(connection: apsw.Connection, scope: Scope, tell: Tell = nobody) -> dict[str, list[int]]:
    """The rows that would change, by table."""
    tables = (*REWRITTEN, *REMOVED, "audit_details")
    counting = _Counting(connection, tell)
    return {table: [key for key, _ in _rewritten(connection, table, scope, counting=counting)] for table in tables}


class _Counting:
    """Entries are most of a home: they are what is counted."""

    def __init__(self, connection: apsw.Connection, tell: Tell) -> None:
        self._total: Any = connection.execute(SQL["entries_in_all"]).get
        self._tell = tell
        self._done = 0

    def each(self, rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            self._done += 1
            if self._done % TOLD_EVERY == 0:
                self._tell(min(self._done, self._total), self._total)
            yield row


def _quotes(connection: apsw.Connection, scope: Scope, keys: dict[str, list[int]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for table, numbers in keys.items():
        texts = [unescaped(text) for row in _among(connection, table, numbers[:QUOTED]) for text in row[4:] if text]
        if quotes := tuple(dict.fromkeys(quote for text in texts for quote in scope.words.quotes(text))):
            found[table] = quotes
    return found


def _rewritten(
    connection: apsw.Connection,
    table: str,
    scope: Scope,
    only: list[int] | None = None,
    counting: _Counting | None = None,
) -> Iterator[tuple[int, list[str | None]]]:
    """Keys and new texts of the rows that change."""
    rows: Any = connection.execute(SQL[f"find_{table}"]) if only is None else _among(connection, table, only)
    for key, session_id, session_key, run_id, *texts in counting.each(rows) if counting else rows:
        whole = session_id in scope.sessions or session_key in scope.keys or run_id in scope.runs
        if not whole and not scope.covers(session_key or ""):
            continue
        new = [None if text is None else _without(table, text, scope.words, whole=whole) for text in texts]
        if new != texts:
            yield key, new


def _among(connection: apsw.Connection, table: str, keys: list[int]) -> list[Any]:
    """Those of the rows that have these keys."""
    found = SQL[f"find_{table}"].rstrip().removesuffix(";")
    wanted = f"SELECT * FROM ({found}) WHERE at IN (SELECT value FROM json_each(?))"  # noqa: S608  # our own query
    return connection.execute(wanted, (json.dumps(keys),)).fetchall() if keys else []


def _without(table: str, text: str, words: Words, *, whole: bool) -> str:
    if table == "sessions":  # its row is how the conversation stands; only its name is words
        return _nameless(text, words, whole=whole)
    return forget_in_json(text, words, whole=whole)


def _nameless(row: str, words: Words, *, whole: bool) -> str:
    cleaned = forget_in_json(row, words)
    value = json.loads(cleaned)
    if whole and isinstance(value, dict) and value.get("label", TOMBSTONE) != TOMBSTONE:
        return json.dumps({**value, "label": TOMBSTONE}, separators=(",", ":"))
    return cleaned


def _looked(connection: apsw.Connection, scope: Scope, keys: dict[str, list[int]]) -> Looked:
    entries = {"keys": json.dumps(keys["entries"])}
    sessions = tuple(Conversation(*row) for row in connection.execute(SQL["conversations_of"], entries))
    waiting = connection.execute(SQL["parcels_waiting"], {"keys": json.dumps(keys["outbox"])})
    return Looked(
        {table: len(found) for table, found in keys.items() if found},
        sessions,
        tuple(keys["audit_details"]),
        tuple(parcel for (parcel,) in waiting),
        _moment(connection.execute(SQL["first_said"], entries).get),
    )


def _moment(stamp: Any) -> int:
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1000)
    except (TypeError, ValueError):
        return 0


def _joined(one: Looked, other: Looked) -> Looked:
    tables = dict.fromkeys((*one.rows, *other.rows))
    return Looked(
        {table: one.rows.get(table, 0) + other.rows.get(table, 0) for table in tables},
        tuple(dict.fromkeys((*one.sessions, *other.sessions))),
        tuple(dict.fromkeys((*one.audit, *other.audit))),
        tuple(dict.fromkeys((*one.parcels, *other.parcels))),
        min(filter(None, (one.since, other.since)), default=0),
    )


def _sources(connection: apsw.Connection, sessions: frozenset[str]) -> Sources:
    here = {"sessions": json.dumps(sorted(sessions))}
    runs = frozenset(run for (run,) in connection.execute(SQL["runs_in"], here))
    notes: list[str] = []
    said: list[str] = []
    for session_id in sorted(sessions):
        rows = connection.execute(HOME["entries_of"], {"session_id": session_id, "after": 0})
        for row in rows:
            match decode_row(Row(*row)):
                case MessageEntry(message=UserMessage() as message):
                    said.append(message.text)
                case MessageEntry(message=AssistantMessage() as message):
                    notes += [text for call in message.calls for text in _noted(call.name, call.arguments)]
                case _:
                    pass
    made = [_extraction(row) for id_ in sorted(sessions) for row in _extractions(connection, id_)]
    notes += [each.notes for each in made]
    return Sources(runs, tuple(filter(None, notes)), tuple(each.id for each in made), tuple(said))


def _noted(tool: str, arguments: dict[str, Any]) -> list[str]:
    """What a call has written into memory."""
    path = str(arguments.get("path", ""))
    if tool not in WRITES_NOTES or (tool != "memory_write" and not path.lower().startswith("memory")):
        return []
    return [text for name, value in arguments.items() if name != "path" for text in strings_in(value)]


def _extractions(connection: apsw.Connection, session_id: str) -> list[str]:
    return [row for row, _ in connection.execute(HOME["extractions_of"], {"session_id": session_id})]


def _extraction(row: str) -> Extraction:
    return msgspec.json.decode(row, type=Extraction)


def _remains(connection: apsw.Connection, words: Words, tell: Tell) -> dict[str, int]:
    found: dict[str, int] = {}
    counting = _Counting(connection, tell)
    for table, column in connection.execute(SQL["text_columns"]).fetchall():
        everything = f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'  # noqa: S608  # names of our own schema
        rows: Any = connection.execute(everything)
        for (value,) in counting.each(rows) if (table, column) == ("entries", "payload") else rows:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            if words.hold(text) or ("\\" in text and forget_in_json(text, words) != text):
                found[f"{table}.{column}"] = found.get(f"{table}.{column}", 0) + 1
    return found
