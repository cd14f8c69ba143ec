"""Messages from one session into another of the same agent.

What is said there stands in the transcript as a reply of the agent: whoever opens that conversation reads it, and so
does its model at the next turn. It is written in the lane of that session, between two turns, so that it never comes
between a call and its result.
"""

from __future__ import annotations

import asyncio
import hashlib

from palinurus.agent.turn import TurnRunner
from palinurus.context.assemble import unanswered
from palinurus.dispatch.agents import Agents
from palinurus.dispatch.lanes import Lanes
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import RUN_KINDS, SessionKey
from palinurus.domain.messages import AssistantMessage, Text
from palinurus.domain.provenance import UNKNOWN
from palinurus.domain.tool import ToolRun
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import SENT
from palinurus.tools.message import Outgoing
from palinurus.tools.web.outside import harmless

PATIENCE_SECONDS = 10.0  # that a turn waits for the other session to come to rest
WITH_PEOPLE = ("explicit", "dashboard")  # of the kinds of runs


class SessionMessages:
    """`send` and `known` are what tools.message asks for. Channels are not carried yet: those who ask are told."""

    def __init__(
        self,
        sessions: SessionStore,
        turns: TurnRunner,
        lanes: Lanes,
        agents: Agents,
        clock: Clock,
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._sessions = sessions
        self._turns = turns
        self._lanes = lanes
        self._agents = agents
        self._clock = clock
        self._patience = patience

    async def known(self, run: ToolRun, to: str) -> bool:
        return await self._sessions.find(self._checked(run, to)) is not None

    async def send(self, run: ToolRun, message: Outgoing) -> str:
        key = self._checked(run, message.to)
        letter = _Letter(run, message)
        with self._lanes.place(str(key)):
            self._lanes.start(str(key), lambda: self._write(key, letter), letter.failed, counted=False)
        try:
            async with asyncio.timeout(self._patience):
                await letter.settled.wait()
        except TimeoutError:
            return f"{key} is busy: the message is written there when its turn has ended"
        except asyncio.CancelledError:
            letter.withdrawn = True  # who is stopped has not sent it
            raise
        if letter.trouble is not None:
            raise letter.trouble
        return letter.told

    def _checked(self, run: ToolRun, to: str) -> SessionKey:
        key = SessionKey.parse(to)
        if key.agent not in self._agents.ids:
            raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(self._agents.ids)}")
        if key.agent != run.key.agent:
            raise BadRequest(f"{key} belongs to another agent", hint="an agent writes into its own sessions only")
        if key.channel:
            raise BadRequest(f"nobody here carries messages to {key.channel}", hint="the message was not sent")
        if key.kind in RUN_KINDS and key.kind not in WITH_PEOPLE:
            raise BadRequest(f"{key} is a task: nobody reads there", hint="send it to a conversation")
        return key

    async def _write(self, key: SessionKey, letter: _Letter) -> None:
        if letter.withdrawn:
            return
        session = await self._sessions.open(key)
        view = await self._turns.view(session)
        if letter.entry_id in view.said:
            letter.settle(f"was written into {key} before")
            return
        if unanswered([line.message for line in view.lines]):  # a client of the session is doing them
            letter.failed(BadRequest(f"{key} waits for the result of a tool", hint="send it again later"))
            return
        journal = self._turns.journal(session, view)
        words = AssistantMessage((Text(letter.text),), timestamp=self._clock.now_ms(), sources=letter.sources)
        await journal.write([journal.message(words, entry_id=letter.entry_id)])
        letter.settle(f"written into {key}; it is read there when somebody looks")


class _Letter:
    """A message on its way through a lane."""

    def __init__(self, run: ToolRun, message: Outgoing) -> None:
        self.entry_id = _entry_id(run, message)
        self.text = _text(run, message)
        self.sources = _sources(run)
        self.told = ""
        self.trouble: BaseException | None = None
        self.withdrawn = False
        self.settled = asyncio.Event()

    def settle(self, told: str) -> None:
        self.told = told
        self.settled.set()

    def failed(self, error: BaseException) -> None:
        self.trouble = error
        self.settled.set()


def _entry_id(run: ToolRun, message: Outgoing) -> str:
    """The same for the same words in the same run, so that one that is resumed after a crash says them once."""
    digest = hashlib.sha256(f"{message.to}\0{message.text}".encode("utf-8", "replace")).hexdigest()
    return f"{run.run_id}{SENT}{digest[:16]}"


def _sources(run: ToolRun) -> tuple[str, ...]:
    """Where the words may come from that a run sends elsewhere: they are from outside there too."""
    if not run.untrusted:
        return ()
    return tuple(dict.fromkeys(text.source or f"session:{run.key}" for text in run.suspects or (UNKNOWN,)))


def _text(run: ToolRun, message: Outgoing) -> str:
    """Words that somebody outside may have led to say so where they are read (promise 18)."""
    if not run.untrusted:
        return message.text
    return f"[written in {run.key}, in a turn that had read text from outside]\n{harmless(message.text)}"
