"""Bring a database file to the form that this release knows, one numbered step at a time.

Before the first step on a file that already holds something, the file is copied beside itself; each step commits
together with its number, so a crash leaves the file either before or after it.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from palinurus.domain.errors import StorageDamaged
from palinurus.storage.queries import migration_files


def migrate(connection: apsw.Connection, path: Path, folder: str) -> list[str]:
    """Run what is missing; the names of the steps that ran."""
    version = _version(connection)
    steps = migration_files(folder)
    newest = steps[-1][0] if steps else 0
    if version > newest:
        raise StorageDamaged(
            f"{path} has form {version}, this release knows forms up to {newest}", hint="use the newer release of pal"
        )
    missing = [step for step in steps if step[0] > version]
    if missing and version > 0:
        _back_up(connection, path.with_name(f"{path.name}.before-{missing[0][0]:04d}"))
    checked = connection.pragma("foreign_keys")
    connection.pragma("foreign_keys", 0)  # a table that is made anew goes for a moment; can only be said out here
    for number, name, sql in missing:
        with connection:
            connection.execute(sql)
            connection.pragma("user_version", number)
            if connection.execute("PRAGMA foreign_key_check").fetchall():
                raise StorageDamaged(f"{path} cannot take the step {name}: rows point to others that are not there")
    connection.pragma("foreign_keys", checked)
    return [name for _, name, _ in missing]


def _version(connection: apsw.Connection) -> int:
    value = connection.pragma("user_version")
    return value if isinstance(value, int) else 0


def _back_up(connection: apsw.Connection, target: Path) -> None:
    """A copy made by SQLite itself: whole, whatever lies in the write-ahead log."""
    target.unlink(missing_ok=True)
    copy = apsw.Connection(str(target))
    try:
        with copy.backup("main", connection, "main") as backup:
            backup.step()
    finally:
        copy.close()
    target.chmod(0o600)
