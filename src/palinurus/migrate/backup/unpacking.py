"""Read a backup from one end to the other, and believe nothing in it that its digests do not confirm."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from palinurus.domain.errors import NotFound, StorageDamaged, StorageError
from palinurus.migrate.backup.manifest import FORMAT, LABEL, MANIFEST, Label, Manifest, Part
from palinurus.migrate.backup.packing import PIECE, SEAL_LENGTH, Tell, seal_of
from palinurus.migrate.backup.sealing import MAGIC, SealedReader, damaged, read_head

GZIP = b"\x1f\x8b"
LONGEST_LABEL = 64 * 1024
LONGEST_MANIFEST = 1024 * 1024 * 1024

Take = Callable[[Part, IO[bytes]], None]
"""Given each part as it comes, its digest not yet confirmed. It need not read the stream to its end."""


def is_sealed(path: Path) -> bool:
    """Raises NotFound, and StorageDamaged when it is no backup at all."""
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise NotFound(
            f"the backup {path} cannot be read: {error.strerror}", hint="`pal backup list` shows them"
        ) from None
    if start == MAGIC:
        return True
    if not start.startswith(GZIP):
        raise damaged(str(path), "it does not begin like one")
    return False


def read_label(path: Path) -> Label:
    """Which backup it is, without a look at the rest; of a sealed one its id and time. Raises as `is_sealed`."""
    sealed = is_sealed(path)
    with _told(path), path.open("rb") as file:
        if sealed:
            head, _ = read_head(file, str(path))
            return Label(head.id, head.created_at, "", "")
        with gzip.GzipFile(fileobj=file) as whole, tarfile.open(fileobj=whole, mode="r|") as tar:
            return _label(tar, path)


def read_through(path: Path, passphrase: str, take: Take, tell: Tell = lambda _, __: None) -> Manifest:
    """Hand each part to `take`, then confirm all of them and the file itself.

    Only when this returns is what was taken true. Raises StorageDamaged, and ConfigError for a wrong passphrase.
    """
    sealed = is_sealed(path)
    with _told(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        counted = _Counted(file, size if sealed else size - SEAL_LENGTH, lambda done: tell(done, size))
        source = SealedReader(counted, passphrase, str(path)) if sealed else counted  # type: ignore[arg-type]
        with gzip.GzipFile(fileobj=io.BufferedReader(source, PIECE)) as whole:
            with tarfile.open(fileobj=whole, mode="r|", bufsize=PIECE) as tar:
                label = _label(tar, path)
                found = {part.path: part for part in _parts(tar, take, path)}
                manifest = _manifest(found.pop(MANIFEST, None), path)
            while whole.read(PIECE):  # to its very end, which only then is compared
                pass
        while counted.read(PIECE):
            pass
        if not sealed and file.read() != seal_of(counted.digest.hexdigest()):
            raise damaged(str(path), "its bytes are not those that were written")
    if manifest.label != label or found != {part.path: part for part in manifest.parts}:
        raise damaged(str(path), _difference(found, manifest))
    return manifest


class _Held(Part, frozen=True):
    """The manifest itself, whose bytes are needed."""

    data: bytes = b""


def _label(tar: tarfile.TarFile, path: Path) -> Label:
    first = tar.next()
    if first is None or first.name != LABEL or first.size > LONGEST_LABEL:
        raise damaged(str(path), "it does not begin with its label")
    data = _opened(tar, first).read()
    label = msgspec.json.decode(data, type=Label)
    if label.format > FORMAT:
        raise StorageError(f"the backup {path} has format {label.format}", hint="use the newer release of pal")
    return label


def _parts(tar: tarfile.TarFile, take: Take, path: Path) -> Iterator[Part]:
    seen: set[str] = set()
    while (info := tar.next()) is not None:
        if info.name in seen:
            raise damaged(str(path), f"{info.name} is in it twice")
        seen.add(info.name)
        if info.name == MANIFEST and info.size <= LONGEST_MANIFEST:
            yield _Held(MANIFEST, data=_opened(tar, info).read())
        elif info.isdir():
            yield _taken(take, Part(info.name, "folder", mode=info.mode), io.BytesIO())
        elif info.issym():
            yield _taken(take, Part(info.name, "link", mode=info.mode, target=info.linkname), io.BytesIO())
        elif info.isreg():
            stream = _Summed(_opened(tar, info))
            take(Part(info.name, "file", info.size, info.mode), stream)  # type: ignore[arg-type]
            while stream.read(PIECE):
                pass
            yield Part(info.name, "file", info.size, info.mode, stream.digest.hexdigest())
        else:
            raise damaged(str(path), f"{info.name} is of a kind that no backup holds")


def _taken(take: Take, part: Part, stream: IO[bytes]) -> Part:
    take(part, stream)
    return part


def _opened(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(info)
    if stream is None:
        raise tarfile.ReadError("a part that should be a file is none")
    return stream


def _manifest(held: Part | None, path: Path) -> Manifest:
    if not isinstance(held, _Held):
        raise damaged(str(path), "its end is missing")
    return msgspec.json.decode(held.data, type=Manifest)


def _difference(found: dict[str, Part], manifest: Manifest) -> str:
    listed = {part.path: part for part in manifest.parts}
    for name in sorted(found.keys() | listed.keys()):
        if found.get(name) != listed.get(name):
            return f"{name} is not what its manifest says"
    return "its label and its manifest differ"


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What damaged bytes make of their readers, as one error of ours."""
    try:
        yield
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, msgspec.DecodeError, UnicodeError) as error:
        raise damaged(str(path), str(error) or type(error).__name__) from None
    except (ValueError, OverflowError) as error:  # numbers in a header of the tar that are none
        raise damaged(str(path), str(error)) from None
    except StorageDamaged:
        raise
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}", hint="is the disk in order?") from None


class _Counted(io.RawIOBase):
    """The first `size` bytes of a file, counted and summed up."""

    def __init__(self, file: IO[bytes], size: int, tell: Callable[[int], None]) -> None:
        self._file, self._left, self._tell = file, max(size, 0), tell
        self._done = 0
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        self._done += len(data)
        self.digest.update(data)
        self._tell(self._done)
        return len(data)


class _Summed:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data
