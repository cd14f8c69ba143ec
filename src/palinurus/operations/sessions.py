"""Look at sessions: list them, read one, glance at some, search all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

from msgspec import Meta, Struct

from palinurus.domain.messages import ToolResult, UserMessage
from palinurus.operations.house import House
from palinurus.operations.operation import Metavar, Positional, Private, operation
from palinurus.sessions.names import find_session, require_session
from palinurus.sessions.session import Session
from palinurus.sessions.store import Hit
from palinurus.sessions.transcript import Broken, Entry, MessageEntry, Row, decode_row

MOST_PREVIEWS = 64

SessionRef = Annotated[str, Metavar("KEY|NAME|ID")]


class SessionList(Struct, frozen=True):
    sessions: tuple[Session, ...]


class Transcript(Struct, frozen=True):
    session: Session
    entries: tuple[Entry, ...]
    broken: tuple[Broken, ...] = ()  # rows that cannot be read, and why


class Glimpse(Struct, frozen=True):
    role: Literal["user", "assistant"]
    text: str


class Preview(Struct, frozen=True):
    key: str
    status: Literal["ok", "empty", "missing"]
    items: tuple[Glimpse, ...] = ()  # oldest first


class Previews(Struct, frozen=True):
    ts: int
    previews: tuple[Preview, ...]


class Found(Struct, frozen=True):
    hits: tuple[Hit, ...]


@operation("sessions.list", scope="read")
async def list_sessions(
    house: House,
    agent: Annotated[str, "Only this agent's."] = "",
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50,
    archived: Annotated[bool, "Those that have ended as well."] = False,
) -> SessionList:
    """List conversations, the newest first.

    Example:
      pal sessions list --limit 5
    """
    return SessionList(tuple(await house.sessions.recent(agent=agent, limit=limit, archived=archived)))


@operation("sessions.show", scope="read")
async def show_session(
    house: House,
    session_key: Annotated[SessionRef, Positional] = "",
    last: Annotated[int, Private, Meta(ge=0, le=1_000_000), "Only so many entries, from the end; 0: all."] = 0,
) -> Transcript:
    """Show what was said in a conversation, everything before a reset included; also in one that has ended.

    It goes by its key, its name or its id. Without any, it is the main one.

    Examples:
      pal sessions show agent:main:main
      pal sessions show trip
    """
    session = await require_session(house.sessions, session_key, agent=house.agents.default, archived=True)
    rows = await house.sessions.rows(session.id)
    read = [decode_row(row) for row in rows[-last if last else 0 :]]
    good = tuple(entry for entry in read if not isinstance(entry, Broken))
    return Transcript(session, good, tuple(entry for entry in read if isinstance(entry, Broken)))


@operation("sessions.search", scope="read")
async def search_sessions(
    house: House,
    query: str,
    agent: Annotated[str, "Only this agent's."] = "",
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 10,
) -> Found:
    """Search everything that was said.

    Example:
      pal sessions search "green bicycle"
    """
    return Found(tuple(await house.index.search(query, agent=agent, limit=limit)))


@operation("sessions.preview", scope="read")
async def preview_sessions(
    house: House,
    keys: tuple[str, ...],
    limit: Annotated[int, Meta(ge=1, le=200), "Of the last messages."] = 12,
    max_chars: Annotated[int, Meta(ge=20, le=10_000), "Of each."] = 240,
) -> Previews:
    """Glance at some conversations: what was said last."""
    wanted = [await _glance(house, text, limit, max_chars) for text in keys[:MOST_PREVIEWS]]
    return Previews(house.clock.now_ms(), tuple(wanted))


async def _glance(house: House, text: str, limit: int, max_chars: int) -> Preview:
    session = await find_session(house.sessions, text, agent=house.agents.default)
    if session is None:
        return Preview(text, "missing")
    rows = await house.sessions.rows(session.id)
    said = tuple(islice(_glimpses(rows, max_chars), limit))
    return Preview(text, "ok" if said else "empty", said[::-1])


def _glimpses(rows: Sequence[Row], most: int) -> Iterator[Glimpse]:
    for entry in newest_first(rows):
        message = entry.message
        if not isinstance(message, ToolResult) and (words := message.text.strip()):
            short = words if len(words) <= most else f"{words[: most - 1]}…"
            yield Glimpse("user" if isinstance(message, UserMessage) else "assistant", short)


def newest_first(rows: Sequence[Row]) -> Iterator[MessageEntry]:
    """What was said, from the end. A row is decoded when it is come to: transcripts are long."""
    for row in reversed(rows):
        entry = decode_row(row)
        if isinstance(entry, MessageEntry):
            yield entry


OPERATIONS = (list_sessions, show_session, search_sessions, preview_sessions)
