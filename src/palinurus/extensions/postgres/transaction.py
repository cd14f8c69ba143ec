"""A unit of work on PostgreSQL: what the stores are given when the home is kept there.

The queries are SQLite's, or those of `sql/postgres` where these differ. All are written with `:name` and `?`, so that
stores need not know the engine; each is translated once. Whole numbers travel as bigint and truth values as 1 and 0,
as SQLite has them; a text may hold a NUL, which PostgreSQL stores as two other characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.types.string import ByteaLoader, StrDumperUnknown
from psycopg_pool import PoolClosed

from palinurus.domain.errors import PalinurusError, StorageError, StorageFull, StorageReadOnly
from palinurus.storage.transaction import ConstraintBroken, Queries, Rows, Transaction, many_rows

Connection = psycopg.Connection[tuple[Any, ...]]
BIGINT = 20  # oid
SMALL = 16 * 1024  # bytes of a statement that is worth preparing
FETCHED = 1_000  # rows at a time, of a result of any size
MARK = "\1"  # before what cannot stand in a text of PostgreSQL. 1: NUL, 2: this one. The order of texts stays as it is
_MARK = MARK.encode()
_PARTS = re.compile(r"--[^\n]*\n?|'(?:[^']|'')*'|::|%|:([a-z_]\w*)|\?(\d*)")


class _Bigint(Dumper):
    """Always of one width: a statement is prepared once, whatever the size of its numbers."""

    oid = BIGINT
    format = Format.BINARY

    def dump(self, obj: int) -> Buffer | None:
        try:
            return int(obj).to_bytes(8, "big", signed=True)
        except OverflowError:
            raise psycopg.DataError(f"{obj} is no number of 64 bits") from None


class _Truth(Loader):
    def load(self, data: Buffer) -> int:
        return int(data == b"t")


class _TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or MARK in obj:
            obj = obj.replace(MARK, f"{MARK}\2").replace("\0", f"{MARK}\1")
        return obj.encode()


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return _unmarked(bytes(data)).decode()


class _BytesLoader(ByteaLoader):
    def load(self, data: Buffer) -> bytes:
        return _unmarked(bytes(super().load(bytes(data))))


def _unmarked(data: bytes) -> bytes:
    return data.replace(_MARK + b"\1", b"\0").replace(_MARK + b"\2", _MARK) if _MARK in data else data


def prepare_connection(connection: Connection) -> None:
    for kind in (int, bool):
        connection.adapters.register_dumper(kind, _Bigint)
    connection.adapters.register_dumper(str, _TextDumper)
    connection.adapters.register_loader("bool", _Truth)
    connection.adapters.register_loader("text", _TextLoader)
    connection.adapters.register_loader("bytea", _BytesLoader)


class PostgresTransaction(Transaction):
    dialect = "postgres"
    queries = Queries("postgres")
    connection: Any

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)  # type: ignore[arg-type]  # it is used in the methods below only
        self._cursors = 0

    def execute(self, sql: str, values: Any = ()) -> Rows:
        try:
            rows: Rows = self._run(sql, values)
        except errors.IntegrityError as error:
            raise ConstraintBroken(_first_line(error)) from None
        return rows

    def run(self, query: str, /, **values: Any) -> int:
        cursor: Any = self.execute(self.queries[query], values)
        return max(int(cursor.rowcount), 0)

    def each_of(self, sql: str, values: Any = ()) -> Iterator[Any]:
        """The end of the transaction closes it, for whoever stops early: this generator may be dropped in another."""
        self._cursors += 1
        name = f"each_{self._cursors}"
        opening = f"DECLARE {name} NO SCROLL CURSOR FOR {translate_query(sql)}"
        self.connection.execute(opening, _named(values), prepare=False)
        while rows := self.connection.execute(f"FETCH {FETCHED} FROM {name}", prepare=False).fetchall():
            yield from rows
        self.connection.execute(f"CLOSE {name}", prepare=False)

    def execute_many(self, sql: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> None:
        try:
            self.connection.cursor().executemany(translate_query(sql), map(_named, rows))
        except errors.IntegrityError as error:
            raise ConstraintBroken(_first_line(error)) from None

    def insert_together(self, query: str, shared: Any, rows: Sequence[Sequence[Any]]) -> None:
        """A row that is refused leaves the transaction usable, for whoever then tries them one by one."""
        values = [shared, *chain.from_iterable(rows)]
        try:
            with self.connection.transaction():
                self._run(many_rows(self.queries[query], len(rows), len(rows[0])), values)
        except errors.IntegrityError as error:
            raise ConstraintBroken(_first_line(error)) from None

    def expect_much(self, is_much: bool) -> None:
        """Nothing to tune: the server has its own memory."""

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """A reading transaction sees one state anyway."""
        yield

    @property
    def version(self) -> tuple[int, int]:
        (number,) = self.connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
        return int(number), 0

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """The server overwrites removed rows when it vacuums: `PostgresDatabase.scrub`."""
        yield

    def _run(self, sql: str, values: Any) -> Any:
        return self.connection.execute(
            translate_query(sql), _named(values), prepare=None if len(sql) < SMALL else False
        )


def _named(values: Any) -> Any:
    return values if isinstance(values, Mapping) else {f"p{at}": each for at, each in enumerate(values, 1)}


@cache
def _translate(sql: str) -> str:
    count = 0

    def part(match: re.Match[str]) -> str:
        nonlocal count
        text, name, number = match[0], match[1], match[2]
        if name:
            return f"%({name})s"
        if number is not None:  # as SQLite counts: the one that is named, or the one after the largest so far
            own = int(number) if number else count + 1
            count = max(count, own)
            return f"%(p{own})s"
        return "" if text.startswith("--") else text.replace("%", "%%")

    return _PARTS.sub(part, sql).strip().rstrip(";")


def translate_query(sql: str) -> Any:
    """SQL with SQLite's parameters as psycopg wants it. A long one is not remembered: it was made for some rows."""
    return _translate(sql) if len(sql) < SMALL else _translate.__wrapped__(sql)


def parameters_of(sql: str) -> frozenset[str]:
    """The names of what a query is given; those without a name are p1, p2, …"""
    return frozenset(re.findall(r"%\((\w+)\)s", translate_query(sql)))


def is_lost(connection: Connection | None) -> bool:
    return connection is None or connection.closed or connection.broken


def may_pass(error: psycopg.Error) -> bool:
    """Whether the same work may succeed in a moment: the server was out of reach, or another transaction in the way."""
    if isinstance(error, errors.DiskFull | errors.QueryCanceled | PoolClosed):
        return False
    state = error.sqlstate or ""
    if state:
        return state[:2] in ("08", "40") or state in ("53300", "57P01", "57P02", "57P03", "57P05", "25P03")
    return isinstance(error, psycopg.OperationalError)


def translate_error(error: Exception, name: str) -> Exception:
    """The matching PalinurusError; an error that is not of the database is returned unchanged."""
    match error:
        case PalinurusError():
            return error
        case errors.DiskFull():
            return StorageFull(f"the disk of {name} is full", hint="free some space on the server and try again")
        case errors.ReadOnlySqlTransaction():
            return StorageReadOnly(f"{name} takes no writes: {_first_line(error)}", hint="is it a standby?")
        case errors.InsufficientPrivilege():
            return StorageReadOnly(f"{name}: {_first_line(error)}", hint="docs/teams.md says what the role needs")
        case errors.IntegrityError():
            return ConstraintBroken(_first_line(error))
        case psycopg.Error() if may_pass(error):
            return StorageError(
                f"{name} cannot be reached: {_first_line(error)}", hint="is the server running? storage.url names it"
            )
        case psycopg.Error():
            return StorageError(f"{name}: {_first_line(error)}")
        case _:
            return error


def _first_line(error: psycopg.Error) -> str:
    """Without details: they quote rows."""
    lines = (error.diag.message_primary or str(error) or type(error).__name__).splitlines()
    return lines[0].strip()
