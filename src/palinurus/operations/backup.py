"""Backups of a home. The one who holds it only copies the database; the rest is done by whoever asked.

So a passphrase never leaves the process that was told it, and a large workspace keeps nobody from answering.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from palinurus import __version__
from palinurus.config.atomic import make_directory
from palinurus.config.load import load_config
from palinurus.config.settings import agent_ids, agent_settings
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import ConfigError, HolderLost, NotOffered
from palinurus.migrate.backup.contents import Contents
from palinurus.migrate.backup.manifest import Label, Made, Restored, Verified
from palinurus.migrate.backup.packing import Packer, Tell
from palinurus.migrate.backup.register import Backups
from palinurus.migrate.backup.restoring import Examine, restore, verify
from palinurus.operations.config import Ground
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.operations.table import Caller

TELL_SECONDS = 0.1
SUFFIX, SEALED_SUFFIX = ".tar.gz", ".tar.gz.sealed"

Stage = Callable[[str, int, int], None]
"""What is being done, and how far it is. Called in threads too; neither blocks nor raises."""


class Copying(Struct, frozen=True):
    done: int
    total: int
    finished: bool = False


@operation("backup.copy", scope="admin", local=True)
async def copy_database(
    house: House, to: Annotated[str, "A file that is not there yet, as a whole path."]
) -> AsyncIterator[Copying]:
    """Copy the database as it stands. Whoever stops listening stops the work."""
    if house.snapshots is None:
        raise NotOffered("this house keeps nothing that could be copied")
    at = [(0, 0)]
    work = asyncio.create_task(house.snapshots.copy(Path(to), lambda done, total: at.append((done, total))))
    try:
        while not work.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await asyncio.shield(work)
            yield Copying(*at[-1])
        await work
        yield Copying(*at[-1], finished=True)
    finally:
        work.cancel()
        await asyncio.wait([work])


OPERATIONS = (copy_database,)


class CreateBackup(Struct, frozen=True):
    to: Path | None = None  # a file or a folder; none: the folder `backups` of the home
    passphrase: str = ""  # seals it
    credentials: bool = False


async def create_backup(
    caller: Caller, ground: Ground, wanted: CreateBackup, clock: Clock, new_id: NewId, stage: Stage
) -> Made:
    """Every message that was acknowledged before this was called is in it. Raises StorageError and BadRequest."""
    root, backups = ground.home.root, Backups(ground.home.root)
    label = Label(new_id(), clock.now_ms(), __version__, str(root))
    target = _target(wanted, backups.folder, label, clock)
    with _scratch(root) as scratch:
        database = scratch / "home.sqlite"
        await _copied(caller, database, stage)
        contents = Contents(root, _workspaces(ground), credentials=wanted.credentials)
        packer = Packer(label, passphrase=wanted.passphrase, tell=lambda *at: stage("packing", *at))
        made = await asyncio.to_thread(packer.pack, target, contents, database, credentials=wanted.credentials)
    await asyncio.to_thread(backups.add, made)
    return made


def verify_backup(ground: Ground, which: str, passphrase: str, examine: Examine, tell: Tell) -> Verified:
    """Blocks. Raises StorageDamaged when a single byte is not what it was."""
    with tempfile.TemporaryDirectory(prefix="pal-verify-") as scratch:
        return verify(Backups(ground.home.root).find(which), passphrase, examine, Path(scratch), tell)


def restore_backup(ground: Ground, which: str, to: Path, passphrase: str, examine: Examine, tell: Tell) -> Restored:
    """Blocks. Raises BadRequest when something is there already."""
    return restore(Backups(ground.home.root).find(which), to, passphrase, examine, tell)


async def _copied(caller: Caller, to: Path, stage: Stage) -> None:
    async for at in caller.follow(copy_database, copy_database.params(str(to))):
        stage("copying the database", at.done, at.total)
        if at.finished:
            return
    raise HolderLost("whoever holds the home went away in the middle", hint="try again")


def _workspaces(ground: Ground) -> dict[str, Path]:
    """Of all agents; none when nobody can read the config, which is no reason to go without a backup."""
    try:
        config = load_config(ground.home, ground.env).config
    except ConfigError:
        return {}
    return {agent: agent_settings(config, ground.home, agent).workspace for agent in agent_ids(config)}


def _target(wanted: CreateBackup, folder: Path, label: Label, clock: Clock) -> Path:
    at = datetime.fromtimestamp(label.created_at / 1000, clock.zone)
    name = f"pal-{at:%Y%m%d-%H%M%S}-{label.id[:8]}{SEALED_SUFFIX if wanted.passphrase else SUFFIX}"
    if wanted.to is None:
        return folder / name
    return wanted.to.absolute() / name if wanted.to.is_dir() else wanted.to.absolute()


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """A folder inside the home: the copy is as secret as the home itself, and what a kill leaves is derived."""
    make_directory(root / "derived")
    for left in (root / "derived").glob("backup-*"):
        with suppress(OSError):
            if not os.path.exists(f"/proc/{left.name.split('-')[1]}"):  # noqa: PTH110  # its maker is gone
                shutil.rmtree(left)
    scratch = Path(tempfile.mkdtemp(prefix=f"backup-{os.getpid()}-", dir=root / "derived"))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
