"""Moves the rows of a home from SQLite to PostgreSQL, or back.

Tables are copied in the order of their keys, page by page, each page in a commit: whoever was interrupted goes on
behind the last row that is there. Sessions are brought in as staged, which lets the rules of transcripts pass what has
been said already, and are shown at the end, when the count and the hash of every table are the same on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import StorageDamaged, StorageError
from palinurus.extensions.postgres.database import PostgresDatabase
from palinurus.extensions.postgres.form import SHARED
from palinurus.extensions.postgres.transfer_report import TableReport, Tell
from palinurus.storage.database import Database
from palinurus.storage.transaction import DIALECT, Transaction

PAGE = 1_000
FIRST = ("sessions", "entries", "extractions", "audit")  # other tables point to them
LEFT = (*SHARED, "holder", "transfers")  # who writes, and what is brought in
STAGED = 2  # of a session that is not staged there
SHOW = f"UPDATE sessions SET staged = NULL WHERE staged = {STAGED}"  # noqa: S608  # our own number


class CopiedTable(Struct, frozen=True):
    """A table of a home, as PostgreSQL has it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]  # the order of its rows
    counts: str = ""  # a column that counts for all tenants


def tables_of(database: PostgresDatabase) -> list[CopiedTable]:
    """In an order in which they can be filled."""
    with database.apart() as tx:
        found = [
            CopiedTable(name, tuple(json.loads(columns)), (counts,) if counts else tuple(json.loads(key)), counts or "")
            for name, columns, key, counts in tx.all("form.columns")
            if name not in LEFT
        ]
    return sorted(found, key=lambda each: FIRST.index(each.name) if each.name in FIRST else len(FIRST))


def count_rows(source: Database, tables: list[CopiedTable]) -> dict[str, int]:
    with source.apart() as tx:
        counts = {each.name: f'SELECT count(*) FROM "{each.name}"' for each in tables}  # noqa: S608  # names of our schema
        return {name: int(tx.execute(sql).fetchone()[0]) for name, sql in counts.items()}


def counted(source: Database, tables: list[CopiedTable]) -> tuple[TableReport, ...]:
    return tuple(TableReport(name, rows) for name, rows in count_rows(source, tables).items())


def check_target(target: PostgresDatabase, source: str, tables: list[CopiedTable]) -> None:
    """Raises StorageError if the tenant has rows that are not of this source. Blocks."""
    with target.apart() as tx:
        known = tx.one("form.transfer")
    if known is None and any(count_rows(target, tables).values()):
        raise StorageError(
            f"the tenant {target.tenant} has rows already in {target.name}", hint="choose another one: --tenant"
        )
    if known is not None and (known[0] != source or known[1]):
        state = "has been" if known[1] else "is being"
        raise StorageError(
            f"the tenant {target.tenant} {state} filled from {known[0]}", hint="choose another one: --tenant"
        )


async def begin_transfer(target: PostgresDatabase, source: str, tables: list[CopiedTable]) -> None:
    """Raises StorageError as `check_target`."""
    check_target(target, source, tables)
    await target.write(lambda tx: tx.run("form.begin_transfer", source=source))


async def end_transfer(target: PostgresDatabase, tables: list[CopiedTable]) -> None:
    """Shows what was brought in; what counts goes on behind it."""

    def work(tx: Transaction) -> None:
        for table in tables:
            if table.counts:
                last = tx.execute(f"SELECT max({table.counts}) FROM {table.name}").fetchone()[0]  # noqa: S608  # our schema
                tx.all("form.advance", table=table.name, column=table.counts, number=last or 0)
        tx.execute(SHOW)
        tx.run("form.end_transfer")

    await target.write(work)


async def copy_rows(source: Database, target: Database, tables: list[CopiedTable], tell: Tell) -> None:
    """Brings in what is missing."""
    counts = count_rows(source, tables)
    for table in tables:
        done = count_rows(target, [table])[table.name]
        with target.apart() as tx:
            last = _last_key(tx, table)
        for rows in _pages(source, table, last):
            await target.write(partial(_insert, table=table, rows=rows))
            done += len(rows)
            tell(table.name, done, counts[table.name])


def compare_rows(source: Database, target: Database, tables: list[CopiedTable], tell: Tell) -> tuple[TableReport, ...]:
    """Raises StorageDamaged for a table that is not the same on both sides."""
    reports = []
    for at, table in enumerate(tables):
        here, there = (_digest(each, table) for each in (source, target))
        if here != there:
            raise StorageDamaged(
                f"{table.name} has {there.rows} other rows in {target.name} than the {here.rows} in {source.name}",
                hint="was the home used meanwhile? begin again with a new tenant or folder",
            )
        reports.append(here)
        tell("comparing", at + 1, len(tables))
    return tuple(reports)


def _digest(database: Database, table: CopiedTable) -> TableReport:
    digest, count = sha256(), 0
    for rows in _pages(database, table, None):
        digest.update(msgspec.json.encode([_shown(table, row) for row in rows]))
        count += len(rows)
    return TableReport(table.name, count, digest.hexdigest())


def _shown(table: CopiedTable, row: Any) -> Any:
    """A row as it is when all has been brought in."""
    if table.name != "sessions":
        return row
    return tuple(
        None if name == "staged" and value == STAGED else value for name, value in zip(table.columns, row, strict=True)
    )


def _pages(database: Database, table: CopiedTable, after: Any) -> Iterator[list[Any]]:
    places = [table.columns.index(name) for name in table.key]
    while True:
        with database.apart() as tx:
            rows = _page(tx, table, after)
        if not rows:
            return
        yield rows
        after = [rows[-1][place] for place in places]


def _page(tx: Transaction, table: CopiedTable, after: Any) -> list[Any]:
    names = _names(tx, table)
    key = ", ".join(names[name] for name in table.key)
    behind = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if after is not None else ""
    sql = f"SELECT {', '.join(names.values())} FROM {table.name} {behind} ORDER BY {key} LIMIT {PAGE}"  # noqa: S608  # our schema
    return tx.execute(sql, after or ()).fetchall()


def _last_key(tx: Transaction, table: CopiedTable) -> Any:
    names = _names(tx, table)
    key = [names[name] for name in table.key]
    order = ", ".join(f"{each} DESC" for each in key)
    return tx.execute(f"SELECT {', '.join(key)} FROM {table.name} ORDER BY {order} LIMIT 1").fetchone()  # noqa: S608  # our schema


def _insert(tx: Transaction, table: CopiedTable, rows: list[Any]) -> None:
    names = _names(tx, table)
    sql = f"INSERT INTO {table.name} ({', '.join(names.values())}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608  # our schema
    if table.name == "sessions":
        at = table.columns.index("staged")
        rows = [(*row[:at], STAGED if row[at] is None else row[at], *row[at + 1 :]) for row in rows]
    tx.execute_many(sql, rows)


def _names(tx: Transaction, table: CopiedTable) -> dict[str, str]:
    """What a column is called by this engine: SQLite has a number for each row of most tables without saying so."""
    hidden = tx.dialect == DIALECT and table.counts == "number" and table.name != "extractions"
    return {name: "rowid" if hidden and name == "number" else name for name in table.columns}
