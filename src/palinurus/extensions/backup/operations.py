"""Create a backup. The process that holds the home only copies the database; the command does the rest.

So a passphrase never leaves the process that it was typed into, and packing a large workspace does not slow answers.

The database is copied while it is in use. One read transaction is held while pages are copied, so the copy is the home
at one moment, and writers go on: their pages wait in the write-ahead log. Without it SQLite would restart after every
write, and under load never end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import apsw
from msgspec import Struct

from palinurus import __version__
from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.atomic import make_directory
from palinurus.config.load import load_config
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import ConfigError, HolderLost, NotOffered
from palinurus.extensions.backup.backups import Backups
from palinurus.extensions.backup.pack import BackupReport, Contents, Label, Packer, Tell
from palinurus.operations.operation import operation
from palinurus.operations.progress import follow
from palinurus.operations.services import Services
from palinurus.operations.table import OperationClient
from palinurus.storage.database import Database
from palinurus.storage.files import translated

PAGES = 2_000  # in one step: 8 MB
SUFFIX, SEALED_SUFFIX = ".tar.gz", ".tar.gz.sealed"
Stage = Callable[[str, int, int], None]
"""Called with what is being done, and how far it is; also in threads. Neither blocks nor raises."""


class CopyProgress(Struct, frozen=True):
    done: int
    total: int
    finished: bool = False


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
    with translated(source), closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)) as reading:
        reading.set_busy_timeout(5_000)
        with translated(to):
            to.touch(mode=0o600, exist_ok=False)
            writing = apsw.Connection(str(to))
        with closing(writing):
            _copy(reading, writing, tell, stop or threading.Event())


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


@operation("backup.copy", scope="admin", local=True)
async def request_copy(
    services: Services, to: Annotated[str, "A new file, as an absolute path."]
) -> AsyncIterator[CopyProgress]:
    """Copy the database as it is. A caller that stops listening stops the work."""
    if services.database is None:
        raise NotOffered("this home has no database")
    latest: list[CopyProgress] = []

    def tell(done: int, total: int) -> None:
        latest[:] = [CopyProgress(done, total)]

    steps = follow(copy_while_used(services.database, Path(to), tell), latest)
    async with aclosing(steps):
        async for progress, _ in steps:
            yield progress or CopyProgress(0, 0, finished=True)


class CreateBackup(Struct, frozen=True):
    to: Path | None = None  # a file or a folder; none: the folder `backups` of the home
    passphrase: str = ""  # seals it
    credentials: bool = False


async def create_backup(
    caller: OperationClient, services: Services, wanted: CreateBackup, clock: Clock, new_id: NewId, stage: Stage
) -> BackupReport:
    """Creates a backup with every message acknowledged before this call. Raises StorageError and BadRequest."""
    root, backups = services.home.root, Backups(services.home.root)
    label = Label(new_id(), clock.now_ms(), __version__, str(root))
    target = _target(wanted, backups.folder, label, clock)
    with _scratch(root) as scratch:
        database = scratch / "home.sqlite"
        await _request_copy(caller, database, stage)
        contents = Contents(root, _workspaces(services), credentials=wanted.credentials)
        packer = Packer(label, passphrase=wanted.passphrase, tell=lambda *at: stage("packing", *at))
        made = await asyncio.to_thread(packer.pack, target, contents, database)
    await asyncio.to_thread(backups.add, made)
    return made


async def _request_copy(caller: OperationClient, to: Path, stage: Stage) -> None:
    async for at in caller.follow(request_copy, request_copy.params(str(to))):
        if at.finished:
            return
        stage("copying the database", at.done, at.total)
    raise HolderLost("the process that holds the home has ended", hint="try again")


def _workspaces(services: Services) -> dict[str, Path]:
    """Returns the workspaces of all agents; none if the config cannot be read: a backup is made even then."""
    try:
        config = load_config(services.home, services.env).config
    except ConfigError:
        return {}
    return {agent: agent_settings(config, services.home, agent).workspace for agent in agent_ids(config)}


def _target(wanted: CreateBackup, folder: Path, label: Label, clock: Clock) -> Path:
    at = datetime.fromtimestamp(label.created_at / 1000, clock.zone)
    name = f"pal-{at:%Y%m%d-%H%M%S}-{label.id[:8]}{SEALED_SUFFIX if wanted.passphrase else SUFFIX}"
    if wanted.to is None:
        return folder / name
    return wanted.to.absolute() / name if wanted.to.is_dir() else wanted.to.absolute()


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """Creates a folder inside the home, because the copy is as secret as the home. Removes old ones."""
    make_directory(root / "derived")
    for left in (root / "derived").glob("backup-*"):
        with suppress(OSError):
            if not os.path.exists(f"/proc/{left.name.split('-')[1]}"):  # noqa: PTH110  # its process has ended
                shutil.rmtree(left)
    prefix, folder = f"backup-{os.getpid()}-", root / "derived"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)
