"""The tables of a home on PostgreSQL: migrated like SQLite's, and looked at before they are used.

A home is not opened when its role could see what is not its tenant's: as a superuser, with BYPASSRLS, or because a
table has no forced policy, another one, or one more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import StorageDamaged, StorageError, StorageReadOnly
from palinurus.extensions.postgres.transaction import Connection, PostgresTransaction
from palinurus.storage.migrations import Step, series_of, steps_in
from palinurus.storage.transaction import declare_queries

OLDEST_SERVER = 16  # IS JSON
POLICY = "(tenant = current_setting('pal.tenant'::text, true))"
SHARED = ("steps_taken",)  # what is the same for all tenants
MIGRATING = 0x70616C  # the lock of whoever migrates

declare_queries("form", __file__)


class TablePolicy(Struct, frozen=True, rename="camel"):
    """Whether a table shows a tenant only its own rows."""

    table: str
    forced: bool
    policies: int
    sound: bool


class DatabaseRole(Struct, frozen=True, rename="camel"):
    name: str
    superuser: bool
    bypasses: bool  # BYPASSRLS


def migrate(connection: Connection, file: str) -> int:
    """Runs the missing steps, all or none. Returns the form of the file's own series."""
    tx = PostgresTransaction(connection)
    if any(steps for _, steps in _missing(tx, file)):
        with connection.transaction():
            tx.all("form.lock", number=MIGRATING)
            for series, steps in _missing(tx, file):  # another process may have been quicker
                for number, name, text in steps:
                    connection.execute(text.encode(), prepare=False)
                    tx.run("form.take", series=series, number=number, name=name)
    return form_of(tx, file)


def check_form(connection: Connection, name: str, file: str) -> None:
    """For a process that only reads. Raises StorageReadOnly if the tables are of an earlier release."""
    if any(steps for _, steps in _missing(PostgresTransaction(connection), file)):
        raise StorageReadOnly(
            f"{name} has the form of an earlier release, which cannot be changed from here",
            hint="call pal once where it may write there",
        )


def form_of(tx: PostgresTransaction, file: str) -> int:
    return _taken(tx, series_of(file)[0].name)


def newest_form(file: str) -> int:
    return steps_in(series_of(file)[0], PostgresTransaction.dialect)[-1][0]


def role_of(tx: PostgresTransaction) -> DatabaseRole:
    name, superuser, bypasses = tx.one("form.role")
    return DatabaseRole(name, bool(superuser), bool(bypasses))


def policies_of(tx: PostgresTransaction) -> list[TablePolicy]:
    """Of each table of the schema but those that all share."""
    found = []
    for table, forced, count, using, check in tx.all("form.policies"):
        if table not in SHARED:
            sound = count == 1 and using == POLICY and check in (POLICY, None)
            found.append(TablePolicy(table, bool(forced), count, sound))
    return found


def faults_of(tx: PostgresTransaction) -> Iterator[str]:
    """Why rows of other tenants might be seen; nothing when they cannot."""
    role = role_of(tx)
    if role.superuser or role.bypasses:
        yield f"the role {role.name} is {'a superuser' if role.superuser else 'allowed to bypass policies'}"
    for each in policies_of(tx):
        if not (each.forced and each.sound):
            yield f"the table {each.table} has no policy that keeps tenants apart"


def check_apart(connection: Connection, name: str) -> None:
    """Raises StorageError if rows of other tenants might be seen."""
    if faults := list(faults_of(PostgresTransaction(connection))):
        raise StorageError(
            f"{name} is not used: {'; '.join(faults[:3])}",
            hint="connect as a plain role that owns nothing else; docs/teams.md says how to make one",
        )


def check_transfer(tx: PostgresTransaction, tenant: str) -> None:
    """Raises StorageError for a tenant whose rows are still being brought in."""
    found = tx.one("form.transfer")
    if found is not None and not found[1]:
        raise StorageError(
            f"the rows of {tenant} are being brought in from {found[0]}, and that has not ended",
            hint="call `pal migrate sqlite-to-postgres` again: it goes on where it was",
        )


def check_server(connection: Connection, name: str) -> None:
    if connection.info.server_version < OLDEST_SERVER * 10_000:
        raise StorageError(f"{name} is older than PostgreSQL {OLDEST_SERVER}", hint="use a newer server")
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise StorageError(f"the database of {name} is not encoded in UTF-8", hint="create one with ENCODING 'UTF8'")


def _missing(tx: PostgresTransaction, file: str) -> list[tuple[str, Sequence[Step]]]:
    missing: list[tuple[str, Sequence[Step]]] = []
    for series in series_of(file):
        steps, taken = steps_in(series, tx.dialect), _taken(tx, series.name)
        if not steps:
            raise StorageError(
                f"{series.name} keeps no tables on PostgreSQL", hint=f"disable {series.name}, or use SQLite"
            )
        if taken > steps[-1][0]:
            raise StorageDamaged(
                f"the database has {series.name} form {taken}, this release knows forms up to {steps[-1][0]}",
                hint="use the newer release of pal",
            )
        missing.append((series.name, [step for step in steps if step[0] > taken]))
    return missing


def _taken(tx: PostgresTransaction, series: str) -> int:
    found: Any = tx.value("form.has_series") and tx.value("form.taken", series=series)
    return int(found or 0)
