"""What qmd is told to index: the collections of an agent, and its past sessions as markdown.

A collection says by which paths its results are cited, and by which the home knows them. A session is `<session>.md`,
a line for each message with its role: the document that the builtin engine indexes too (memory/conversations.py), so
private sessions only, without tool results, with outside text marked, and each line is the line that is cited. What
looks like a secret is taken out once more. A file has the time of its session's last change, by which it is seen
whether it has to be written again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.config.atomic import write_atomic
from palinurus.memory.backend import BackendPlace
from palinurus.memory.conversations import DAY_MS, session_of
from palinurus.memory.document import MEMORY, SESSIONS, MemoryDocument, Stamp
from palinurus.memory.settings import ALL_MARKDOWN

VIRTUAL = "qmd/"  # a path of a result that is not in the workspace: qmd/<collection>/<path>


class QmdCollection(Struct, frozen=True):
    name: str
    path: Path
    mask: str
    source: str
    prefix: str  # of the home's own path: `memory/`, `handbook/`, `sessions/`
    is_cited_by_own_path: bool = False

    @property
    def has_something(self) -> bool:
        """Blocks."""
        try:
            return (self.path / self.mask).exists() if not self.prefix else any(self.path.iterdir())
        except OSError:  # it is not there, or cannot be looked at just now
            return False


def collections_of(place: BackendPlace, exports: Path, *, default_memory: bool) -> tuple[QmdCollection, ...]:
    """Those of one agent, whether or not their folders are there."""
    agent, root, found = place.agent, place.workspace, list[QmdCollection]()
    if default_memory and MEMORY in place.settings.sources:
        for kind, folder, mask, prefix in (
            ("root", root, "MEMORY.md", ""),
            ("alt", root, "memory.md", ""),
            ("user", root, "USER.md", ""),
            ("dir", root / "memory", ALL_MARKDOWN, "memory/"),
        ):
            found.append(QmdCollection(f"memory-{kind}-{agent}", folder, mask, MEMORY, prefix, True))
    # Notes that are not in their file yet are memory too: see memory/conversations.py.
    found.append(QmdCollection(f"notes-{agent}", exports.parent / "notes", ALL_MARKDOWN, MEMORY, f"{SESSIONS}/notes-"))
    if SESSIONS in place.settings.sources:
        found.append(QmdCollection(f"sessions-{agent}", exports, ALL_MARKDOWN, SESSIONS, f"{SESSIONS}/"))
    for each in place.settings.collections:
        taken = {known.name for known in found}
        name = sanitised(each.name, taken)
        found.append(QmdCollection(name, each.path, each.mask, each.name, f"{each.name}/"))
    return tuple(found)


def sanitised(name: str, taken: Iterable[str]) -> str:
    """Lower case letters, digits and hyphens; with a number where that is taken."""
    plain = name.lower().replace("_", "-").strip("-") or "notes"
    free, number = plain, 2
    while free in taken:
        free, number = f"{plain}-{number}", number + 1
    return free


class PathTable:
    """Translates paths of qmd, of results and of the home."""

    def __init__(self, collections: Sequence[QmdCollection]) -> None:
        self._by_name = {each.name: each for each in collections}

    def of_row(self, name: str, path: str) -> tuple[QmdCollection, str, str] | None:
        """The collection, the path by which a result is cited, and the home's own one; None for a collection of
        somebody else."""
        found = self._by_name.get(name)
        if found is None:
            return None
        own = found.prefix + path
        return found, own if found.is_cited_by_own_path else f"{VIRTUAL}{name}/{path}", own

    def own(self, path: str) -> str:
        name, slash, rest = path.removeprefix(VIRTUAL).partition("/")
        found = self.of_row(name, rest) if path.startswith(VIRTUAL) and slash else None
        return path if found is None else found[2]


DAYS = 30
_NOTES = "notes-"


class SessionExports:
    def __init__(self, place: BackendPlace, folder: Path) -> None:
        self._place = place
        self.folder = folder
        self.notes = folder.parent / "notes"
        self._known: dict[str, Stamp] = {}

    async def stamps(self) -> dict[str, Stamp]:
        """Those that there should be, by their own path."""
        days = self._place.settings.sync.session_days or DAYS
        oldest = self._place.clock.now_ms() - days * DAY_MS
        found = await self._place.conversations.stamps()
        return {path: stamp for path, stamp in found.items() if _is_note(path) or stamp[1] >= oldest}

    async def write(self, stamps: Mapping[str, Stamp], *, gentle: bool = False) -> dict[str, Stamp]:
        """Writes what has changed and removes what is not among them. Returns the stamps of what is written now:
        `gentle` leaves sessions that have grown by little (100 KB, 50 messages) as they were."""
        wanted = dict(stamps)
        if gentle:
            wanted = await self._place.conversations.due(wanted, self._known)
        there = await asyncio.to_thread(self._there)
        for path, stamp in wanted.items():
            if there.get(self.file_of(path)) != _time_of(stamp):
                document = await self._place.conversations.read(path, indexing=True)
                if document is not None:
                    await asyncio.to_thread(self._write, path, document, stamp)
        gone = there.keys() - {self.file_of(path) for path in wanted}
        await asyncio.to_thread(_remove, gone)
        self._known = wanted
        return wanted

    def file_of(self, own_path: str) -> Path:
        name = f"{session_of(own_path)}.md"
        return self.notes / name.removeprefix(_NOTES) if _is_note(own_path) else self.folder / name

    def _there(self) -> dict[Path, int]:
        for folder in (self.folder, self.notes):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = (file for folder in (self.folder, self.notes) for file in folder.glob("*.md"))
        return {file: file.stat().st_mtime_ns for file in found}

    def _write(self, path: str, document: MemoryDocument, stamp: Stamp) -> None:
        file = self.file_of(path)
        write_atomic(file, self._place.redact(document.text).encode("utf-8", "replace"))
        os.utime(file, ns=(_time_of(stamp), _time_of(stamp)))


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _is_note(own_path: str) -> bool:
    return session_of(own_path).startswith(_NOTES)


def _time_of(stamp: Stamp) -> int:
    """Of a session milliseconds, of a waiting note nanoseconds."""
    return stamp[1] if stamp[1] > 10**16 else stamp[1] * 1_000_000
