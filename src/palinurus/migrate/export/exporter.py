"""What export needs of a keeper that gives conversations away, a part at a time."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from palinurus.migrate.foreign import ForeignDocument
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Row


class Kept(Struct, frozen=True):
    """A conversation of this home."""

    session: Session
    extra: str = ""  # fields of another home that we do not know: a JSON object, word for word
    imported: bool = False  # its first entries came from another home
    bytes: int = 0


class KeptRow(Struct, frozen=True, gc=False):
    position: int
    kind: str
    row: Row


class SessionExporter(Protocol):
    """Gives all conversations that are shown, those that have ended included."""

    async def sessions(self, session_id: str = "") -> list[Kept]:
        """All, the oldest first, or the one of this id."""

    async def rows(self, session_id: str, after: int = 0, limit: int = 1000) -> list[KeptRow]:
        """The next entries of a transcript behind a position."""

    async def documents(self) -> list[ForeignDocument]:
        """What was kept word for word of other homes."""
