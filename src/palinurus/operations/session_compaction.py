"""Sum a session up from any door. It is the command `/compact`: it waits its turn, can be stopped, and is done once."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from palinurus.dispatch.dispatcher import MAX_TEXT
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.operations.sessions import SessionRef
from palinurus.sessions.names import require_session
from palinurus.sessions.session import Session

PATIENCE_SECONDS = 600.0


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


@operation("sessions.compact", scope="write")
async def compact_session(
    house: House,
    key: SessionRef,
    focus: Annotated[str, "What the summary should look at above all."] = "",
    idempotency_key: str = "",
) -> WasCompacted:
    """Sum a conversation up, as /compact does. What was said stays in the transcript.

    Example:
      pal sessions compact agent:main:main --focus "the boat"
    """
    place = SessionKey.parse((await require_session(house.sessions, key, agent=house.agents.default)).key)
    if len(focus) > MAX_TEXT // 2:
        raise BadRequest("the focus is too long", hint="name it in a sentence")
    if place.agent not in house.agents.ids:
        raise NotFound(f"there is no session {str(place)!r}", hint="`pal sessions list` shows them")
    text = f"/compact {focus}".strip()
    run = await house.dispatcher.submit(Inbound(text, idempotency_key or house.new_id(), session_key=str(place)))
    result = await run.wait(PATIENCE_SECONDS)
    if result.status != "ok":
        raise BadRequest(f"{place} was not compacted: {result.error or result.status}")
    session = await house.sessions.open(place)
    done = await house.turns.upkeep.compaction.done_before(session.id, f"{run.id}-compaction")
    if done is None:
        return WasCompacted(str(place), compacted=False, entry=session)
    return WasCompacted(
        str(place),
        compacted=True,
        entry=session,
        messages=done.messages,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        made_by=done.made_by,
        summary=done.summary,
    )


OPERATIONS = (compact_session,)
