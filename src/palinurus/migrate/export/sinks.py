"""Where an export goes: a folder that was not there before, or one zip file with the digest of everything in it."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest

MANIFEST = "manifest.json"
FORMAT = "palinurus-export"
ENDING = ".pal"
PIECE = 1024 * 1024
LEVEL = 3  # of compression: most of what more would save costs too much time


class Part(Struct, frozen=True):
    path: str
    size: int
    sha256: str


class Manifest(Struct, frozen=True, rename="camel"):
    format: str
    version: int
    created_at: int
    files: tuple[Part, ...]


class Sink(Protocol):
    """Takes files by their path. Nothing is in place before `finish`; `abandon` leaves no trace."""

    def open(self, path: str) -> AbstractContextManager[BinaryIO]: ...

    def finish(self, created_at: int) -> None: ...

    def abandon(self) -> None: ...


class FolderSink:
    """A folder. It is built beside its place and moved there when it is whole."""

    def __init__(self, target: Path) -> None:
        """Raises BadRequest when something is there."""
        self._target = target
        _must_be_free(target)
        self._folder = _beside(target)
        self._folder.mkdir(mode=0o700, parents=True)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        place = self._folder / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", PIECE) as file:
            yield file

    def finish(self, created_at: int) -> None:
        _must_be_free(self._target)
        if self._target.exists():
            self._target.rmdir()  # an empty folder that somebody made for it
        self._folder.rename(self._target)

    def abandon(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class ZipSink:
    """One file, with a manifest at its end."""

    def __init__(self, target: Path) -> None:
        self._target = target
        if os.path.lexists(target):
            raise BadRequest(f"{target} is there already", hint="name another file, or move it away")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._beside = _beside(target)
        descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)
        self._parts: list[Part] = []

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with self._zip.open(path, "w", force_zip64=True) as raw:
            file = _Counting(raw)  # type: ignore[arg-type]
            yield file  # type: ignore[misc]
        self._parts.append(Part(path, file.size, file.digest.hexdigest()))

    def finish(self, created_at: int) -> None:
        made = Manifest(FORMAT, 1, created_at, tuple(self._parts))
        self._zip.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(made)))
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.link(self._beside, self._target)  # fails where somebody was quicker
        self._beside.unlink()

    def abandon(self) -> None:
        with suppress(OSError, ValueError):
            self._file.close()
        self._beside.unlink(missing_ok=True)


class _Counting(io.RawIOBase):
    """Writes through, and knows the digest of all of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._to = file
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.size += len(data)
        self.digest.update(data)
        return self._to.write(data)


def _must_be_free(target: Path) -> None:
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise BadRequest(f"{target} is there already", hint="name a folder that is not there yet")


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")
