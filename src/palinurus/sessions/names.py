"""Which session somebody means: the one resolver of names, for every surface.

A name is a whole key (`agent:main:explicit:trip`), the name in one (`trip` for `agent:main:explicit:trip` or
`agent:main:trip`), an id or the beginning of one, or what people call the session. A whole key means that key and no
other; of the rest, what goes on comes before what has ended, and a key before an id before a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.suggestion import nearest
from palinurus.sessions.session import Session
from palinurus.sessions.store import SessionStore

MOST = 10_000  # newest sessions among which a name is looked for
SHORTEST_ID = 6  # signs of an id that may stand for the whole
LISTED = "`pal sessions list --archived` shows them"


def likely_keys(name: str, agent: str) -> list[SessionKey]:
    """The keys that a name may stand for, the likeliest first. Raises BadRequest for what can be no name."""
    text = name.strip()
    if not text or text.lower() == "main":
        return [SessionKey.main(agent)]
    if ":" in text:
        keys = [SessionKey.parse(text)]
        return keys if is_whole(text) else [*keys, *_parsed(f"agent:{agent}:{text}")]
    return [SessionKey.parse(f"agent:{agent}:explicit:{text}"), *_parsed(f"agent:{agent}:{text}")]


def is_whole(name: str) -> bool:
    """Whether it is a whole key, which means that very session."""
    return name.strip().lower().startswith("agent:")


async def find_session(
    sessions: SessionStore, name: str, *, agent: str, archived: bool = False, only: str = ""
) -> Session | None:
    """The session that is meant; with `archived` also one that has ended, with `only` one of this agent.

    Raises BadRequest when several could be meant, and for what can be no name.
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
    """The same. Raises NotFound with what may have been meant when there is none."""
    found = await find_session(sessions, name, agent=agent, archived=True)
    if found is not None and (archived or found.archived_at is None):
        return found
    if found is not None:
        ended = f"one that has ended is shown by `pal sessions show {found.id}`"
        raise NotFound(f"there is no session {name[:200]!r}", hint=ended)
    known = await sessions.recent(limit=MOST, archived=archived)
    names = {text: each.key for each in reversed(known) for text in (each.key, each.label, _last(each.key)) if text}
    near = nearest(name, names)
    listed = LISTED if archived else "`pal sessions list` shows them"
    raise NotFound(f"there is no session {name[:200]!r}", hint=f"did you mean {names[near]}?" if near else listed)


async def name_key(sessions: SessionStore, name: str, *, agent: str) -> str:
    """The key that a name stands for, to look by it: a whole key is one, whether or not the session is still there."""
    if is_whole(name):
        return str(SessionKey.parse(name))
    return (await require_session(sessions, name, agent=agent, archived=True)).key


async def place_session(sessions: SessionStore, name: str, *, agent: str) -> SessionKey:
    """Where somebody speaks who says this name: in the session that has it, else in a new one of that name."""
    key = likely_keys(name, agent)[0]
    if not name.strip() or ":" in name or key.kind == "main":
        return key
    found = await find_session(sessions, name, agent=agent, only=agent)
    began = found is not None and found.id != name.strip() and found.id.startswith(name.strip().lower())
    return SessionKey.parse(found.key) if found and not began else key


def _among(known: Sequence[Session], name: str, keys: Sequence[SessionKey]) -> Session | None:
    for same in _meanings(known, name, keys):
        found = {each.key: each for each in reversed(same)}  # of those of one key the newest
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
