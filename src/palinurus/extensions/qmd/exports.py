"""Past sessions as markdown, for qmd to read: `<session>.md`, a line for each message with its role.

They are the documents that the builtin engine indexes too (memory/conversations.py): private sessions only, without
tool results, with outside text marked, and each line is the line that is cited. What looks like a secret is taken out
once more. A file has the time of its session's last change, by which it is seen whether it has to be written again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from palinurus.config.atomic import write_atomic
from palinurus.memory.backend import BackendPlace
from palinurus.memory.conversations import DAY_MS, session_of
from palinurus.memory.document import MemoryDocument, Stamp

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
