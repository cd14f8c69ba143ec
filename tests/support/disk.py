"""Simulated homes on a real disk: a lock and a SQLite file, opened anew by each life as by each process.

A process that is killed leaves its files as they are: nothing of what it had in mind is written any more, and its log
is not moved into the file. The disk may be slow, in virtual time: jobs of one thread are done one after the other,
those of several in between each other.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import HomeHeld, StorageDamaged
from palinurus.ledger.audit_log import AuditLog
from palinurus.runtime.lock import HomeLock
from palinurus.sessions.store import SessionStore
from palinurus.storage.database import IDLE_SECONDS, Database
from palinurus.storage.files import MARKER
from palinurus.storage.jobs import JobQueue

from .shelf import Pace, Shelf
from .virtual import VirtualThread

FILE = "home.sqlite"
SLACK_SECONDS = 30.0  # for a slow disk, until it has moved its log


class _SimulatedDatabase(Database):
    """The real one with virtual threads: real ones would work in real time, and in another order each time."""

    def __init__(self, path: Path, pace: Pace, *, readonly: bool = False) -> None:
        super().__init__(path, "home", readonly=readonly, exclusive=not readonly)
        if self._writer is not None:
            self._writer.pragma("synchronous", "off")  # the machine stays on, and syncs are most of the time
        for thread in (self._write_thread, self._read_thread):
            thread.shutdown()
        self._threads = VirtualThread(pace), VirtualThread(pace)
        self._write_thread, self._read_thread = self._threads

    def kill(self) -> None:
        if self._threads[0].killed:
            return
        for thread in self._threads:
            thread.kill()
        self._stop_idle_timer()
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()


class DiskHome:
    """Implements shelf.Files."""

    def __init__(self, root: Path, clock: Clock, new_id: NewId) -> None:
        self.pace: Pace = _at_once
        self._root = root
        self._clock = clock
        self._new_id = new_id
        self._rows = 0  # entries after the last commit
        self._committed_at = math.inf  # by the life that goes on
        self._safe = 0  # of them, those that the disk has had time to move into the file

    def open(self) -> Shelf:
        lock = HomeLock(self._root / "lock")
        if not lock.acquire("pal simulated"):
            raise HomeHeld("another life holds the home", hint="wait")
        try:
            database = _SimulatedDatabase(self._root / FILE, self.pace)
        except BaseException:
            lock.release()
            raise
        database.on_commit = self._committed

        def kill() -> None:
            self._note_rest()
            self._committed_at = math.inf
            database.kill()
            lock.release()

        return self._shelf(database, kill, lambda: lock.keep("pal simulated"))

    def view(self) -> Shelf:
        database = _SimulatedDatabase(self._root / FILE, _at_once, readonly=True)
        return self._shelf(database, database.kill)

    def remove_lock(self) -> None:
        (self._root / "lock").unlink(missing_ok=True)

    def lose(self, what: str) -> str:
        copy = self._root / "copy"
        copy.mkdir()
        try:
            for name in (FILE, f"{FILE}-wal", MARKER):
                if (self._root / name).exists():
                    shutil.copyfile(self._root / name, copy / name)
            match what:
                case "content":
                    (copy / FILE).write_bytes(b"")
                case "file":
                    (copy / FILE).unlink()
                case "log":
                    (copy / f"{FILE}-wal").unlink(missing_ok=True)
            return self._start_on(copy, what)
        finally:
            shutil.rmtree(copy)

    def _start_on(self, copy: Path, what: str) -> str:
        before = _bytes_of(copy)
        try:
            database = _SimulatedDatabase(copy / FILE, _at_once)
        except StorageDamaged:
            touched = [name for name, data in before.items() if _bytes_of(copy).get(name) != data]
            return f"a start that was refused has changed {', '.join(touched)}" if touched else ""
        kept = _entries(copy / FILE)
        database.kill()
        if what != "log":
            return f"a home that had lost its {what} was opened as a new one"
        return f"{kept} entries are left without the log, of {self._safe}" if kept < self._safe else ""

    def _shelf(self, database: Database, kill: Callable[[], None], keeps: Callable[[], bool] = lambda: True) -> Shelf:
        return Shelf(
            database,
            SessionStore(database, self._clock, self._new_id),
            JobQueue(database),
            AuditLog(database, self._clock, self._new_id),
            kill,
            keeps,
            self,
        )

    def _committed(self, _: int, __: float) -> None:
        self._note_rest()
        self._rows, self._committed_at = _entries(self._root / FILE), asyncio.get_running_loop().time()

    def _note_rest(self) -> None:
        if asyncio.get_running_loop().time() - self._committed_at > IDLE_SECONDS + SLACK_SECONDS:
            self._safe = self._rows


def _at_once() -> float:
    return 0.0


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name not in ("lock", f"{FILE}-shm")}


def _entries(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        return int(connection.execute("SELECT count(*) FROM entries").get)
    finally:
        connection.close()
