"""Create a backup. The process that holds the home only copies the database; the command does the rest.

So a passphrase never leaves the process that it was typed into, and packing a large workspace does not slow answers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from palinurus import __version__
from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.atomic import make_directory
from palinurus.config.load import load_config
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import ConfigError, HolderLost, NotOffered
from palinurus.extensions.backup.backups import Backups
from palinurus.extensions.backup.manifest import BackupReport, Contents, Label
from palinurus.extensions.backup.pack import Packer
from palinurus.extensions.backup.snapshot import copy_while_used
from palinurus.operations.operation import operation
from palinurus.operations.progress import follow
from palinurus.operations.services import Services
from palinurus.operations.table import OperationClient

SUFFIX, SEALED_SUFFIX = ".tar.gz", ".tar.gz.sealed"
Stage = Callable[[str, int, int], None]
"""Called with what is being done, and how far it is; also in threads. Neither blocks nor raises."""


class CopyProgress(Struct, frozen=True):
    done: int
    total: int
    finished: bool = False


@operation("backup.copy", scope="admin", local=True)
async def copy_database(
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
        made = await asyncio.to_thread(packer.pack, target, contents, database, credentials=wanted.credentials)
    await asyncio.to_thread(backups.add, made)
    return made


async def _request_copy(caller: OperationClient, to: Path, stage: Stage) -> None:
    async for at in caller.follow(copy_database, copy_database.params(str(to))):
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
    with tempfile.TemporaryDirectory(
        prefix=f"backup-{os.getpid()}-", dir=root / "derived", ignore_cleanup_errors=True
    ) as scratch:
        yield Path(scratch)
