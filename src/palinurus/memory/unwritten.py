"""What is searched although it is no file: past conversations, and notes that wait for their file.

Notes of a conversation are kept in the database first and written into `memory/<day>.md` afterwards. Where the
workspace cannot be written they stay there, and are found all the same; once they stand in the file they are not
offered twice. Only notes of private sessions ever wait for a file, so no others are here (promise 17).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.memory.document import MEMORY, SESSIONS, Document, Place, Stamp
from palinurus.memory.walk import Raw
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.store import SessionStore

MANY = 1_000
_PREFIX = f"{SESSIONS}/notes-"


class Elsewhere(Protocol):
    """Documents that no scan of folders finds. Their paths begin with `sessions/`."""

    async def stamps(self) -> dict[str, Raw]: ...

    async def due(self, stamps: dict[str, Raw], known: Mapping[str, Raw]) -> dict[str, Raw]:
        """These stamps, but as they were known for what may wait."""

    async def read(self, path: str) -> Document | None:
        """The text as it is now, to be indexed; None when it is not there any more."""

    async def look(self, path: str) -> Document | None: ...


class WaitingNotes:
    """Implements Elsewhere with one agent's notes that are in no file yet."""

    def __init__(self, sessions: SessionStore, agent: str) -> None:
        self._sessions = sessions
        self._agent = agent

    async def stamps(self) -> dict[str, Raw]:
        waiting = [made for made in await self._sessions.unplaced(MANY) if _agent_of(made) == self._agent]
        return {_path(made): _stamp(made) for made in waiting}

    async def due(self, stamps: dict[str, Raw], known: Mapping[str, Raw]) -> dict[str, Raw]:
        return stamps

    async def read(self, path: str) -> Document | None:
        return await self.look(path)

    async def look(self, path: str) -> Document | None:
        for made in await self._sessions.unplaced(MANY):
            if _path(made) == path and _agent_of(made) == self._agent:
                text = f"# Notes from {made.key}, {made.day}\n\n{made.notes}\n"
                digest = sha256(text.encode("utf-8", "replace")).digest()
                return Document(Place(MEMORY, path), Stamp(*_stamp(made)), digest, text)
        return None


class Unwritten:
    """Implements Elsewhere with both; without conversations when those are not searched."""

    def __init__(self, notes: Elsewhere, conversations: Elsewhere | None) -> None:
        self._notes = notes
        self._conversations = conversations

    async def stamps(self) -> dict[str, Raw]:
        return await self._notes.stamps() | (await self._conversations.stamps() if self._conversations else {})

    async def due(self, stamps: dict[str, Raw], known: Mapping[str, Raw]) -> dict[str, Raw]:
        talks = {path: stamp for path, stamp in stamps.items() if not path.startswith(_PREFIX)}
        return stamps | (await self._conversations.due(talks, known) if self._conversations else {})

    async def read(self, path: str) -> Document | None:
        source = self._source(path)
        return await source.read(path) if source else None

    async def look(self, path: str) -> Document | None:
        source = self._source(path)
        return await source.look(path) if source else None

    def _source(self, path: str) -> Elsewhere | None:
        return self._notes if path.startswith(_PREFIX) else self._conversations


def _path(made: Extraction) -> str:
    return f"{_PREFIX}{made.id}.md"


def _stamp(made: Extraction) -> Raw:
    return (len(made.notes), made.at * 1_000_000, 1, 0)


def _agent_of(made: Extraction) -> str:
    try:
        return SessionKey.parse(made.key).agent
    except BadRequest:
        return ""
