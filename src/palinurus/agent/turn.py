"""One turn, from an accepted message to a stored reply. Read this file first.

Each finished message is stored before the loop goes on, so a crash loses at most the sentence in the air. A turn that
was cut off by a crash is simply run again: its message is in the transcript already, under the run's id, and the story
goes on from wherever it broke off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from palinurus.agent import clients
from palinurus.agent.earlier import answered_before, origins_so_far
from palinurus.agent.loop import Emit, Hands, Interjection, Loop, Steer, Stop
from palinurus.context.assemble import unanswered
from palinurus.context.epoch import Route
from palinurus.context.opening import ContextSettings, Gathered, Opening, Spoken, closing, heard, open_turn
from palinurus.context.view import View, fold
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import Failure
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolResult, Usage
from palinurus.domain.tool import ToolRun, ToolSpec
from palinurus.ledger.usage import UsageRow
from palinurus.providers.provider import ModelRef, Provider
from palinurus.sessions.journal import Journal, Redact, redacted
from palinurus.sessions.reading import Reader
from palinurus.sessions.reset import ResetPolicy, reset_due
from palinurus.sessions.session import Preferences, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry
from palinurus.tools.results import characters_for_window
from palinurus.workspace.files import HEARTBEAT, Mode, WorkspaceFiles


class Agent(Struct, frozen=True):
    """The parts that one agent works with."""

    id: str
    files: WorkspaceFiles
    hands: Callable[[SessionKey, Route, int], Awaitable[Hands]]
    """The tools that a session may use with this model, whose window is so large. Must not raise."""
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
        view = await self._reset_if_due(key, journal, view, spoken)
        if earlier := answered_before(view, spoken.run_id, {spec.name for spec in spoken.inbound.client_tools}):
            return self._result(key, session, spoken.run_id, earlier, None, began)

        provider, route = await agent.choose_model(spoken.inbound.model or view.model)
        route = msgspec.structs.replace(route, thinking=spoken.thinking or view.thinking or route.thinking)
        window = provider.context_window(route.model)
        hands = await agent.hands(key, route, window)
        specs, asked = clients.offered(hands.specs(), spoken.inbound.client_tools)
        heartbeat = spoken.inbound.channel == "heartbeat"
        gathered = gather(agent, key, specs, route, self._clock, heartbeat=heartbeat)
        run = _on_behalf(key, spoken, route, session.preferences, view, emit)
        if spoken.inbound.results:
            spoken = await self._brought(view, spoken, run, window)
        opening = open_turn(view, gathered, context_for(agent, key), journal, spoken)
        await journal.write(opening.entries, _spoke(spoken.inbound, route))

        loop = Loop(provider, hands, run, stop, emit, self._clock, journal, steer, asked)
        usage = Usage()
        answer: list[Message] = []
        async for message in loop.messages(opening.request):
            await self._keep(journal, message, opening, run, agent)
            if isinstance(message, AssistantMessage):
                answer, usage = [message], usage + message.usage
            elif isinstance(message, ToolResult):
                answer.append(message)
        return self._result(key, session, spoken.run_id, answer, usage, began)

    async def _brought(self, view: View, spoken: Spoken, run: ToolRun, window: int) -> Spoken:
        """With the client's results as they are stored. Raises BadRequest when nothing waits for them any more."""
        if spoken.run_id not in view.said:
            clients.check_waited_for(view, spoken.inbound.results)
        run = msgspec.structs.replace(run, max_characters=characters_for_window(window))
        inbound = await clients.brought(spoken.inbound, run, self._clock.now_ms())
        return msgspec.structs.replace(spoken, inbound=inbound)

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
        entries = heard(spoken, local_time(self._clock), journal, spoken.inbound.notes)
        reply = AssistantMessage((), stop_reason="error", error_message=why, timestamp=self._clock.now_ms())
        await journal.write([*entries, journal.message(reply)])

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

    async def _reset_if_due(self, key: SessionKey, journal: Journal, view: View, spoken: Spoken) -> View:
        policy = self._reset_policy(key)
        reason = reset_due(policy, journal.session, now_ms=self._clock.now_ms(), zone=self._clock.zone)
        if not reason or spoken.run_id in view.said or spoken.inbound.results:
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
        self, key: SessionKey, session: Session, run_id: str, answer: Sequence[Message], usage: Usage | None, began: int
    ) -> RunResult:
        """`answer`: the last reply, and the results behind it when it waits for its client."""
        reply = answer[0]
        assert isinstance(reply, AssistantMessage)  # noqa: S101  # every way out of the loop ends with one
        kind, why = _failure(reply.error_message or "")
        failed = reply.stop_reason in ("error", "aborted")
        return RunResult(
            run_id=run_id,
            session_key=str(key),
            session_id=session.id,
            status="ok" if not failed else "aborted" if reply.stop_reason == "aborted" else "error",
            text=reply.text,
            model=f"{reply.provider}/{reply.model}",
            usage=reply.usage if usage is None else usage,
            error=why,
            error_kind=kind,
            duration_ms=self._clock.now_ms() - began,
            stop_reason=reply.stop_reason,
            calls=unanswered(answer),
        )


def _failure(message: str) -> tuple[str, str]:
    """The kind of a provider's failure and its sentence, as the loop puts them into a reply that failed."""
    kind, _, why = message.partition(": ")
    return (kind, why) if kind in set(Failure) else ("", message)


def _on_behalf(
    key: SessionKey, spoken: Spoken, route: Route, preferences: Preferences, view: View, emit: Emit
) -> ToolRun:
    """For whom the tools of this turn run, and how far the words that led to it can be trusted."""
    inbound = spoken.inbound
    origins = [inbound.origin, *(note.origin for note in inbound.notes), *origins_so_far(view, spoken.run_id)]
    outside = Origin.OUTSIDE in origins or bool(inbound.results)
    return ToolRun(
        key,
        spoken.run_id,
        key.is_private,
        owner=inbound.origin == Origin.OWNER,
        channel=inbound.channel,
        sender=inbound.sender,
        provider=route.provider,
        model=route.model,
        origin=Origin.OUTSIDE if outside else inbound.origin,
        attended=inbound.attended,
        elevated=preferences.elevated_level,
        emit=emit,
    )


def gather(
    agent: Agent, key: SessionKey, tools: tuple[ToolSpec, ...], route: Route, clock: Clock, *, heartbeat: bool = False
) -> Gathered:
    """What the next request is made of besides the transcript."""
    mode: Mode = "subagent" if key.is_subagent else "heartbeat" if heartbeat else "full"
    files = agent.files.bootstrap_files(mode, private=key.is_private, extra=agent.context.prompt.extra_files)
    always = tuple(file for file in files if file.name != HEARTBEAT)
    now_only = next((file for file in files if file.name == HEARTBEAT), None)
    return Gathered(always, tools, route, local_time(clock), now_only)


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
        delivery=inbound.place,
    )
