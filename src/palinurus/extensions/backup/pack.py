"""The content of a backup, and writing it: a compressed tar, which appears under its name when it is complete.

It has a label at its beginning, the parts, and a manifest of all parts with their digests. Left out: derived files,
logs, locks, sockets, backups, and stored keys unless they are wanted. Links are stored as links and never followed.

Without a seal it is an ordinary `.tar.gz`. It ends with an empty gzip member whose comment is the SHA-256 of all bytes
before it, so that any changed byte is noticed; other programs ignore that member.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.atomic import make_directory, storage_error
from palinurus.domain.errors import BadRequest
from palinurus.extensions.backup.seal import SealedWriter
from palinurus.workspace.walk import walk_tree

FORMAT = 1
LABEL = "backup.json"  # the first part, so that it can be read without the rest
MANIFEST = "manifest.json"  # the last part, when all digests are known
HOME, WORKSPACES = "home", "workspaces"  # folders in the archive
DATABASE = f"{HOME}/home.sqlite"
Kind = Literal["file", "folder", "link"]


class Label(Struct, frozen=True, rename="camel"):
    """Which backup it is."""

    id: str
    created_at: int  # milliseconds; it holds every message that was acknowledged before
    release: str
    home: str  # where it was taken
    format: int = FORMAT


class BackupPart(Struct, frozen=True, rename="camel", omit_defaults=True):
    path: str
    kind: Kind = "file"
    size: int = 0
    mode: int = 0o600
    sha256: str = ""
    target: str = ""  # of a link


class OmittedFile(Struct, frozen=True):
    path: str
    why: str


class OutsideFolder(Struct, frozen=True):
    """A workspace that lies outside of the home."""

    agent: str
    path: str


class BackupManifest(Struct, frozen=True, rename="camel"):
    label: Label
    credentials: bool  # whether stored keys are among the parts
    parts: tuple[BackupPart, ...]
    left_out: tuple[OmittedFile, ...] = ()
    outside: tuple[OutsideFolder, ...] = ()

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class BackupReport(Struct, frozen=True, rename="camel"):
    """A backup that was made."""

    id: str
    path: str
    created_at: int
    bytes: int  # of the file
    parts: int
    content: int  # bytes of the parts
    sealed: bool
    credentials: bool
    left_out: tuple[OmittedFile, ...] = ()
    seconds: float = 0.0


# By their names in the root of a home.
_AGAIN = frozenset({"derived", "logs", "backups", "backups.json", "lock", "pal.sock", "gateway.json", "login.html"})
_DATABASE = "home.sqlite"  # the packer adds a copy
_KEYS = frozenset({"credentials.json", "mcp-credentials.json", "gateway.token", "tls", ".env"})


Item = tuple[BackupPart, Path]
"""A part without its digest and target, and where it is now."""


class Contents:
    """`workspaces` are those of all agents, by their ids."""

    def __init__(self, root: Path, workspaces: Mapping[str, Path], *, credentials: bool) -> None:
        self.left_out: list[OmittedFile] = []
        self.credentials = credentials
        self._root = root
        inside = root.resolve()
        agents = {path.resolve(): agent for agent, path in reversed(list(workspaces.items()))}  # each folder once
        outside = sorted((path, agent) for path, agent in agents.items() if not path.is_relative_to(inside))
        self.outside = tuple(OutsideFolder(agent, str(path)) for path, agent in outside)

    def items(self) -> Iterator[Item]:
        """Folders before their content, always in the same order."""
        outside = {f"{WORKSPACES}/{place.agent}": Path(place.path) for place in self.outside}
        for name, folder in {HOME: self._root, **outside}.items():
            report, skip = partial(self._report_unreadable, name), partial(self._is_skipped, name)
            for path, entry in walk_tree(folder, skip=skip, on_error=report, max_entries=sys.maxsize):
                yield from self._entry(entry, f"{name}/{path}")

    def _report_unreadable(self, top: str, path: str, error: OSError) -> None:
        self._omit(top if path == "." else f"{top}/{path}", f"cannot be read: {error.strerror}")

    def _omit(self, name: str, why: str) -> None:
        self.left_out.append(OmittedFile(name.encode("utf-8", "replace").decode(), why))

    def _entry(self, entry: os.DirEntry[str], name: str) -> Iterator[Item]:
        try:
            name.encode()
            found = entry.stat(follow_symlinks=False)
        except (OSError, UnicodeEncodeError) as error:
            self._omit(name, f"cannot be named: {error}")
            return
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if stat.S_ISDIR(found.st_mode):
            yield BackupPart(name, "folder", mode=mode), Path(entry.path)
        elif stat.S_ISLNK(found.st_mode):
            yield BackupPart(name, "link", mode=0o777), Path(entry.path)
        elif stat.S_ISREG(found.st_mode):
            yield BackupPart(name, "file", found.st_size, mode), Path(entry.path)
        else:
            self._omit(name, "neither file nor folder nor link")

    def _is_skipped(self, top: str, path: str, entry: os.DirEntry[str]) -> bool:
        name, is_top = entry.name, top == HOME and "/" not in path
        of_agent = top == HOME and path.startswith("agents/") and path.count("/") > 1
        if name in _KEYS and (is_top or of_agent) and not self.credentials:
            self._omit(f"{top}/{path}", "stored keys are left out without --credentials")
            return True
        again = name in _AGAIN or name.startswith(_DATABASE) or name.endswith(".lock")
        return is_top and (again or (name.startswith(".") and name.endswith(".tmp")))  # an unfinished file


LEVEL = 4  # of compression: twice as fast as the usual one, a few hundredths larger
PIECE = 1024 * 1024
TYPES: dict[Kind, bytes] = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}
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

    def pack(self, target: Path, contents: Contents, database: Path | None) -> BackupReport:
        """`database` is a copy that is not written. Raises StorageError, and then leaves nothing behind."""
        began = time.monotonic()
        if os.path.lexists(target):
            raise BadRequest(f"{target} already exists", hint="name another file")
        make_directory(target.parent)
        beside = target.with_name(f".{target.name}.tmp")
        try:
            manifest = self._write(beside, contents, database)
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
            len(manifest.parts),
            manifest.size,
            bool(self._passphrase),
            manifest.credentials,
            manifest.left_out,
            round(time.monotonic() - began, 2),
        )

    def _write(self, path: Path, contents: Contents, database: Path | None) -> BackupManifest:
        items = list(contents.items())
        if database is not None:
            items.insert(0, (BackupPart(DATABASE, "file", database.stat().st_size), database))
        self._total = sum(part.size for part, _ in items)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            sink: SealedWriter | HashedWriter = HashedWriter(file)
            if self._passphrase:
                sink = SealedWriter(file, self._passphrase, self._label.id, self._label.created_at)
            with (
                gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as squeezed,
                tarfile.open(fileobj=squeezed, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE) as tar,
            ):
                _add(tar, LABEL, msgspec.json.encode(self._label))
                for part, source in items:
                    self._add_part(tar, part, source)
                left_out = (*self._left_out, *contents.left_out)
                parts = tuple(self._parts)
                manifest = BackupManifest(self._label, contents.credentials, parts, left_out, contents.outside)
                _add(tar, MANIFEST, msgspec.json.encode(manifest))
            sink.finish()
            file.flush()
            os.fsync(file.fileno())
        return manifest

    def _add_part(self, tar: tarfile.TarFile, part: BackupPart, source: Path) -> None:
        info = tarfile.TarInfo(part.path)
        info.mode, info.type = part.mode, TYPES[part.kind]
        try:
            if part.kind == "link":
                info.linkname = os.readlink(source)  # noqa: PTH115  # unchanged
            if part.kind == "file":
                descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._left_out.append(OmittedFile(part.path, f"cannot be read: {error.strerror}"))
            return
        if part.kind == "file":
            with os.fdopen(descriptor, "rb") as file:
                part = self._add_file(tar, part, file, info)
        else:
            tar.addfile(info)
        self._parts.append(replace(part, target=info.linkname))

    def _add_file(self, tar: tarfile.TarFile, part: BackupPart, file: IO[bytes], info: tarfile.TarInfo) -> BackupPart:
        found = os.fstat(file.fileno())
        info.size, info.mtime = found.st_size, int(found.st_mtime)
        source = HashingReader(file, info.size, self._advance, padded=True)
        tar.addfile(info, source)
        if source.missing:
            self._left_out.append(OmittedFile(part.path, f"its last {source.missing} bytes went while it was read"))
        return replace(part, size=info.size, sha256=source.digest.hexdigest())

    def _advance(self, count: int) -> None:
        self._done += count
        self._tell(self._done, max(self._total, self._done))


class HashingReader(io.RawIOBase):
    """The first `size` bytes of a stream, and their digest. `advance` is called with how many were read.

    `padded`: zeros stand for bytes that the stream no longer has; `missing` counts them.
    """

    def __init__(
        self, stream: IO[bytes], size: int, advance: Callable[[int], None] = lambda _: None, *, padded: bool = False
    ) -> None:
        self._stream, self._left, self._advance, self._padded = stream, max(size, 0), advance, padded
        self.digest = hashlib.sha256()
        self.missing = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._left)
        data = self._stream.read(wanted)
        if self._padded:
            self.missing += wanted - len(data)
            data = data.ljust(wanted, b"\0")
        buffer[: len(data)] = data
        self._left -= len(data)
        self.digest.update(data)
        self._advance(len(data))
        return len(data)


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
