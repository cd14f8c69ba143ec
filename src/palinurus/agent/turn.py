"""One turn, from an accepted message to a stored reply. Read this file first.

Each finished message is stored before the loop goes on, so a crash loses at most the sentence in the air. A turn that
was cut off by a crash is simply run again: its message is in the transcript already, under the run's id, and the story
goes on from wherever it broke off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

import msgspec
from msgspec import Struct

from palinurus.agent.loop import Emit, Interjection, Loop, Steer, Stop
from palinurus.context.epoch import Route
from palinurus.context.opening import ContextSettings, Gathered, Opening, Spoken, closing, open_turn, said
from palinurus.context.view import Line, View, fold
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import Failure
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ToolResult, Usage, UserMessage
from palinurus.domain.tool import ToolRun
from palinurus.ledger.usage import UsageRow
from palinurus.providers.provider import ModelRef, Provider
from palinurus.sessions.journal import Journal, Redact, redacted
from palinurus.sessions.reading import Reader
from palinurus.sessions.reset import ResetPolicy, reset_due
from palinurus.sessions.session import Preferences, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry
from palinurus.tools.registry import Registry
from palinurus.workspace.files import HEARTBEAT, Mode, WorkspaceFiles


class Agent(Struct, frozen=True):
    """The parts that one agent works with."""

    id: str
    files: WorkspaceFiles
    tools: Registry
    context: ContextSettings
    choose_model: Callable[[str], Awaitable[tuple[Provider, Route]]]
    """Gives the provider for the session's own choice of model ("" for the agent's).

    Must not raise: what cannot be reached is a provider that fails, so that the message is kept all the same.
    """
    timeout_seconds: float = 600.0  # of a whole turn; 0 means no limit
    cost: Callable[[str, str, Usage], float | None] = lambda provider, model, usage: None
    """What a call of this provider's model cost in US dollars; None when nobody told the price. Must not raise."""


class TurnRunner:
    """Runs turns of any agent over one store."""

    def __init__(
        self,
        sessions: SessionStore,
        reset_policy: Callable[[SessionKey], ResetPolicy],
        clock: Clock,
        new_id: NewId,
        redact: Redact,
    ) -> None:
        self._sessions = sessions
        self._reader = Reader(sessions)
        self._reset_policy = reset_policy
        self._clock = clock
        self._new_id = new_id
        self._redact = redact

    async def run(
        self, agent: Agent, key: SessionKey, spoken: Spoken, stop: Stop, emit: Emit, steer: Steer
    ) -> RunResult:
        began = self._clock.now_ms()
        session = await self._sessions.open(key)
        view = await self.view(session)
        journal = self.journal(session, view)
        view = await self._reset_if_due(key, journal, view, spoken.run_id)
        if earlier := _answered_before(view, spoken.run_id):
            return self._result(key, session, spoken.run_id, earlier, earlier.usage, began)

        provider, route = await agent.choose_model(view.model)
        route = msgspec.structs.replace(route, thinking=spoken.thinking or view.thinking or route.thinking)
        gathered = gather(agent, key, route, self._clock, heartbeat=spoken.inbound.channel == "heartbeat")
        opening = open_turn(view, gathered, context_for(agent, key), journal, spoken)
        await journal.write(opening.entries, _spoke(spoken.inbound, route))

        run = ToolRun(key, spoken.run_id, key.is_private)
        loop = Loop(provider, agent.tools, run, stop, emit, self._clock, journal, steer)
        usage = Usage()
        async for message in loop.messages(opening.request):
            await self._keep(journal, message, opening, run, agent)
            if isinstance(message, AssistantMessage):
                answer, usage = message, usage + message.usage
        return self._result(key, session, spoken.run_id, answer, usage, began)

    async def view(self, session: Session) -> View:
        return fold(await self._reader.entries(session.id))

    async def view_of(self, key: SessionKey) -> View:
        """What is read of a session; nothing, of one that does not exist."""
        session = await self._sessions.find(key)
        return await self.view(session) if session else View()

    def journal(self, session: Session, view: View) -> Journal:
        return Journal(self._sessions, session, view.tail, self._clock, self._new_id, self._redact)

    def clean(self, inbound: Inbound) -> Inbound:
        """The message without secrets, as it is accepted and stored."""
        return redacted(inbound, self._redact)

    async def reset(self, key: SessionKey, reason: str, run_id: str) -> None:
        """Start over: what was said stays in the transcript and is no longer read. Twice for one run is once."""
        session = await self._sessions.open(key)
        journal = self.journal(session, await self.view(session))
        entry = journal.reset(reason, entry_id=f"{run_id}-reset")
        await journal.write([entry], SessionChange(restarted=True, context_tokens=0))

    async def keep(self, key: SessionKey, spoken: Spoken, why: str) -> None:
        """Store a message that cannot be answered, and why: it was accepted, so it is part of what was said."""
        session = await self._sessions.open(key)
        view = await self.view(session)
        if spoken.run_id in view.said:
            return
        journal = self.journal(session, view)
        entry = journal.message(said(spoken, local_time(self._clock)), entry_id=spoken.run_id)
        reply = AssistantMessage((), stop_reason="error", error_message=why, timestamp=self._clock.now_ms())
        await journal.write([entry, journal.message(reply)])

    async def choose(self, key: SessionKey, run_id: str, *, model: str | None, thinking: str | None) -> None:
        """Keep a choice of model or thinking for the session. Twice for one run is once."""
        session = await self._sessions.open(key)
        journal = self.journal(session, await self.view(session))
        entries: list[Entry] = []
        if model is not None:
            ref = ModelRef.parse(model)
            entries.append(journal.model_change(ref.provider, ref.model, entry_id=f"{run_id}-model"))
        if thinking is not None:
            entries.append(journal.thinking_change(thinking, entry_id=f"{run_id}-thinking"))
        await journal.write(entries)

    async def prefer(self, key: SessionKey, preferences: Preferences) -> None:
        """Keep what the people of a session have chosen; its transcript is not touched."""
        session = await self._sessions.open(key)
        await self._sessions.append(session.id, (), SessionChange(preferences=preferences))

    async def preferences(self, key: SessionKey) -> Preferences:
        session = await self._sessions.find(key)
        return session.preferences if session else Preferences()

    async def _reset_if_due(self, key: SessionKey, journal: Journal, view: View, run_id: str) -> View:
        policy = self._reset_policy(key)
        reason = reset_due(policy, journal.session, now_ms=self._clock.now_ms(), zone=self._clock.zone)
        if not reason or run_id in view.said:
            return view
        entry = journal.reset(reason)
        await journal.write([entry], SessionChange(restarted=True, context_tokens=0))
        return View(reason="reset", model=view.model, thinking=view.thinking, said=view.said, tail=entry.id)

    async def _keep(
        self,
        journal: Journal,
        message: AssistantMessage | ToolResult | Interjection,
        opening: Opening,
        run: ToolRun,
        agent: Agent,
    ) -> None:
        if isinstance(message, Interjection):
            await journal.write([journal.message(message.message, entry_id=message.run_id)])
            return
        entry = journal.message(message)
        if isinstance(message, ToolResult):
            await journal.write([entry])
            return
        finished = not message.calls and message.stop_reason in ("stop", "length")
        spent = self._spent(entry.id, message, run, agent)
        change = SessionChange(usage=message.usage, context_tokens=message.usage.total or None, spent=spent)
        await journal.write([entry, *(closing(journal, opening) if finished else ())], change)

    def _spent(self, entry_id: str, reply: AssistantMessage, run: ToolRun, agent: Agent) -> UsageRow | None:
        """The reply's row in the usage ledger. A call that failed before it used anything has none."""
        if reply.stop_reason in ("error", "aborted") and not reply.usage.total:
            return None
        return UsageRow(
            entry_id=entry_id,
            at=self._clock.now_ms(),
            run_id=run.run_id,
            session_key=str(run.key),
            agent=agent.id,
            provider=reply.provider,
            model=reply.model,
            usage=reply.usage,
            cost=agent.cost(reply.provider, reply.model, reply.usage),
        )

    def _result(
        self, key: SessionKey, session: Session, run_id: str, reply: AssistantMessage, usage: Usage, began: int
    ) -> RunResult:
        kind, why = _failure(reply.error_message or "")
        failed = reply.stop_reason in ("error", "aborted")
        return RunResult(
            run_id=run_id,
            session_key=str(key),
            session_id=session.id,
            status="ok" if not failed else "aborted" if reply.stop_reason == "aborted" else "error",
            text=reply.text,
            model=f"{reply.provider}/{reply.model}",
            usage=usage,
            error=why,
            error_kind=kind,
            duration_ms=self._clock.now_ms() - began,
        )


def _failure(message: str) -> tuple[str, str]:
    """The kind of a provider's failure and its sentence, as the loop puts them into a reply that failed."""
    kind, _, why = message.partition(": ")
    return (kind, why) if kind in set(Failure) else ("", message)


def gather(agent: Agent, key: SessionKey, route: Route, clock: Clock, *, heartbeat: bool = False) -> Gathered:
    """What the next request is made of besides the transcript."""
    mode: Mode = "subagent" if key.is_subagent else "heartbeat" if heartbeat else "full"
    files = agent.files.bootstrap_files(mode, private=key.is_private, extra=agent.context.prompt.extra_files)
    always = tuple(file for file in files if file.name != HEARTBEAT)
    now_only = next((file for file in files if file.name == HEARTBEAT), None)
    return Gathered(always, agent.tools.specs(), route, local_time(clock), now_only)


def context_for(agent: Agent, key: SessionKey) -> ContextSettings:
    """The agent's settings; a subagent is told only what its task needs."""
    context = agent.context
    if not key.is_subagent or context.prompt.mode == "none":
        return context
    return msgspec.structs.replace(context, prompt=msgspec.structs.replace(context.prompt, mode="minimal"))


def _spoke(inbound: Inbound, route: Route) -> SessionChange:
    return SessionChange(
        interaction=inbound.channel not in ("heartbeat", "cron"),
        provider=route.provider,
        model=route.model,
        delivery=Delivery(inbound.channel, inbound.sender),
    )


def _answered_before(view: View, run_id: str) -> AssistantMessage | None:
    """The reply that this run had already been given when the process died, or the disk failed, if it had.

    When the conversation has gone on since then it is too late for one.
    """
    if run_id not in view.said:
        return None
    at = next((index for index, line in enumerate(view.lines) if _holds(line, run_id)), None)
    if at is None:  # it stands before a reset
        return _TOO_LATE
    later = [line.message for line in view.lines[at:]]
    # Who speaks right behind a tool's result speaks into the turn; anybody else opens the next one.
    opens = (
        index
        for index, (before, message) in enumerate(pairwise(later))
        if isinstance(message, UserMessage) and not isinstance(before, ToolResult)
    )
    next_turn = next(opens, None)
    own = later[1:] if next_turn is None else later[1 : next_turn + 1]
    if own and isinstance(last := own[-1], AssistantMessage) and not last.calls:
        return last
    return None if next_turn is None else _TOO_LATE


def _holds(line: Line, run_id: str) -> bool:
    return line.id == run_id or (isinstance(line.message, UserMessage) and run_id in line.message.also)


_TOO_LATE = AssistantMessage(
    (), stop_reason="error", error_message="the conversation went on before this could be answered"
)
