"""Sum a session up, or put those away that nobody uses: by any surface, each done once and in its turn."""

from __future__ import annotations

import logging
from typing import Annotated

from msgspec import Struct

from palinurus.dispatch.dispatcher import MAX_TEXT
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.operations.operation import SessionRef, operation
from palinurus.operations.services import Services
from palinurus.operations.shapes import made_of
from palinurus.sessions.names import require_session
from palinurus.sessions.retention import StaleSession, find_stale
from palinurus.sessions.session import Session

COMPACT_SECONDS = 600.0


class CompactedSession(Struct, frozen=True, rename="camel"):
    key: str
    compacted: bool  # False: there was nothing to sum up
    entry: Session
    messages: int = 0  # that are no longer read
    tokens_before: int = 0
    tokens_after: int = 0
    made_by: str = ""  # model | extractor | engine
    summary: str = ""
    ok: bool = True


@operation("sessions.compact", scope="admin")
async def compact_session(
    services: Services,
    key: SessionRef,
    focus: Annotated[str, "What the summary should focus on."] = "",
    idempotency_key: str = "",
) -> CompactedSession:
    """Compact a session, as /compact does. All messages stay in the transcript.

    Example:
      pal sessions compact agent:main:main --focus "the boat"
    """
    place = SessionKey.parse((await require_session(services.sessions, key, agent=services.agents.default)).key)
    if len(focus) > MAX_TEXT // 2:
        raise BadRequest("the focus is too long", hint="name it in a sentence")
    if place.agent not in services.agents.ids:
        raise NotFound(f"there is no session {str(place)!r}", hint="`pal sessions list` shows them")
    text = f"/compact {focus}".strip()
    run = await services.dispatcher.submit(Inbound(text, idempotency_key or services.new_id(), session_key=str(place)))
    result = await run.wait(COMPACT_SECONDS)
    if result.status != "ok":
        raise BadRequest(f"{place} was not compacted: {result.error or result.status}")
    session = await services.sessions.open(place)
    done = await services.turns.maintenance.compaction.done_before(session.id, f"{run.id}-compaction")
    if done is None:
        return CompactedSession(str(place), compacted=False, entry=session)
    services.holder.publish_change(str(place), "compact")
    return made_of(CompactedSession, done, key=str(place), compacted=True, entry=session)


log = logging.getLogger(__name__)

MANY = 100_000

MARK = "maintenance"


class CleanupReport(Struct, frozen=True):
    enforced: bool
    stale: tuple[StaleSession, ...] = ()
    archived: tuple[str, ...] = ()  # their keys
    failed: tuple[str, ...] = ()  # one line each


@operation("sessions.cleanup", scope="admin")
async def clean_up_sessions(
    services: Services, enforce: Annotated[bool | None, "Archive them now, whatever the config says."] = False
) -> CleanupReport:
    """Show sessions that are no longer used, or archive them. No message is deleted.

    The config section session.maintenance decides which: those unused for pruneAfter, and those beyond maxEntries.
    With mode enforce a running gateway archives them. It always archives sessions of single requests to the API.

    Examples:
      pal sessions cleanup
      pal sessions cleanup --enforce
    """
    settings = services.maintenance()
    found = find_stale(await services.sessions.recent(limit=MANY), settings, services.clock.now_ms())
    enforced = settings.mode == "enforce" if enforce is None else enforce
    due = [each for each in found if enforced or (enforce is None and each.one_off)]
    if left := len(found) - len(due):
        log.info("%d sessions could be archived: `pal sessions cleanup` lists them", left)
    archived: list[str] = []
    failed: list[str] = []
    for each in due:
        try:
            if await _archive(services, each):
                log.info("%s is archived: %s", each.key, each.why)
                archived.append(each.key)
        except PalinurusError as error:
            failed.append(f"{each.key}: {error}")
    return CleanupReport(enforced, tuple(found), tuple(archived), tuple(failed))


async def _archive(services: Services, each: StaleSession) -> bool:
    """In its lane, after notes were taken of what is in none yet. False when somebody has spoken there meanwhile."""
    key = SessionKey.parse(each.key)

    async def work() -> bool:
        now = await services.sessions.find(key)
        if now is None or now.id != each.session_id:
            return False
        if not find_stale([now], services.maintenance(), services.clock.now_ms()) and each.why.startswith("silent"):
            return False
        await services.turns.maintenance.reset(key, MARK, f"{now.id}-{MARK}")
        await services.sessions.archive(now.id, MARK)
        return True

    return await services.dispatcher.in_lane(key, work)
