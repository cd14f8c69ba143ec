"""Sum a session up from any door. It is the command `/compact`: it waits its turn, can be stopped, and is done once."""

from __future__ import annotations

from msgspec import Struct

from palinurus.dispatch.dispatcher import MAX_TEXT
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.sessions.names import require_session
from palinurus.sessions.session import Session

PATIENCE_SECONDS = 600.0


class CompactSession(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    focus: str = ""  # what the summary should look at above all
    idempotency_key: str = ""


class WasCompacted(Struct, frozen=True, rename="camel"):
    key: str
    compacted: bool  # False: there was nothing to sum up
    entry: Session
    messages: int = 0  # that are no longer read
    tokens_before: int = 0
    tokens_after: int = 0
    made_by: str = ""  # model | extractor | engine
    summary: str = ""
    ok: bool = True


async def _compact(house: House, params: CompactSession) -> WasCompacted:
    key = SessionKey.parse((await require_session(house.sessions, params.key, agent=house.agents.default)).key)
    if len(params.focus) > MAX_TEXT // 2:
        raise BadRequest("the focus is too long", hint="name it in a sentence")
    if key.agent not in house.agents.ids:
        raise NotFound(f"there is no session {str(key)!r}", hint="`pal sessions list` shows them")
    text = f"/compact {params.focus}".strip()
    run = await house.dispatcher.submit(Inbound(text, params.idempotency_key or house.new_id(), session_key=str(key)))
    result = await run.wait(PATIENCE_SECONDS)
    if result.status != "ok":
        raise BadRequest(f"{key} was not compacted: {result.error or result.status}")
    session = await house.sessions.open(key)
    done = await house.turns.upkeep.compaction.done_before(session.id, f"{run.id}-compaction")
    if done is None:
        return WasCompacted(str(key), compacted=False, entry=session)
    return WasCompacted(
        str(key),
        compacted=True,
        entry=session,
        messages=done.messages,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        made_by=done.made_by,
        summary=done.summary,
    )


COMPACT = Operation("sessions.compact", CompactSession, WasCompacted, "write", _compact)
OPERATIONS = (COMPACT,)
