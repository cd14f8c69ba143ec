"""Bring a database file to the form that this release knows, one numbered step at a time.

Before the first step on a file that already holds something, the file is copied beside itself; each step commits
together with its number, so a crash leaves the file either before or after it. A new file takes all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from palinurus.domain.errors import StorageDamaged, StorageReadOnly
from palinurus.storage.queries import migration_files


def migrate(connection: apsw.Connection, path: Path, folder: str) -> list[str]:
    """Run what is missing; the names of the steps that ran."""
    version = _version(connection)
    steps = migration_files(folder)
    _check_known(version, steps, path)
    missing = [step for step in steps if step[0] > version]
    if missing and version > 0:
        _back_up(connection, path.with_name(f"{path.name}.before-{missing[0][0]:04d}"))
    checked = connection.pragma("foreign_keys")
    connection.pragma("foreign_keys", 0)  # a table that is made anew goes for a moment; can only be said out here
    for together in ([step] for step in missing) if version else [missing]:
        with connection:
            for number, _, sql in together:
                connection.execute(sql)
                connection.pragma("user_version", number)
            if connection.execute("PRAGMA foreign_key_check").fetchall():
                raise StorageDamaged(f"{path} cannot be brought to form {number}: rows point to others that have gone")
    connection.pragma("foreign_keys", checked)
    return [name for _, name, _ in missing]


def check_form(connection: apsw.Connection, path: Path, folder: str) -> None:
    """For one who cannot write: raises StorageReadOnly for a file of an earlier release."""
    version, steps = _version(connection), migration_files(folder)
    _check_known(version, steps, path)
    if steps and version < steps[-1][0]:
        raise StorageReadOnly(
            f"{path} has form {version} of an earlier release, and cannot be brought to form {steps[-1][0]} from here",
            hint="call pal once where it may write there",
        )


def _check_known(version: int, steps: Sequence[tuple[int, str, str]], path: Path) -> None:
    newest = steps[-1][0] if steps else 0
    if version > newest:
        raise StorageDamaged(
            f"{path} has form {version}, this release knows forms up to {newest}", hint="use the newer release of pal"
        )


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
