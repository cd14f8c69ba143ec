"""What an agent says in a session without having been asked there: reminders, announcements, results of cron jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from msgspec import Struct

from palinurus.dispatch.runs import Run
from palinurus.domain.errors import HolderLost, PalinurusError
from palinurus.domain.events import Lifecycle, RunEvent
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage
from palinurus.operations.operation import Private, SessionRef, operation
from palinurus.operations.services import Services
from palinurus.operations.table import OperationClient
from palinurus.sessions.names import find_session
from palinurus.sessions.transcript import SENT, MessageEntry, decode_row

PAUSE_SECONDS = 1.0  # before the next holder of the home is asked
MOST_UNSEEN = 5  # that are shown first
QUIET = "heartbeat"  # the channel of runs whose replies are shown only if the heartbeat sends them

log = logging.getLogger(__name__)


class SessionNews(Struct, frozen=True, rename="camel"):
    id: str  # of the entry, or of the run
    text: str


@operation("sessions.watch", scope="read", local=True)
async def watch_session(
    services: Services,
    session_key: SessionRef = "",
    unseen: Annotated[bool, Private, "First what was written there since somebody last spoke."] = True,
) -> AsyncIterator[SessionNews]:
    """What the agent says in a session without having been asked there. Ends when the process lets go of the home."""
    session = await find_session(services.sessions, session_key, agent=services.agents.default)
    key = (
        session.key
        if session is not None
        else str(SessionKey.recipient(session_key or "main", services.agents.default))
    )
    coming: asyncio.Queue[SessionNews | None] = asyncio.Queue()

    def on_message(session_key: str, entry_id: str, text: str) -> None:
        if session_key == key:
            coming.put_nowait(SessionNews(entry_id, text))

    def on_event(run: Run, event: RunEvent) -> None:
        if str(run.key) == key and (news := _news_of(run, event)) is not None:
            coming.put_nowait(news)

    stop_messages = services.holder.listen(on_message, lambda: coming.put_nowait(None))
    stop_events = services.dispatcher.runs.listen(on_event)
    try:
        told = set()
        for news in await _unseen(services, session.id) if session is not None and unseen else ():
            told.add(news.id)
            yield news
        while (coming_news := await coming.get()) is not None:
            if coming_news.id not in told:
                yield coming_news
    finally:
        stop_messages()
        stop_events()


async def follow_news(
    caller: OperationClient, session_key: str, told: set[str], show: Callable[[SessionNews], None]
) -> None:
    """Shows news of a session until it is cancelled, each once, also when another process takes the home. `told` holds
    entries and runs that are shown elsewhere."""
    while True:
        try:
            async for news in caller.follow(watch_session, watch_session.params(session_key)):
                if news.id not in told:
                    told.add(news.id)
                    show(news)
        except HolderLost:
            pass
        except PalinurusError as error:
            log.warning("news of %s are not shown: %s", session_key, error)
            return
        await asyncio.sleep(PAUSE_SECONDS)


def _news_of(run: Run, event: RunEvent) -> SessionNews | None:
    """The reply to a message that a program has sent."""
    inbound, result = run.inbound, run.result
    if not isinstance(event, Lifecycle) or event.phase != "end" or inbound is None or result is None:
        return None
    wanted = inbound.plain and inbound.channel != QUIET and result.text and not result.joined
    return SessionNews(run.id, result.text) if wanted else None


async def _unseen(services: Services, session_id: str) -> list[SessionNews]:
    """The messages at the end of a session that answer nobody."""
    found: list[SessionNews] = []
    for row in reversed(await services.sessions.rows(session_id)):
        entry = decode_row(row)
        if not isinstance(entry, MessageEntry):
            continue
        if SENT not in entry.id or not isinstance(entry.message, AssistantMessage) or len(found) == MOST_UNSEEN:
            break
        found.append(SessionNews(entry.id, entry.message.text))
    return found[::-1]
