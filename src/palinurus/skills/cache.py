"""What was found below each root, kept on disk: a new process parses nothing that an earlier one has parsed.

It is derived and may be deleted at any time. Whoever cannot read or write it goes without.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.config.atomic import make_directory, write_atomic
from palinurus.config.offering import SkillLimit
from palinurus.domain.errors import StorageError
from palinurus.skills.discovery import Scanned
from palinurus.skills.roots import Root

FORMAT = f"3 {__version__}"
MAX_ROOTS = 64
MAX_BYTES = 64 * 1024 * 1024


class Kept(Struct, frozen=True):
    format: str
    roots: dict[str, Scanned]


class SkillCache:
    """One file for all agents of a home. Read once, written when something has changed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path  # None: nothing is kept
        self._roots: dict[str, Scanned] | None = None

    def get(self, root: Root, limits: SkillLimit, targets: tuple[str, ...]) -> Scanned | None:
        if self._roots is None:
            self._roots = self._load()
        return self._roots.get(_key(root, limits, targets))

    def put(self, found: Iterable[Scanned], limits: SkillLimit, targets: tuple[str, ...]) -> None:
        """The newest first, as many as there is room for."""
        newest = {_key(each.root, limits, targets): each for each in found}
        others = {key: each for key, each in self._load().items() if key not in newest}
        self._roots = dict(list({**newest, **others}.items())[:MAX_ROOTS])
        if self._path is None:
            return
        data = msgspec.msgpack.encode(Kept(FORMAT, self._roots))
        with suppress(OSError, StorageError):
            make_directory(self._path.parent)
            write_atomic(self._path, data)

    def _load(self) -> dict[str, Scanned]:
        if self._path is None:
            return self._roots or {}
        try:
            if self._path.stat().st_size > MAX_BYTES:
                return {}
            kept = msgspec.msgpack.decode(self._path.read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError):
            return {}
        return kept.roots if kept.format == FORMAT else {}


def _key(root: Root, limits: SkillLimit, targets: tuple[str, ...]) -> str:
    bounds = (limits.folders, limits.skills, limits.file_bytes)
    return "\0".join((root.tier, root.path, *map(str, bounds), *targets))
