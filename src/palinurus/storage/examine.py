"""Look whether the database files of a home are whole. Reads only, and needs no lock."""

from __future__ import annotations

from pathlib import Path

import apsw
from msgspec import Struct

from palinurus.domain.errors import StorageError
from palinurus.storage.database import Database, translated
from palinurus.storage.queries import load_queries, migration_files
from palinurus.storage.transcripts import SQL as INDEX

SQL = load_queries("examine.sql")


class HomeFile(Struct, frozen=True):
    faults: tuple[str, ...]  # what SQLite complains about; empty when the file is whole
    form: int
    newest_form: int
    pending: int
    pending_since: int  # milliseconds; 0 when nothing is pending
    entries: int  # the position of the last one


async def examine_home(path: Path) -> HomeFile:
    """Raises StorageError when it cannot be opened, StorageDamaged when it is no database."""
    newest = migration_files("home")[-1][0]
    database = Database(path, "home", readonly=True)
    try:
        faults = await _whole(database)
        form = int(await database.read(lambda connection: connection.pragma("user_version")) or 0)
        if faults or not form:
            return HomeFile(faults, form, newest, 0, 0, 0)
        pending, since = await database.read(lambda connection: connection.execute(SQL["pending_runs"]).get)
        entries = await database.read(lambda connection: connection.execute(SQL["last_entry"]).get)
        return HomeFile(faults, form, newest, pending, since or 0, entries)
    finally:
        await database.close()


def was_spoken_to(path: Path, agent: str) -> bool:
    """Whether the home has a session of this agent. Blocks, for a moment. Raises StorageError."""
    with translated(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return bool(connection.execute(SQL["any_session"], {"agent": agent}).get)
        finally:
            connection.close()


async def examine_index(path: Path) -> tuple[tuple[str, ...], int]:
    """Faults, and up to which entry the index has read. Raises as `examine_home`."""
    database = Database(path, "transcripts", readonly=True)
    try:
        faults = await _whole(database)
        position, _ = (0, "") if faults else await database.read(lambda home: home.execute(INDEX["position"]).get)
        return faults, position
    finally:
        await database.close()


async def examine_derived(path: Path, series: str) -> str:
    """What is wrong with a file that can be made anew; empty when it is whole."""
    try:
        database = Database(path, series, readonly=True)
        try:
            return next(iter(await _whole(database)), "")
        finally:
            await database.close()
    except StorageError as error:
        return error.message


async def _whole(database: Database) -> tuple[str, ...]:
    """SQLite's first complaint about the file, if it has any."""
    said = await database.read(lambda connection: connection.pragma("quick_check"))
    return () if said == "ok" else (str(said),)
