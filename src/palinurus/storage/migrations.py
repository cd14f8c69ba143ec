"""Migrates a database file to the schema of this release, one numbered step at a time.

A file has one or more series of steps: the first belongs to the file itself, with its number in user_version; each
further one belongs to a package or an extension, and `steps_taken` lists its completed steps.

Before the first step on a file with data, the file is copied beside itself. Each step commits together with its number,
so a crash leaves the file either before or after it. A new file takes all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from palinurus.domain.errors import StorageDamaged, StorageReadOnly
from palinurus.storage.transaction import DIALECT

Step = tuple[int, str, str]
"""Number, name and text."""


class Series(NamedTuple):
    """The steps of one package: `NNNN_name.sql` in a folder, numbered without gaps. Released steps never change."""

    name: str
    folder: Path


_FILES: dict[str, list[Series]] = {}
_TAKEN = "SELECT coalesce(max(number), 0) FROM steps_taken WHERE series = ?"
_TAKE = "INSERT INTO steps_taken (series, number, name) VALUES (?, ?, ?)"
_HAS_SERIES = "SELECT 1 FROM sqlite_schema WHERE name = 'steps_taken'"


def declare_series(file: str, series: Series) -> None:
    """Adds a series to files of this kind; its steps run after those declared before."""
    known = _FILES.setdefault(file, [])
    if series not in known:
        known.append(series)


def series_of(file: str) -> list[Series]:
    return _FILES[file]


def steps_in(series: Series, dialect: str = DIALECT) -> list[Step]:
    """The steps in order; those of another dialect stand in `sql/<dialect>` instead."""
    folder = series.folder
    if dialect != DIALECT:
        folder = folder.parent.with_name(dialect) / folder.name
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [(int(path.name[:4]), path.stem[5:], path.read_text(encoding="utf-8")) for path in files]


def migrate(connection: apsw.Connection, path: Path, file: str) -> bool:
    """Runs the missing steps. Returns whether the file was new."""
    is_new = not _version(connection)
    backup = None if is_new else path
    missing = _missing(connection, path, file)
    if not any(missing.values()):
        return False
    checked = connection.pragma("foreign_keys")
    connection.pragma("foreign_keys", 0)  # foreign keys can be switched off only outside a transaction
    for series, steps in missing.items():
        if steps and backup is not None:
            _back_up(connection, backup.with_name(f"{path.name}.before-{series and f'{series}-'}{steps[0][0]:04d}"))
            backup = None  # one copy, made before the first step, is enough
        for together in [steps] if is_new else [[step] for step in steps]:
            _take(connection, path, together, series)
    connection.pragma("foreign_keys", checked)
    return is_new


def check_form(connection: apsw.Connection, path: Path, file: str) -> None:
    """For a read-only process: raises StorageReadOnly if the file is of an earlier release."""
    for series, steps in _missing(connection, path, file).items():
        if steps:
            raise StorageReadOnly(
                f"{path} has {series and f'{series} '}form {steps[0][0] - 1} of an earlier release, and cannot be"
                f" brought to form {steps[-1][0]} from here",
                hint="call pal once where it may write there",
            )


def newest_form(file: str) -> int:
    """The newest version of the file's own series."""
    return steps_in(series_of(file)[0])[-1][0]


def _missing(connection: apsw.Connection, path: Path, file: str) -> dict[str, list[Step]]:
    """The missing steps by series; the file's own series has no name."""
    missing: dict[str, list[Step]] = {}
    for at, series in enumerate(series_of(file)):
        name, steps = series.name if at else "", steps_in(series)
        taken = _taken(connection, name) if name else _version(connection)
        newest = steps[-1][0] if steps else 0
        if taken > newest:
            raise StorageDamaged(
                f"{path} has {name and f'{name} '}form {taken}, this release knows forms up to {newest}",
                hint="use the newer release of pal",
            )
        missing[name] = [step for step in steps if step[0] > taken]
    return missing


def _take(connection: apsw.Connection, path: Path, steps: Sequence[Step], series: str) -> None:
    with connection:
        for number, name, text in steps:
            connection.execute(text)
            if series:
                connection.execute(_TAKE, (series, number, name))
            else:
                connection.pragma("user_version", number)
        if connection.execute("PRAGMA foreign_key_check").fetchall():
            number = steps[-1][0]
            raise StorageDamaged(f"{path} cannot be brought to form {number}: rows point to others that have gone")


def _version(connection: apsw.Connection) -> int:
    value = connection.pragma("user_version")
    return value if isinstance(value, int) else 0


def _taken(connection: apsw.Connection, series: str) -> int:
    if not connection.execute(_HAS_SERIES).fetchall():
        return 0
    return int(connection.execute(_TAKEN, (series,)).get)


def _back_up(connection: apsw.Connection, target: Path) -> None:
    """Backs up with SQLite's own copy, which includes the write-ahead log."""
    target.unlink(missing_ok=True)
    copy = apsw.Connection(str(target))
    try:
        with copy.backup("main", connection, "main") as backup:
            backup.step()
    finally:
        copy.close()
    target.chmod(0o600)


declare_series("home", Series("home", Path(__file__).parent / "sql" / "sqlite" / "home_steps"))
