"""Put a backup back, into a place where nothing is: staged beside it, confirmed, then moved there in one step.

Whatever an archive says, nothing is written outside of the staging folder: names are checked, files are only made and
never followed, and links come last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from palinurus.config.atomic import make_directory, storage_error
from palinurus.domain.errors import BadRequest, StorageDamaged
from palinurus.migrate.backup.manifest import DATABASE, HOME, WORKSPACES, Manifest, Part, Restored, Verified
from palinurus.migrate.backup.packing import PIECE, Tell
from palinurus.migrate.backup.sealing import damaged
from palinurus.migrate.backup.unpacking import is_sealed, read_through

Examine = Callable[[Path], str]
"""What is wrong with a database file, "" when it is whole. Called in a thread; it may leave files beside it."""

_ROOTS = (HOME, WORKSPACES)


def restore(backup: Path, to: Path, passphrase: str, examine: Examine, tell: Tell = lambda _, __: None) -> Restored:
    """Make a home at `to` of it. Blocks.

    Raises BadRequest when something is there already, StorageDamaged for any changed byte; then nothing is there.
    """
    if os.path.lexists(to) and not (to.is_dir() and not to.is_symlink() and not any(to.iterdir())):
        raise BadRequest(
            f"{to} is not empty, and nothing is ever restored over a home", hint="name a fresh place: --to"
        )
    make_directory(to.parent)
    stage = to.with_name(f".{to.name}.restoring-{os.urandom(4).hex()}")
    try:
        stage.mkdir(mode=0o700)
        manifest = _staged(backup, stage, passphrase, examine, tell)
        _put_in_place(stage, to)
    except OSError as error:
        raise storage_error(error, to) from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return Restored(
        manifest.label.id, str(to), len(manifest.parts), manifest.size, manifest.credentials, _notes(manifest, to)
    )


def verify(backup: Path, passphrase: str, examine: Examine, scratch: Path, tell: Tell = lambda _, __: None) -> Verified:
    """Read all of it, and look whether its database is whole. Blocks. Raises as `restore`."""
    database = scratch / "home.sqlite"

    def take(part: Part, stream: IO[bytes]) -> None:
        if part.path == DATABASE:
            _copy(stream, database, 0o600)

    try:
        manifest = read_through(backup, passphrase, take, tell)
        _check_database(backup, database, examine)
    except OSError as error:
        raise storage_error(error, scratch) from None
    label = manifest.label
    return Verified(
        label.id,
        str(backup),
        label.created_at,
        len(manifest.parts),
        manifest.size,
        is_sealed(backup),
        manifest.credentials,
    )


def _staged(backup: Path, stage: Path, passphrase: str, examine: Examine, tell: Tell) -> Manifest:
    links: list[Part] = []
    folders: list[Part] = []

    def take(part: Part, stream: IO[bytes]) -> None:
        place = _place(stage, part.path, str(backup))
        if part.kind == "link":
            links.append(part)
        elif part.kind == "folder":
            folders.append(part)
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _copy(stream, place, part.mode)

    manifest = read_through(backup, passphrase, take, tell)
    _check_database(backup, stage / DATABASE, examine)
    for part in links:
        (stage / part.path).symlink_to(part.target)
    for part in reversed(folders):  # at last: one that nobody may write to could not have been filled
        (stage / part.path).chmod(part.mode | 0o700)
    return manifest


def _place(stage: Path, name: str, backup: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or len(path.parts) < 2 or path.parts[0] not in _ROOTS or ".." in path.parts or "\0" in name:
        raise damaged(backup, f"{name!r} is no place in a home")
    return stage.joinpath(*path.parts)


def _copy(stream: IO[bytes], to: Path, mode: int) -> None:
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while data := stream.read(PIECE):
            file.write(data)
        os.fchmod(file.fileno(), mode | 0o600)


def _check_database(backup: Path, database: Path, examine: Examine) -> None:
    if database.exists() and (fault := examine(database)):
        raise StorageDamaged(f"the database in {backup} is damaged: {fault}", hint="use another backup")


def _put_in_place(stage: Path, to: Path) -> None:
    home = stage / HOME
    home.mkdir(mode=0o700, exist_ok=True)
    home.chmod(0o700)
    if (stage / WORKSPACES).is_dir():
        (stage / WORKSPACES).rename(home / WORKSPACES)
    for beside in ("home.sqlite-wal", "home.sqlite-shm"):  # left by the look at it
        (home / beside).unlink(missing_ok=True)
    _sync(home)
    if to.is_dir():
        to.rmdir()  # which only an empty one allows
    home.rename(to)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _notes(manifest: Manifest, to: Path) -> tuple[str, ...]:
    notes = [
        f"the workspace of {place.agent} was outside of the home, in {place.path}; it is in "
        f"{to / WORKSPACES / place.agent} now, and the config still names the old place"
        for place in manifest.outside
    ]
    if not manifest.credentials:
        notes.append("stored keys are not in this backup; `pal models auth add` stores them again")
    notes += [f"not in the backup: {left.path} ({left.why})" for left in manifest.left_out[:20]]
    return tuple(notes)
