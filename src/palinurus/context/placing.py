"""Notes from the database into the file of their day, `memory/<day>.md`, where their owner reads and edits them.

The record is what counts: it was committed before anything left the window. The file is written from it afterwards, as
often as needed: each block carries the record's id, so a crash between the file and the mark in the database doubles
nothing. Where the workspace cannot be written, notes wait in the database, and a search finds them there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, PalinurusError, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.store import SessionStore
from palinurus.workspace.append import append_block
from palinurus.workspace.boundary import Boundary

log = logging.getLogger(__name__)

AT_ONCE = 50
FOLDER = "memory"

Workspaces = Callable[[str], Boundary]
"""The workspace of an agent. Raises a PalinurusError when it has none, or not any more."""


class Placing:
    def __init__(self, sessions: SessionStore, workspaces: Workspaces, clock: Clock) -> None:
        self._sessions = sessions
        self._workspaces = workspaces
        self._clock = clock
        self._told: set[str] = set()  # troubles that were logged already
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self) -> int:
        """Write the notes that wait, the oldest first, and say how many there were. Raises nothing."""
        async with self._one_at_a_time:
            try:
                return sum([await self._place(made) for made in await self._sessions.unplaced(AT_ONCE)])
            except StorageError as error:
                self._tell("notes could not be marked as written: %s", error)
                return 0

    async def _place(self, made: Extraction) -> bool:
        try:
            boundary = self._workspaces(SessionKey.parse(made.key).agent)
            path, lines = place_of(made), self._block(made)
            await asyncio.to_thread(append_block, boundary, path, lines, heading=f"# {made.day}", mark=mark_of(made))
        except StorageError:
            raise
        except (PalinurusError, BadRequest) as error:
            self._tell("notes stay in the database, where a search finds them: %s", error)
            return False
        await self._sessions.set_place(made.id, path)
        return True

    def _block(self, made: Extraction) -> list[str]:
        at = datetime.fromtimestamp(made.at / 1000, self._clock.zone)
        # The mark comes last: when it is there, all of it is.
        return [f"## Notes from {made.key}, {at:%H:%M}", "", *made.notes.splitlines(), "", mark_of(made)]

    def _tell(self, text: str, error: PalinurusError) -> None:
        """Once for each trouble: it would be the same after every turn."""
        if (what := f"{text}{error}") not in self._told:
            self._told.add(what)
            log.warning(text, error)


def place_of(made: Extraction) -> str:
    return f"{FOLDER}/{made.day}.md"


def mark_of(made: Extraction) -> str:
    return f"<!-- notes {made.id} -->"
