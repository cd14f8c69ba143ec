"""Replaces files atomically, with numbered backups."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from palinurus.domain.errors import StorageError, StorageFull, StorageReadOnly

NEW_FILE_MODE = 0o600  # the content may hold secrets


def write_atomic(path: Path, data: bytes | str, *, mode: int = NEW_FILE_MODE) -> None:
    """Writes `data` to `path` so that a reader, also after a power cut, sees the old file or the new one.

    `mode` is for a new file; an existing one keeps its own. Raises StorageFull, StorageReadOnly or StorageError; the
    old file is then unchanged and no temporary file is left. A link at `path` is replaced, not followed.
    """
    payload = data.encode() if isinstance(data, str) else data
    with storage_errors(path):
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
        _replace(path, payload, mode)


def rotate_backups(path: Path, keep: int = 5) -> None:
    """Copies `path` to `<name>.bak`, moving older copies to `.bak.1`, `.bak.2` and so on; `keep` in all.

    A missing file needs no backup. Raises what `write_atomic` raises.
    """
    ring = [path.with_name(f"{path.name}.bak{f'.{index}' if index else ''}") for index in range(keep)]
    with storage_errors(path):
        if not path.exists():
            return
        content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    with storage_errors(ring[0]):
        for older, newer in zip(reversed(ring[1:]), reversed(ring[:-1]), strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
    write_atomic(ring[0], content, mode=mode)


def make_directory(path: Path) -> None:
    """Creates a private directory with its parents. Raises what `write_atomic` raises."""
    with storage_errors(path):
        for parent in reversed([each for each in path.parents if not each.exists()]):
            parent.mkdir(mode=0o700, exist_ok=True)  # `parents=True` would make them readable by others
        path.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Re-raises the operating system's errors as a StorageError that names the file."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    """The operating system's error as a StorageError that names the file."""
    why = f"cannot write {path}: {(error.strerror or str(error)).lower()}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"cannot write {path}: the disk is full", hint="free some space; nothing was changed")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StorageReadOnly(why, hint="give this user the right to write there, or choose another home")
    return StorageError(why)


def _replace(path: Path, payload: bytes, mode: int) -> None:
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, NEW_FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Syncs the directory: only then does the new name survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a directory, and need not
            raise
    finally:
        os.close(descriptor)
