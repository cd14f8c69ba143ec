"""Write a backup: a compressed tar of all parts, as one file, which appears under its name when it is complete.

Without a seal it is an ordinary `.tar.gz`. It ends with an empty gzip member whose comment is the SHA-256 of all bytes
before it, so that any changed byte is noticed; other programs ignore that member.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from palinurus.config.atomic import make_directory, storage_error
from palinurus.domain.errors import BadRequest
from palinurus.extensions.backup.manifest import (
    DATABASE,
    LABEL,
    MANIFEST,
    BackupManifest,
    BackupPart,
    BackupReport,
    Contents,
    Item,
    Label,
    OmittedFile,
)
from palinurus.extensions.backup.seal import SealedWriter

LEVEL = 4  # of compression: twice as fast as the usual one, a few hundredths larger
PIECE = 1024 * 1024
Tell = Callable[[int, int], None]
"""How many bytes of how many were read. Called in a thread; neither blocks nor raises."""


class Packer:
    """Makes one backup. It blocks: call it in a thread."""

    def __init__(self, label: Label, *, passphrase: str = "", tell: Tell = lambda _, __: None) -> None:
        self._label = label
        self._passphrase = passphrase
        self._tell = tell
        self._parts: list[BackupPart] = []
        self._left_out: list[OmittedFile] = []
        self._done = self._total = 0

    def pack(self, target: Path, contents: Contents, database: Path | None, *, credentials: bool) -> BackupReport:
        """`database` is a copy that is not written. Raises StorageError, and then leaves nothing behind."""
        began = time.monotonic()
        if os.path.lexists(target):
            raise BadRequest(f"{target} already exists", hint="name another file")
        make_directory(target.parent)
        beside = target.with_name(f".{target.name}.tmp")
        try:
            self._write(beside, contents, database, credentials=credentials)
            os.link(beside, target)  # unlike a rename it never replaces a file
            size = target.stat().st_size
        except OSError as error:
            raise storage_error(error, target) from None
        finally:
            beside.unlink(missing_ok=True)
        return BackupReport(
            self._label.id,
            str(target),
            self._label.created_at,
            size,
            len(self._parts),
            sum(part.size for part in self._parts),
            bool(self._passphrase),
            credentials,
            tuple(self._left_out),
            round(time.monotonic() - began, 2),
        )

    def _write(self, path: Path, contents: Contents, database: Path | None, *, credentials: bool) -> None:
        items = list(contents.items())
        if database is not None:
            items.insert(0, Item(DATABASE, database, "file", database.stat().st_size, 0o600))
        self._total = sum(item.size for item in items)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            sink = self._sink(file)
            with (
                gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as squeezed,
                tarfile.open(fileobj=squeezed, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE) as tar,
            ):
                _add(tar, LABEL, msgspec.json.encode(self._label))
                self._add_all(tar, items)
                self._left_out += contents.left_out
                _add(tar, MANIFEST, msgspec.json.encode(self._manifest(contents, credentials=credentials)))
            sink.finish()
            file.flush()
            os.fsync(file.fileno())

    def _sink(self, file: IO[bytes]) -> SealedWriter | HashedWriter:
        if self._passphrase:
            return SealedWriter(file, self._passphrase, self._label.id, self._label.created_at)
        return HashedWriter(file)

    def _manifest(self, contents: Contents, *, credentials: bool) -> BackupManifest:
        return BackupManifest(self._label, credentials, tuple(self._parts), tuple(self._left_out), contents.outside)

    def _add_all(self, tar: tarfile.TarFile, items: Iterable[Item]) -> None:
        for item in items:
            try:
                self._parts.append(self._add_item(tar, item))
            except _Unreadable as error:
                self._left_out.append(OmittedFile(item.path, str(error)))

    def _add_item(self, tar: tarfile.TarFile, item: Item) -> BackupPart:
        info = tarfile.TarInfo(item.path)
        info.mode = item.mode
        if item.kind == "folder":
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
            return BackupPart(item.path, "folder", mode=item.mode)
        if item.kind == "link":
            info.type, info.linkname = tarfile.SYMTYPE, _target(item.source)
            tar.addfile(info)
            return BackupPart(item.path, "link", mode=item.mode, target=info.linkname)
        return self._add_file(tar, item, info)

    def _add_file(self, tar: tarfile.TarFile, item: Item, info: tarfile.TarInfo) -> BackupPart:
        try:
            descriptor = os.open(item.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise _Unreadable(f"cannot be read: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            info.size, info.mtime = found.st_size, int(found.st_mtime)
            source = _FixedSizeReader(file, info.size, self._advance)
            tar.addfile(info, source)
        if source.missing:
            self._left_out.append(OmittedFile(item.path, f"its last {source.missing} bytes went while it was read"))
        return BackupPart(item.path, "file", info.size, item.mode, source.digest.hexdigest())

    def _advance(self, count: int) -> None:
        self._done += count
        self._tell(self._done, max(self._total, self._done))


class _Unreadable(Exception):
    """A file that vanished or cannot be read. The manifest lists it."""


class _FixedSizeReader(io.RawIOBase):
    """As many bytes as the file had when it was opened, even if it changes meanwhile; and their digest."""

    def __init__(self, file: IO[bytes], size: int, advance: Callable[[int], None]) -> None:
        self._file, self._left, self._advance = file, size, advance
        self.digest = hashlib.sha256()
        self.missing = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        if len(data) < wanted:
            self.missing += wanted - len(data)
            data += bytes(wanted - len(data))
        self._left -= wanted
        self.digest.update(data)
        self._advance(wanted)
        return data


class HashedWriter(io.RawIOBase):
    """Passes bytes on, and adds their digest at the end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def finish(self) -> None:
        self._file.write(seal_of(self._digest.hexdigest()))


def seal_of(digest: str) -> bytes:
    """An empty gzip member with a comment. Always of the same length."""
    head = b"\x1f\x8b\x08\x10" + bytes(5) + b"\xff" + f"sha256 {digest}".encode() + b"\0"
    return head + b"\x03\x00" + bytes(8)  # no data, its CRC and its length


SEAL_LENGTH = len(seal_of("0" * 64))


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o600
    tar.addfile(info, io.BytesIO(data))


def _target(link: Path) -> str:
    with suppress(OSError):
        return os.readlink(link)  # noqa: PTH115  # unchanged
    raise _Unreadable("the link went while it was read")
