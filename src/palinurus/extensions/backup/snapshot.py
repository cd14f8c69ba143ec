"""Copy the home's database while it is in use.

One read transaction is held while pages are copied, so the copy is the home at one moment, and writers go on: their
pages wait in the write-ahead log. Without it SQLite would restart after every write, and under load never end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from palinurus.storage.database import Database
from palinurus.storage.files import translated

PAGES = 2_000  # in one step: 8 MB
Tell = Callable[[int, int], None]
"""Called in a thread with the pages that were copied, and of how many. Neither blocks nor raises."""


async def copy_while_used(database: Database, to: Path, tell: Tell = lambda _, __: None) -> None:
    """Into a new file, by the process that writes to the database. Raises StorageError."""
    await database.flush()  # also writes that no caller waits for
    stop = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(copy_database, database.path, to, tell, stop))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        raise


def copy_database(source: Path, to: Path, tell: Tell = lambda _, __: None, stop: threading.Event | None = None) -> None:
    """Blocks. Raises StorageError."""
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
    writing.pragma("synchronous", "off")  # an incomplete copy is useless
    reading.execute("BEGIN")
    reading.pragma("user_version")  # begins the read transaction
    with writing.backup("main", reading, "main") as backup:
        while not backup.done and not stop.is_set():
            backup.step(PAGES)
            tell(backup.page_count - backup.remaining, backup.page_count)
    reading.execute("COMMIT")
    writing.pragma("journal_mode", "delete")  # the copy has no log


def fault_of(path: Path) -> str:
    """What is wrong with a database, empty when nothing is. Blocks, and reads all of it."""
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
    return f"a row of {lost[0][0]} has no parent row" if lost else ""
