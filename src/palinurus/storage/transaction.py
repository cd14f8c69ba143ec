"""One unit of work on a database, with named queries.

Work is a synchronous function of a `Transaction`; the engine runs it, on a thread or inline, and commits. A caller that
needs several stores in one commit calls each of them with the same transaction: no store names another's table.

SQL lives in files beside the noun it belongs to, `sql/<dialect>/<noun>.sql`: each query has a name and a comment. It is
addressed as `noun.name`. A query of another dialect stands in its folder only where it is written otherwise.

    -- entries_of --
    -- The whole transcript of a session, oldest first.
    SELECT ...;
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw
import msgspec
from msgspec import Struct

from palinurus.domain.errors import StorageDamaged, StorageError

T = TypeVar("T")
R = TypeVar("R", bound=Struct)
DIALECT = "sqlite"
MUCH_CACHE = 32 * 1024  # kilobytes
LONG_LOG, USUAL_LOG = 16_000, 1_000  # pages of the write-ahead log before a checkpoint
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_FOLDERS: dict[str, Path] = {}  # noun: the folder `sql` with its queries, by dialect


class Rows(Protocol):
    """What a statement gave."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class ConstraintBroken(StorageError):
    """The database rejects a row. The statement was rolled back."""


def declare_queries(noun: str, module: str) -> None:
    """Declares that this noun's queries are in `sql/<dialect>/<noun>.sql` beside the module `__file__`."""
    _FOLDERS[noun] = Path(module).parent / "sql"


def load_queries(noun: str, dialect: str = DIALECT) -> dict[str, str]:
    """The queries of a noun by name. Another dialect has only those that it must write otherwise than SQLite."""
    files = [_FOLDERS[noun] / each / f"{noun}.sql" for each in dict.fromkeys((DIALECT, dialect))]
    found: dict[str, str] = {}
    for path in [each for each in files if each.exists()] or files:
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        found |= {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    return found


class Queries(dict[str, str]):
    """The queries of a dialect. A file is read when its first query is used."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._dialect = dialect

    def __missing__(self, name: str) -> str:
        noun, _, own = name.partition(".")
        found = load_queries(noun, self._dialect)
        self.update({f"{noun}.{each}": sql for each, sql in found.items()})
        return found[own]


@cache
def many_rows(sql: str, rows: int, columns: int) -> str:
    """A query that inserts one row, for several rows: see `Transaction.insert_together`."""
    return sql.rstrip(";") + f",(?1{',?' * columns})" * (rows - 1)


class Transaction:
    """What a unit of work may do. Rows are tuples. Raises ConstraintBroken; the engine reports all other errors.

    This is SQLite's. Another engine has a subclass with queries of its own dialect: the same names and values.
    """

    dialect = DIALECT
    queries = Queries(DIALECT)

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection  # for storage/ only

    def one(self, query: str, /, **values: Any) -> Any:
        """The first row as a tuple; None when there is none."""
        return self.execute(self.queries[query], values).fetchone()

    def value(self, query: str, /, **values: Any) -> Any:
        """The first column of the first row; None when there is none."""
        row: Any = self.execute(self.queries[query], values).fetchone()
        return None if row is None else row[0]

    def all(self, query: str, /, **values: Any) -> list[Any]:
        return self.execute(self.queries[query], values).fetchall()

    def each(self, query: str, /, **values: Any) -> Iterator[Any]:
        """As `all`, a row at a time."""
        return self.each_of(self.queries[query], values)

    def each_of(self, sql: str, values: Any = ()) -> Iterator[Any]:
        """As `each`, for a built statement."""
        return iter(self.execute(sql, values))

    def run(self, query: str, /, **values: Any) -> int:
        """Runs a statement. Returns the number of changed rows."""
        self.execute(self.queries[query], values)
        return self.connection.changes()

    def many(self, query: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> None:
        """Runs a statement for each row: values by name, or in order if the query has `?`."""
        self.execute_many(self.queries[query], rows)

    def execute_many(self, sql: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> None:
        """As `many`, for a built statement."""
        try:
            self.connection.executemany(sql, rows)
        except apsw.ConstraintError as error:
            raise ConstraintBroken(str(error)) from None

    def insert_together(self, query: str, shared: Any, rows: Sequence[Sequence[Any]]) -> None:
        """Inserts all rows in one statement, which releases Python's lock: row by row is slower.

        The query inserts the first: `?1` is shared by all rows, each further `?` is a value of the row. Either all rows
        are inserted or none.
        """
        values = [shared, *chain.from_iterable(rows)]
        self.execute(many_rows(self.queries[query], len(rows), len(rows[0])), values)

    def sql(self, query: str) -> str:
        """The text of a query, for building a statement."""
        return self.queries[query]

    def execute(self, sql: str, values: Any = ()) -> Rows:
        """Runs a built statement; all others have names."""
        try:
            return self.connection.execute(sql, values)
        except apsw.ConstraintError as error:
            raise ConstraintBroken(str(error)) from None

    def expect_much(self, is_much: bool) -> None:
        """Tunes for a bulk write: a larger cache, and a longer log before a checkpoint."""
        if is_much:
            self.connection.pragma("cache_size", -MUCH_CACHE)
        self.connection.pragma("wal_autocheckpoint", LONG_LOG if is_much else USUAL_LOG)

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """One snapshot of the database for several reads."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("COMMIT")

    @property
    def version(self) -> tuple[int, int]:
        """A number that changes after a write by any process."""
        value: Any = self.connection.execute("PRAGMA data_version").get
        return value, self.connection.total_changes()

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """Overwrites deleted data in the file; otherwise its bytes stay readable there."""
        self.connection.pragma("secure_delete", 1)
        try:
            yield
        finally:
            self.connection.pragma("secure_delete", 0)


Work = Callable[[Transaction], T]
"""Runs inside a transaction, on the writer thread or inline. What it raises reaches the caller and rolls back its own
writes. It must not await, and must not store the transaction.
"""


def encoded(record: Struct) -> str:
    """A record as JSON text for a column."""
    return msgspec.json.encode(record).decode()


def decoded(row: Any, kind: type[R], what: str) -> R:
    """Decodes a record. Raises StorageDamaged with `what`, such as "the row of a grant"."""
    try:
        return msgspec.json.decode(row, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise StorageDamaged(f"{what} cannot be read: {error}", hint="restore a backup") from error
