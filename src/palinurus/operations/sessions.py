"""Look at sessions: list them, read one, glance at some, search all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

from msgspec import Meta, Struct

from palinurus.domain.messages import ToolResult, UserMessage
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.sessions.names import find_session, require_session
from palinurus.sessions.session import Session
from palinurus.sessions.store import Hit
from palinurus.sessions.transcript import Broken, Entry, MessageEntry, Row, decode_row

MOST_PREVIEWS = 64

Limit = Annotated[int, Meta(ge=1, le=10_000)]


class ListSessions(Struct, frozen=True):
    agent: str = ""
    limit: Limit = 100
    archived: bool = False  # those that have ended as well


class SessionList(Struct, frozen=True):
    sessions: tuple[Session, ...]


class ShowSession(Struct, frozen=True):
    session_key: str  # or a name or an id; one that has ended is shown too
    last: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # only so many entries, from the end; 0: all


class Transcript(Struct, frozen=True):
    session: Session
    entries: tuple[Entry, ...]
    broken: tuple[Broken, ...] = ()  # rows that cannot be read, and why


class SearchSessions(Struct, frozen=True):
    query: str
    agent: str = ""
    limit: Limit = 20


class PreviewSessions(Struct, frozen=True, rename="camel"):
    keys: tuple[str, ...]
    limit: Annotated[int, Meta(ge=1, le=200)] = 12  # of the last messages
    max_chars: Annotated[int, Meta(ge=20, le=10_000)] = 240  # of each


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


async def _list(house: House, params: ListSessions) -> SessionList:
    found = await house.sessions.recent(agent=params.agent, limit=params.limit, archived=params.archived)
    return SessionList(tuple(found))


async def _show(house: House, params: ShowSession) -> Transcript:
    session = await require_session(house.sessions, params.session_key, agent=house.agents.default, archived=True)
    rows = await house.sessions.rows(session.id)
    read = [decode_row(row) for row in rows[-params.last if params.last else 0 :]]
    good = tuple(entry for entry in read if not isinstance(entry, Broken))
    return Transcript(session, good, tuple(entry for entry in read if isinstance(entry, Broken)))


async def _search(house: House, params: SearchSessions) -> Found:
    return Found(tuple(await house.index.search(params.query, agent=params.agent, limit=params.limit)))


async def _preview(house: House, params: PreviewSessions) -> Previews:
    wanted = [await _glance(house, text, params) for text in params.keys[:MOST_PREVIEWS]]
    return Previews(house.clock.now_ms(), tuple(wanted))


async def _glance(house: House, text: str, params: PreviewSessions) -> Preview:
    session = await find_session(house.sessions, text, agent=house.agents.default)
    if session is None:
        return Preview(text, "missing")
    rows = await house.sessions.rows(session.id)
    said = tuple(islice(_glimpses(rows, params.max_chars), params.limit))
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


LIST = Operation("sessions.list", ListSessions, SessionList, "read", _list)
SHOW = Operation("sessions.show", ShowSession, Transcript, "read", _show)
SEARCH = Operation("sessions.search", SearchSessions, Found, "read", _search)
PREVIEW = Operation("sessions.preview", PreviewSessions, Previews, "read", _preview)
OPERATIONS = (LIST, SHOW, SEARCH, PREVIEW)
