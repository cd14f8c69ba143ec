"""Messages from one session to another of the same agent.

The message is stored in the other transcript as a reply of the agent: people who open that session read it, and so does
its model at the next turn. It is written in the lane of that session, between two turns, so that it never comes between
a tool call and its result.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial

from msgspec import Struct

from palinurus.agent.history import SessionHistory
from palinurus.agent.turn import TurnRunner
from palinurus.context.assemble import unanswered
from palinurus.dispatch.agents import Agents
from palinurus.dispatch.lanes import Lanes, run_in_lane
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, WaitTimeout
from palinurus.domain.keys import RUN_KINDS, SessionKey
from palinurus.domain.messages import UNKNOWN, AssistantMessage, Text, harmless
from palinurus.domain.tool import ToolRun
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import SENT
from palinurus.tools.session_tools import OutgoingMessage

WAIT_SECONDS = 10.0  # seconds that a turn waits until the other session is idle
WITH_PEOPLE = ("explicit", "dashboard")  # of the kinds of runs


class SessionMessages(Struct, eq=False):
    """`send` and `known` are for tools.session_tools. It refuses messages to channels."""

    _sessions: SessionStore
    _turns: TurnRunner
    _lanes: Lanes
    _agents: Agents
    _clock: Clock
    timeout: float = WAIT_SECONDS

    async def known(self, run: ToolRun, to: str) -> bool:
        return await self._sessions.find(self._checked(run, to)) is not None

    async def send(self, run: ToolRun, message: OutgoingMessage) -> str:
        key = self._checked(run, message.to)
        withdrawn = asyncio.Event()
        work = partial(self._write, key, run, message, withdrawn)
        try:
            return await run_in_lane(self._lanes, str(key), work, timeout=self.timeout)
        except WaitTimeout:
            return f"{key} is busy: the message is written there when its turn has ended"
        except asyncio.CancelledError:
            withdrawn.set()  # a stopped run has not sent it
            raise

    def _checked(self, run: ToolRun, to: str) -> SessionKey:
        key = SessionKey.parse(to)
        if key.agent not in self._agents.ids:
            raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(self._agents.ids)}")
        if key.agent != run.key.agent:
            raise BadRequest(f"{key} belongs to another agent", hint="an agent writes into its own sessions only")
        if key.channel:
            raise BadRequest(f"messages to {key.channel} cannot be sent yet", hint="the message was not sent")
        if key.kind in RUN_KINDS and key.kind not in WITH_PEOPLE:
            raise BadRequest(f"{key} is a task: nobody reads there", hint="send it to a session with people")
        return key

    async def _write(self, key: SessionKey, run: ToolRun, message: OutgoingMessage, withdrawn: asyncio.Event) -> str:
        if withdrawn.is_set():
            return ""
        is_new = await write_message(
            self._turns.history,
            key,
            _entry_id(run, message),
            AssistantMessage((Text(_text(run, message)),), timestamp=self._clock.now_ms(), sources=_sources(run)),
        )
        return (
            f"written into {key}; it is read there when somebody looks" if is_new else f"was written into {key} before"
        )


async def write_message(history: SessionHistory, key: SessionKey, entry_id: str, message: AssistantMessage) -> bool:
    """Writes a message of the agent into a session that it does not answer; called in the lane of the session.

    False: it is there already. Raises BadRequest while the session waits for the result of a tool.
    """
    session = await history.sessions.open(key)
    view = await history.view(session)
    if entry_id in view.stored_ids:
        return False
    if unanswered([line.message for line in view.lines]):  # a client of the session is running them
        raise BadRequest(f"{key} waits for the result of a tool", hint="send it again later")
    journal = history.journal(session, view)
    await journal.write([journal.message(message, entry_id=entry_id)])
    return True


def _entry_id(run: ToolRun, message: OutgoingMessage) -> str:
    """The same for the same text in the same run, so that a run that is resumed after a crash sends it once."""
    digest = hashlib.sha256(f"{message.to}\0{message.text}".encode("utf-8", "replace")).hexdigest()
    return f"{run.run_id}{SENT}{digest[:16]}"


def _sources(run: ToolRun) -> tuple[str, ...]:
    """The sources of a text that a run sends elsewhere: it is outside text there too."""
    if not run.untrusted:
        return ()
    return tuple(dict.fromkeys(text.source or f"session:{run.key}" for text in run.suspects or (UNKNOWN,)))


def _text(run: ToolRun, message: OutgoingMessage) -> str:
    """The text; marked if outside text may have caused it (promise 18)."""
    if not run.untrusted:
        return message.text
    return f"[written in {run.key}, in a turn that had read text from outside]\n{harmless(message.text)}"
