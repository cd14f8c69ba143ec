"""A whole copy of the home's database while others write to it.

One read transaction is held while pages are copied, so the copy is the home as it was at one moment, and writers go on:
their pages wait in the write-ahead log. Without it SQLite would begin anew after every write, and under load never end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from palinurus.storage.database import Database, translated

PAGES = 2_000  # in one step: 8 MB

Tell = Callable[[int, int], None]
"""Pages that were copied, of how many. Called in a thread; neither blocks nor raises."""


class SqliteSnapshots:
    """Implements operations.house.Snapshots."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def copy(self, to: Path, tell: Tell = lambda _, __: None) -> None:
        await self._database.flush()  # also what nobody waits for
        stop = threading.Event()
        work = asyncio.create_task(asyncio.to_thread(copy_database, self._database.path, to, tell, stop))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([work])
            raise


def copy_database(source: Path, to: Path, tell: Tell = lambda _, __: None, stop: threading.Event | None = None) -> None:
    """Blocks. The copy needs no log beside it. Raises StorageError."""
    with translated(source):
        reading = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            reading.set_busy_timeout(5_000)
            with translated(to):
                to.touch(mode=0o600, exist_ok=False)
                writing = apsw.Connection(str(to))
            try:
                _copy(reading, writing, tell, stop or threading.Event())
            finally:
                writing.close()
        finally:
            reading.close()


def _copy(reading: apsw.Connection, writing: apsw.Connection, tell: Tell, stop: threading.Event) -> None:
    writing.pragma("synchronous", "off")  # nobody needs half of a copy
    reading.execute("BEGIN")
    reading.pragma("user_version")  # from here on it reads the home of this moment
    with writing.backup("main", reading, "main") as backup:
        while not backup.done and not stop.is_set():
            backup.step(PAGES)
            tell(backup.page_count - backup.remaining, backup.page_count)
    reading.execute("COMMIT")
    writing.pragma("journal_mode", "delete")  # it says in the file that it has a log, and it has none


def fault_of(path: Path) -> str:
    """What is wrong with a database, "" when it is whole. Blocks, and reads all of it."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        return str(error)
    try:
        said = connection.execute("PRAGMA integrity_check(1)").get
        lost = connection.execute("PRAGMA foreign_key_check").fetchall()
    except apsw.Error as error:
        return str(error)
    finally:
        connection.close()
    if said != "ok":
        return str(said)
    return f"a row of {lost[0][0]} belongs to nothing" if lost else ""
