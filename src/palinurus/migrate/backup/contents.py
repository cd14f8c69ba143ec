"""What of a home goes into a backup: everything that cannot be made again.

Left out are what is derived, logs, locks and sockets, backups themselves, and stored keys unless they are asked for.
Links are kept as links and never followed: whatever they lead to is not a part of the home.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from palinurus.migrate.backup.manifest import HOME, WORKSPACES, Kind, LeftOut, Outside

# By their names in the root of a home.
_AGAIN = frozenset({"derived", "logs", "backups", "backups.json", "lock", "pal.sock", "gateway.json", "login.html"})
_DATABASE = "home.sqlite"  # a copy of its own making is put in by whoever packs
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
        self.left_out: list[LeftOut] = []
        self._root = root
        self._credentials = credentials
        inside = root.resolve()
        outside = {agent: path for agent, path in workspaces.items() if not path.resolve().is_relative_to(inside)}
        self._outside = {path.resolve(): agent for agent, path in reversed(list(outside.items()))}  # each folder once
        self.outside = tuple(Outside(agent, str(path)) for path, agent in sorted(self._outside.items()))

    def items(self) -> Iterator[Item]:
        """Folders before what is in them, in an order that is always the same."""
        yield from self._walk(self._root, HOME, top=True)
        for place in self.outside:
            yield from self._walk(Path(place.path), f"{WORKSPACES}/{place.agent}")

    def _walk(self, folder: Path, name: str, *, top: bool = False) -> Iterator[Item]:
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self.left_out.append(LeftOut(name, f"cannot be read: {error.strerror}"))
            return
        for entry in entries:
            if not self._is_skipped(entry.name, name, top=top):
                yield from self._entry(entry, f"{name}/{entry.name}")

    def _entry(self, entry: os.DirEntry[str], name: str) -> Iterator[Item]:
        try:
            name.encode()
            found = entry.stat(follow_symlinks=False)
        except (OSError, UnicodeEncodeError) as error:
            self.left_out.append(LeftOut(name.encode("utf-8", "replace").decode(), f"cannot be named: {error}"))
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
            self.left_out.append(LeftOut(name, "neither file nor folder nor link"))

    def _is_skipped(self, entry: str, folder: str, *, top: bool) -> bool:
        if entry in _KEYS and (top or folder.startswith(f"{HOME}/agents/")) and not self._credentials:
            self.left_out.append(LeftOut(f"{folder}/{entry}", "keys are taken along only when asked for"))
            return True
        if not top:
            return False
        again = entry in _AGAIN or entry.startswith(_DATABASE) or entry.endswith(".lock")
        return again or (entry.startswith(".") and entry.endswith(".tmp"))  # a file that was being written
