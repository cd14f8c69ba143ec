"""Resolves session names, for every surface.

A name is a whole key (`agent:main:explicit:trip`), the name in one (`trip` for `agent:main:explicit:trip` or
`agent:main:trip`), an id or its beginning, or the session's display name. A whole key means exactly that key; otherwise
active sessions come before archived ones, and a key before an id before a display name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.sessions.session import Session
from palinurus.sessions.store import SessionStore
from palinurus.text.words import nearest

MOST = 10_000  # newest sessions that are searched for a name
SHORTEST_ID = 6  # shortest prefix of an id
LISTED = "`pal sessions list --archived` shows them"


def likely_keys(name: str, agent: str) -> list[SessionKey]:
    """The keys that a name may stand for, the most likely first. Raises BadRequest if it cannot be a name."""
    text = name.strip()
    if not text or text.lower() == "main":
        return [SessionKey.main(agent)]
    if ":" in text:
        keys = [SessionKey.parse(text)]
        return keys if is_whole(text) else [*keys, *_parsed(f"agent:{agent}:{text}")]
    return [SessionKey.parse(f"agent:{agent}:explicit:{text}"), *_parsed(f"agent:{agent}:{text}")]


def is_whole(name: str) -> bool:
    """Whether it is a whole key, which means exactly that session."""
    return name.strip().lower().startswith("agent:")


async def find_session(
    sessions: SessionStore, name: str, *, agent: str, archived: bool = False, only: str = ""
) -> Session | None:
    """The session of that name; with `archived` also an archived one, with `only` one of this agent.

    Raises BadRequest if the name is ambiguous or invalid.
    """
    keys = likely_keys(name, agent)
    for key in keys:
        if found := await sessions.find(key):
            return found
    if is_whole(name):
        ended = await sessions.archived(keys[0]) if archived else []
        return ended[0] if ended else None
    known = await sessions.recent(agent=only, limit=MOST, archived=archived)
    going_on = [each for each in known if each.archived_at is None]
    gone = [each for each in known if each.archived_at is not None]
    return _among(going_on, name, keys) or _among(gone, name, keys)


async def require_session(sessions: SessionStore, name: str, *, agent: str, archived: bool = False) -> Session:
    """The same. Raises NotFound with a suggestion if there is none."""
    found = await find_session(sessions, name, agent=agent, archived=True)
    if found is not None and (archived or found.archived_at is None):
        return found
    if found is not None:
        ended = f"an archived one is shown by `pal sessions show {found.id}`"
        raise NotFound(f"there is no session {name[:200]!r}", hint=ended)
    known = await sessions.recent(limit=MOST, archived=archived)
    names = {text: each.key for each in reversed(known) for text in (each.key, each.label, _last(each.key)) if text}
    near = nearest(name, names)
    listed = LISTED if archived else "`pal sessions list` shows them"
    raise NotFound(f"there is no session {name[:200]!r}", hint=f"did you mean {names[near]}?" if near else listed)


async def name_key(sessions: SessionStore, name: str, *, agent: str) -> str:
    """The key that a name stands for, for searches: a whole key is valid even if its session no longer exists."""
    if is_whole(name):
        return str(SessionKey.parse(name))
    return (await require_session(sessions, name, agent=agent, archived=True)).key


async def place_session(sessions: SessionStore, name: str, *, agent: str) -> SessionKey:
    """The session for a new message under this name: the existing one, or else a new one of that name."""
    key = likely_keys(name, agent)[0]
    if not name.strip() or ":" in name or key.kind == "main":
        return key
    found = await find_session(sessions, name, agent=agent, only=agent)
    began = found is not None and found.id != name.strip() and found.id.startswith(name.strip().lower())
    return SessionKey.parse(found.key) if found and not began else key


def _among(known: Sequence[Session], name: str, keys: Sequence[SessionKey]) -> Session | None:
    for same in _meanings(known, name, keys):
        found = {each.key: each for each in reversed(same)}  # the newest session of each key
        if len(found) > 1:
            raise BadRequest(f"{name[:80]!r} may be {', '.join(list(found)[:4])}", hint="name one by its key or its id")
        if found:
            return next(iter(found.values()))
    return None


def _meanings(known: Sequence[Session], name: str, keys: Sequence[SessionKey]) -> Iterator[list[Session]]:
    text = " ".join(name.split())
    low, wanted = text.lower(), {str(key) for key in keys}
    yield [each for each in known if each.key in wanted]
    yield [each for each in known if each.id == text]
    yield [each for each in known if each.key.endswith((f":explicit:{low}", f"agent:{each.agent}:{low}"))]
    yield [each for each in known if each.label and each.label.lower() == low]
    if len(low) >= SHORTEST_ID:
        yield [each for each in known if each.id.lower().startswith(low)]


def _parsed(text: str) -> Iterator[SessionKey]:
    with suppress(BadRequest):  # such as a kind without a peer
        yield SessionKey.parse(text)


def _last(key: str) -> str:
    return key.rpartition(":")[2]
