"""Writes daily notes from the database into `memory/<day>.md`, where the user reads and edits them.

The record is authoritative: it was committed before anything left the window. The file is written from it afterwards,
as often as needed: each block carries the record's id, so a crash between the file and the mark in the database doubles
nothing. If the workspace cannot be written, notes stay in the database, and a search finds them there.

The first message of a private session includes the newest daily notes, so that a new day has context. Outside lines and
files are left out: they were not requested, and they would make the whole turn less trusted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import date, datetime, timedelta

from palinurus.context.settings import StartupSettings
from palinurus.context.view import View
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, PalinurusError, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, ContextNote
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.store import SessionStore
from palinurus.text.fact_lines import read_by_day
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import TextFile, WorkspaceFiles
from palinurus.workspace.write import append_block

log = logging.getLogger(__name__)
AT_ONCE = 50
FOLDER = "memory"
STARTUP = "startup"
DAILY_NOTES = "Daily notes"
Workspaces = Callable[[str], Boundary]
"""Returns the workspace of an agent. Raises a PalinurusError if there is none."""


class NoteFiles:
    def __init__(self, sessions: SessionStore, workspaces: Workspaces, clock: Clock) -> None:
        self._sessions = sessions
        self._workspaces = workspaces
        self._clock = clock
        self._told: set[str] = set()  # errors that were logged already
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self) -> int:
        """Writes pending notes, the oldest first, and returns their number. Raises nothing."""
        async with self._one_at_a_time:
            try:
                return sum([await self._place(made) for made in await self._sessions.unplaced(AT_ONCE)])
            except StorageError as error:
                self._tell("notes could not be marked as written: %s", error)
                return 0

    async def _place(self, made: Extraction) -> bool:
        try:
            boundary = self._workspaces(SessionKey.parse(made.key).agent)
            await asyncio.to_thread(self._write, boundary, made)
        except StorageError:
            raise
        except (PalinurusError, BadRequest) as error:
            self._tell("notes stay in the database, where a search finds them: %s", error)
            return False
        await self._sessions.set_place(made.id, place_of(made))
        return True

    def _write(self, boundary: Boundary, made: Extraction) -> None:
        """Each line goes into the file of the day on which it was said: `tomorrow` is the day after that."""
        at, mark = datetime.fromtimestamp(made.at / 1000, self._clock.zone), mark_of(made)
        for day, lines in read_by_day(made.notes, made.day):
            # The mark comes last: if it is there, the block is complete.
            block = ["## Retain", "", f"### From {made.key}, {at:%Y-%m-%d %H:%M}", "", *lines, "", mark]
            append_block(boundary, f"{FOLDER}/{day}.md", block, heading=f"# {day}", mark=mark)

    def _tell(self, text: str, error: PalinurusError) -> None:
        """Logs each error once: it would be the same after every turn."""
        if (what := f"{text}{error}") not in self._told:
            self._told.add(what)
            log.warning(text, error)


def place_of(made: Extraction) -> str:
    """The file of its newest line."""
    return f"{FOLDER}/{max((day for day, _ in read_by_day(made.notes, made.day)), default=made.day)}.md"


def mark_of(made: Extraction) -> str:
    return f"<!-- notes {made.id} -->"


def needs_startup_notes(view: View, settings: StartupSettings) -> bool:
    """Whether the next message is the first one of the part that is read."""
    return settings.enabled and not view.lines and view.reason in settings.on


def startup_notes(files: WorkspaceFiles, today: date, settings: StartupSettings) -> tuple[ContextNote, ...]:
    """One note with the end of each day's file, the newest day first; none if there are no files."""
    parts: list[str] = []
    left = settings.characters
    for back in range(settings.days):
        path = f"memory/{today - timedelta(days=back):%Y-%m-%d}.md"
        found = files.read(path)
        if not isinstance(found, TextFile) or files.sources_of(found.path):
            continue
        text = _end(found.body, min(left, settings.file_characters))
        if text:
            parts.append(f"{path}:\n{text}")
            left -= len(parts[-1]) + 2
    return (ContextNote(STARTUP, "\n\n".join(parts), DAILY_NOTES),) if parts else ()


def _end(text: str, most: int) -> str:
    """The last whole lines, because the newest notes matter most."""
    kept: list[str] = []
    for line in reversed(text.splitlines()):
        if not line.strip() or OUTSIDE_MARK in line or line.strip().startswith("<!--"):
            continue
        most -= len(line) + 1
        if most < 0:
            break
        kept.append(line.rstrip())
    return "\n".join(reversed(kept))
