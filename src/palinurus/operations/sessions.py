"""Look at sessions: list them, read one, search all."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.sessions.session import Session
from palinurus.sessions.store import Hit
from palinurus.sessions.transcript import Broken, Entry, decode_row


class ListSessions(Struct, frozen=True):
    agent: str = ""
    limit: int = 100


class SessionList(Struct, frozen=True):
    sessions: tuple[Session, ...]


class ShowSession(Struct, frozen=True):
    session_key: str
    last: int = 0  # only so many entries, from the end; 0: all


class Transcript(Struct, frozen=True):
    session: Session
    entries: tuple[Entry, ...]
    broken: tuple[Broken, ...] = ()  # rows that cannot be read, and why


class SearchSessions(Struct, frozen=True):
    query: str
    agent: str = ""
    limit: int = 20


class Found(Struct, frozen=True):
    hits: tuple[Hit, ...]


async def _list(house: House, params: ListSessions) -> SessionList:
    return SessionList(tuple(await house.sessions.recent(agent=params.agent, limit=params.limit)))


async def _show(house: House, params: ShowSession) -> Transcript:
    session = await house.sessions.find(SessionKey.parse(params.session_key))
    if session is None:
        raise NotFound(f"there is no session {params.session_key!r}", hint="`pal sessions list` shows them")
    rows = await house.sessions.rows(session.id)
    read = [decode_row(row) for row in rows[-params.last if params.last else 0 :]]
    good = tuple(entry for entry in read if not isinstance(entry, Broken))
    return Transcript(session, good, tuple(entry for entry in read if isinstance(entry, Broken)))


async def _search(house: House, params: SearchSessions) -> Found:
    return Found(tuple(await house.index.search(params.query, agent=params.agent, limit=params.limit)))


LIST = Operation("sessions.list", ListSessions, SessionList, "read", _list)
SHOW = Operation("sessions.show", ShowSession, Transcript, "read", _show)
SEARCH = Operation("sessions.search", SearchSessions, Found, "read", _search)
OPERATIONS = (LIST, SHOW, SEARCH)
