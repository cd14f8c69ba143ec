"""Verify a backup, or restore it to a new folder: unpacked beside that folder, verified, then renamed in one step.

A hostile archive cannot write outside of the staging folder: paths are checked, files are only created, links are not
followed and are made last. A backup is read completely, and nothing in it is used before its digests are checked.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import apsw
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.atomic import make_directory, storage_error
from palinurus.domain.errors import BadRequest, NotFound, StorageDamaged, StorageError
from palinurus.extensions.backup.pack import (
    DATABASE,
    FORMAT,
    HOME,
    LABEL,
    MANIFEST,
    PIECE,
    SEAL_LENGTH,
    TYPES,
    WORKSPACES,
    BackupManifest,
    BackupPart,
    HashingReader,
    Label,
    Tell,
    seal_of,
)
from palinurus.extensions.backup.seal import MAGIC, SealedReader, damaged, read_head

GZIP = b"\x1f\x8b"
LONGEST_LABEL = 64 * 1024
LONGEST_MANIFEST = 1024 * 1024 * 1024
_ROOTS = (HOME, WORKSPACES)
Take = Callable[[BackupPart, IO[bytes]], None]
"""Called with each part before its digest is checked. It need not read the stream to its end."""


class VerifyReport(Struct, frozen=True, rename="camel"):
    id: str
    path: str
    created_at: int
    parts: int
    content: int
    sealed: bool
    credentials: bool
    ok: bool = True  # a damaged one raises


class RestoreReport(Struct, frozen=True, rename="camel"):
    id: str
    home: str
    parts: int
    content: int
    credentials: bool
    notes: tuple[str, ...] = ()


def is_sealed(path: Path) -> bool:
    """Raises NotFound, and StorageDamaged when the file is no backup."""
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        why = f"the backup {path} cannot be read: {error.strerror}"
        raise NotFound(why, hint="`pal backup list` shows them") from None
    if start == MAGIC:
        return True
    if not start.startswith(GZIP):
        raise damaged(str(path), "it does not start like a backup")
    return False


def read_label(path: Path) -> Label:
    """The label, without reading the rest; of a sealed backup only id and time. Raises as `is_sealed`."""
    sealed = is_sealed(path)
    with _reporting_damage(path), path.open("rb") as file:
        if sealed:
            head, _ = read_head(file, str(path))
            return Label(head.id, head.created_at, "", "")
        with gzip.GzipFile(fileobj=file) as whole, tarfile.open(fileobj=whole, mode="r|") as tar:
            return _label(tar, path)


def read_through(path: Path, passphrase: str, take: Take, tell: Tell = lambda _, __: None) -> BackupManifest:
    """Pass each part to `take`, then check all parts and the file itself.

    The parts can be trusted only when this returns. Raises StorageDamaged, and ConfigError for a wrong passphrase.
    """
    sealed = is_sealed(path)
    with _reporting_damage(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        hashed = HashingReader(file, size if sealed else size - SEAL_LENGTH, lambda _: tell(file.tell(), size))
        source = SealedReader(hashed, passphrase, str(path)) if sealed else hashed  # type: ignore[arg-type]
        with gzip.GzipFile(fileobj=io.BufferedReader(source, PIECE)) as whole:
            with tarfile.open(fileobj=whole, mode="r|", bufsize=PIECE) as tar:
                label = _label(tar, path)
                found, manifest = _read_parts(tar, take, path)
            _read_to_end(whole)  # gzip compares its checksum at the end
        _read_to_end(hashed)
        if not sealed and file.read() != seal_of(hashed.digest.hexdigest()):
            raise damaged(str(path), "its bytes have changed since it was written")
    listed = {part.path: part for part in manifest.parts}
    for name in sorted(found.keys() | listed.keys()):
        if found.get(name) != listed.get(name):
            raise damaged(str(path), f"{name} is not what its manifest says")
    if manifest.label != label:
        raise damaged(str(path), "its label and its manifest differ")
    return manifest


def _label(tar: tarfile.TarFile, path: Path) -> Label:
    first = tar.next()
    if first is None or first.name != LABEL or first.size > LONGEST_LABEL:
        raise damaged(str(path), "it does not begin with its label")
    data = _opened(tar, first).read()
    label = msgspec.json.decode(data, type=Label)
    if label.format > FORMAT:
        raise StorageError(f"the backup {path} has format {label.format}", hint="use the newer release of pal")
    return label


def _read_parts(tar: tarfile.TarFile, take: Take, path: Path) -> tuple[dict[str, BackupPart], BackupManifest]:
    found: dict[str, BackupPart] = {}
    manifest: BackupManifest | None = None
    while (info := tar.next()) is not None:
        if info.name in found or (info.name == MANIFEST and manifest is not None):
            raise damaged(str(path), f"{info.name} is in it twice")
        if info.name == MANIFEST and info.size <= LONGEST_MANIFEST:
            manifest = msgspec.json.decode(_opened(tar, info).read(), type=BackupManifest)
        else:
            found[info.name] = _read_part(tar, info, take, path)
    if manifest is None:
        raise damaged(str(path), "its end is missing")
    return found, manifest


def _read_part(tar: tarfile.TarFile, info: tarfile.TarInfo, take: Take, path: Path) -> BackupPart:
    kind = next((kind for kind, known in TYPES.items() if known == info.type), None)
    if kind is None:
        raise damaged(str(path), f"{info.name} is of a kind that is not allowed in a backup")
    part = BackupPart(info.name, kind, info.size, info.mode, target=info.linkname)
    if kind != "file":
        take(part, io.BytesIO())
        return part
    stream = HashingReader(_opened(tar, info), info.size)
    take(part, stream)  # type: ignore[arg-type]
    _read_to_end(stream)
    return replace(part, sha256=stream.digest.hexdigest())


def _read_to_end(stream: io.RawIOBase | gzip.GzipFile) -> None:
    while stream.read(PIECE):
        pass


def _opened(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(info)
    if stream is None:
        raise tarfile.ReadError("a part is not a file although it should be one")
    return stream


@contextmanager
def _reporting_damage(path: Path) -> Iterator[None]:
    """Raise one error of ours for all that damaged bytes make readers raise."""
    try:
        yield
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError, OverflowError) as error:
        raise damaged(str(path), str(error) or type(error).__name__) from None  # ValueError: also bad JSON and text
    except StorageDamaged:
        raise
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}", hint="check the disk") from None


def restore(backup: Path, to: Path, passphrase: str, tell: Tell = lambda _, __: None) -> RestoreReport:
    """Make a home at `to`. Blocks.

    Raises BadRequest when `to` is not empty, StorageDamaged for any changed byte; then nothing is written.
    """
    if os.path.lexists(to) and not (to.is_dir() and not to.is_symlink() and not any(to.iterdir())):
        why = f"{to} is not empty; a backup is never restored over existing files"
        raise BadRequest(why, hint="name a new folder: --to")
    make_directory(to.parent)
    stage = to.with_name(f".{to.name}.restoring-{os.urandom(4).hex()}")
    try:
        stage.mkdir(mode=0o700)
        manifest = _unpack(backup, stage, passphrase, tell)
        _put_in_place(stage, to)
    except OSError as error:
        raise storage_error(error, to) from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    about = (manifest.label.id, str(to), len(manifest.parts), manifest.size)
    return RestoreReport(*about, manifest.credentials, _notes(manifest, to))


def verify(backup: Path, passphrase: str, scratch: Path, tell: Tell = lambda _, __: None) -> VerifyReport:
    """Read all of it, and check its database in the folder `scratch`. Blocks. Raises as `restore`."""
    database = scratch / "home.sqlite"

    def take(part: BackupPart, stream: IO[bytes]) -> None:
        if part.path == DATABASE:
            _copy(stream, database, 0o600)

    try:
        manifest = read_through(backup, passphrase, take, tell)
        _check_database(backup, database)
    except OSError as error:
        raise storage_error(error, scratch) from None
    about = (manifest.label.id, str(backup), manifest.label.created_at, len(manifest.parts), manifest.size)
    return VerifyReport(*about, is_sealed(backup), manifest.credentials)


def _unpack(backup: Path, stage: Path, passphrase: str, tell: Tell) -> BackupManifest:
    links: list[BackupPart] = []
    folders: list[BackupPart] = []

    def take(part: BackupPart, stream: IO[bytes]) -> None:
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
    _check_database(backup, stage / DATABASE)
    for part in links:
        (stage / part.path).symlink_to(part.target)
    for part in reversed(folders):  # at the end: a read-only folder could not have been filled
        (stage / part.path).chmod(part.mode | 0o700)
    return manifest


def _place(stage: Path, name: str, backup: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or len(path.parts) < 2 or path.parts[0] not in _ROOTS or ".." in path.parts or "\0" in name:
        raise damaged(backup, f"{name!r} is not a valid path in a home")
    return stage.joinpath(*path.parts)


def _copy(stream: IO[bytes], to: Path, mode: int) -> None:
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(stream, file, PIECE)
        os.fchmod(file.fileno(), mode | 0o600)


def _check_database(backup: Path, database: Path) -> None:
    if database.exists() and (fault := fault_of(database)):
        raise StorageDamaged(f"the database in {backup} is damaged: {fault}", hint="use another backup")


def _put_in_place(stage: Path, to: Path) -> None:
    home = stage / HOME
    home.mkdir(mode=0o700, exist_ok=True)
    home.chmod(0o700)
    if (stage / WORKSPACES).is_dir():
        (stage / WORKSPACES).rename(home / WORKSPACES)
    for beside in ("home.sqlite-wal", "home.sqlite-shm"):  # made by the check
        (home / beside).unlink(missing_ok=True)
    _sync(home)
    if to.is_dir():
        to.rmdir()  # raises unless it is empty
    home.rename(to)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _notes(manifest: BackupManifest, to: Path) -> tuple[str, ...]:
    notes = [
        f"the workspace of {place.agent} was outside of the home, in {place.path}; it is in "
        f"{to / WORKSPACES / place.agent} now, and the config still names the old place"
        for place in manifest.outside
    ]
    if not manifest.credentials:
        notes.append("stored keys are not in this backup; `pal models auth add` stores them again")
    notes += [f"not in the backup: {left.path} ({left.why})" for left in manifest.left_out[:20]]
    return tuple(notes)


def fault_of(path: Path) -> str:
    """What is wrong with a database, empty when nothing is. Blocks, and reads all of it."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            said = connection.execute("PRAGMA integrity_check(1)").get
            lost = connection.execute("PRAGMA foreign_key_check").fetchall()
    except apsw.Error as error:
        return str(error)
    if said != "ok":
        return str(said)
    return f"a row of {lost[0][0]} has no parent row" if lost else ""
