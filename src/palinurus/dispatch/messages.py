"""Messages of an agent to somebody else than the sender of a run: into another session, or by a channel.

A message is stored in the other transcript as a reply of the agent: people who open that session read it, and so does
its model at the next turn. It is written in the lane of that session, between two turns, so that it never comes between
a tool call and its result. For a chat on a channel a delivery is added first; both are done once for each run and text.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from functools import partial

from msgspec import Struct

from palinurus.agent.history import SessionHistory
from palinurus.agent.turn import TurnRunner
from palinurus.context.assemble import unanswered
from palinurus.dispatch.delivery import Deliveries, DeliveryJob
from palinurus.dispatch.lanes import Lanes, run_in_lane
from palinurus.dispatch.recipients import BoundChat
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, QueueFull, WaitTimeout
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UNKNOWN, AssistantMessage, Text, harmless
from palinurus.domain.tool import ToolRun
from palinurus.sessions.transcript import SENT
from palinurus.tools.session_tools import OutgoingMessage

WAIT_SECONDS = 10.0  # seconds that a turn waits until the other session is idle


class Messages(Struct, eq=False):
    """`send` is for tools.session_tools, `post` for the owner."""

    _turns: TurnRunner
    _lanes: Lanes
    _deliveries: Deliveries
    _clock: Clock
    timeout: float = WAIT_SECONDS

    async def send(self, run: ToolRun, message: OutgoingMessage) -> str:
        to = message.to
        if to.place is None:
            return await self._write(run, message)
        entry_id = _entry_id(run, message)
        await self._deliveries.post(to.place, message.text, entry_id, session_key=to.session_key, run_id=run.run_id)
        done = f"the message to {to.address} is on its way"
        if not self._deliveries.has_sender(to.place.channel):
            done = f"the message to {to.address} is stored and waits: {to.place.channel} is not connected"
        if to.is_shared:
            return done
        try:
            return f"{done}; {await self._write(run, message)}"
        except (BadRequest, QueueFull) as error:
            return f"{done}; it is not in the session there: {error}"

    async def post(self, chat: BoundChat, text: str, idempotency_key: str) -> DeliveryJob:
        """Sends the owner's words as the agent's. They are in the session of the chat too, as soon as it is idle."""
        key = chat.session_key
        delivery = await self._deliveries.post(chat.place, text, idempotency_key, session_key=str(key))
        said = AssistantMessage((Text(text),), timestamp=self._clock.now_ms())
        work = partial(write_message, self._turns.history, key, f"{idempotency_key}{SENT}message", said)
        with suppress(WaitTimeout):  # it is written when the turn there has ended
            await run_in_lane(self._lanes, str(key), work, timeout=self.timeout)
        return delivery

    async def _write(self, run: ToolRun, message: OutgoingMessage) -> str:
        key = SessionKey.parse(message.to.session_key)
        withdrawn = asyncio.Event()
        work = partial(self._write_in_lane, key, run, message, withdrawn)
        try:
            return await run_in_lane(self._lanes, str(key), work, timeout=self.timeout)
        except WaitTimeout:
            return f"{key} is busy: the message is written there when its turn has ended"
        except asyncio.CancelledError:
            if message.to.place is None:
                withdrawn.set()  # a stopped run has not sent it
            raise

    async def _write_in_lane(
        self, key: SessionKey, run: ToolRun, message: OutgoingMessage, withdrawn: asyncio.Event
    ) -> str:
        if withdrawn.is_set():
            return ""
        is_new = await write_message(
            self._turns.history,
            key,
            _entry_id(run, message),
            AssistantMessage((Text(_text(run, message)),), timestamp=self._clock.now_ms(), sources=_sources(run)),
        )
        if not is_new:
            return f"was written into {key} before"
        return f"written into {key}" + ("" if message.to.place else "; it is read there when somebody looks")


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
    digest = hashlib.sha256(f"{message.to.address}\0{message.text}".encode("utf-8", "replace")).hexdigest()
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
