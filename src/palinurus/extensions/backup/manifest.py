"""The content of a backup: a label at its beginning, the parts, and a manifest of all parts with their digests.

Left out: derived files, logs, locks, sockets, backups, and stored keys unless they are wanted. Links are stored as
links and never followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

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


# By their names in the root of a home.
_AGAIN = frozenset({"derived", "logs", "backups", "backups.json", "lock", "pal.sock", "gateway.json", "login.html"})
_DATABASE = "home.sqlite"  # the packer adds a copy
_KEYS = frozenset({"credentials.json", "gateway.token", "tls", ".env"})


class Item(Struct, frozen=True):
    path: str  # in the archive
    source: Path
    kind: Kind
    size: int
    mode: int


class Contents:
    """`workspaces` are those of all agents, by their ids."""

    def __init__(self, root: Path, workspaces: Mapping[str, Path], *, credentials: bool) -> None:
        self.left_out: list[OmittedFile] = []
        self._root = root
        self._credentials = credentials
        inside = root.resolve()
        outside = {agent: path for agent, path in workspaces.items() if not path.resolve().is_relative_to(inside)}
        self._outside = {path.resolve(): agent for agent, path in reversed(list(outside.items()))}  # each folder once
        self.outside = tuple(OutsideFolder(agent, str(path)) for path, agent in sorted(self._outside.items()))

    def items(self) -> Iterator[Item]:
        """Folders before their content, always in the same order."""
        yield from self._walk(self._root, HOME, top=True)
        for place in self.outside:
            yield from self._walk(Path(place.path), f"{WORKSPACES}/{place.agent}")

    def _walk(self, folder: Path, name: str, *, top: bool = False) -> Iterator[Item]:
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self.left_out.append(OmittedFile(name, f"cannot be read: {error.strerror}"))
            return
        for entry in entries:
            if not self._is_skipped(entry.name, name, top=top):
                yield from self._entry(entry, f"{name}/{entry.name}")

    def _entry(self, entry: os.DirEntry[str], name: str) -> Iterator[Item]:
        try:
            name.encode()
            found = entry.stat(follow_symlinks=False)
        except (OSError, UnicodeEncodeError) as error:
            self.left_out.append(OmittedFile(name.encode("utf-8", "replace").decode(), f"cannot be named: {error}"))
            return
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if stat.S_ISDIR(found.st_mode):
            yield Item(name, Path(entry.path), "folder", 0, mode)
            yield from self._walk(Path(entry.path), name)
        elif stat.S_ISLNK(found.st_mode):
            yield Item(name, Path(entry.path), "link", 0, 0o777)
        elif stat.S_ISREG(found.st_mode):
            yield Item(name, Path(entry.path), "file", found.st_size, mode)
        else:
            self.left_out.append(OmittedFile(name, "neither file nor folder nor link"))

    def _is_skipped(self, entry: str, folder: str, *, top: bool) -> bool:
        if entry in _KEYS and (top or folder.startswith(f"{HOME}/agents/")) and not self._credentials:
            self.left_out.append(OmittedFile(f"{folder}/{entry}", "stored keys are left out without --credentials"))
            return True
        if not top:
            return False
        again = entry in _AGAIN or entry.startswith(_DATABASE) or entry.endswith(".lock")
        return again or (entry.startswith(".") and entry.endswith(".tmp"))  # an unfinished file
