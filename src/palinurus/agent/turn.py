"""One turn, from an accepted message to a stored reply. Read this file first.

Each finished message is stored before the loop goes on, so a crash loses at most the sentence in the air. A turn that
was cut off by a crash is simply run again: its message is in the transcript already, under the run's id, and the story
goes on from wherever it broke off.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palinurus.agent import clients
from palinurus.agent.agent import Agent
from palinurus.agent.called import direct_call, with_called, with_skills
from palinurus.agent.direct import Told
from palinurus.agent.earlier import answered_before
from palinurus.agent.gathering import (
    context_for,
    gather,
    in_session,
    on_behalf,
    reading,
    spoke,
    with_recalled,
    with_startup,
)
from palinurus.agent.loop import DIRECT, Emit, Interjection, Loop, Steer
from palinurus.agent.outcome import result, spent
from palinurus.agent.stop import Stop
from palinurus.agent.upkeep import Place, Upkeep
from palinurus.context.compact import Compacted, TakesNotes
from palinurus.context.engine import Engines
from palinurus.context.epoch import Route
from palinurus.context.flush import Flush
from palinurus.context.opening import Opening, Spoken, closing, heard, open_turn
from palinurus.context.view import View
from palinurus.domain.clock import Clock, NewId, local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ToolResult, Usage
from palinurus.domain.tool import ToolRun
from palinurus.providers.provider import ModelRef, Provider
from palinurus.sessions.journal import Journal, Redact, redacted
from palinurus.sessions.names import place_session
from palinurus.sessions.reading import Reader
from palinurus.sessions.reset import ResetPolicy, reset_due
from palinurus.sessions.session import Preferences, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import CHOSEN_MODEL, CHOSEN_THINKING, Entry, messages_of
from palinurus.tools.results import characters_for_window
from palinurus.workspace.seed import retire_first_run


class TurnRunner:
    """Runs turns of any agent over one store."""

    def __init__(
        self,
        sessions: SessionStore,
        reset_policy: Callable[[SessionKey], ResetPolicy],
        clock: Clock,
        new_id: NewId,
        redact: Redact,
        notes: TakesNotes | None = None,
        engines: Engines | None = None,
    ) -> None:
        self._sessions = sessions
        self._reader = Reader(sessions, whole=False)
        self.upkeep = Upkeep(sessions, self._reader, clock, notes or Flush(clock, new_id), engines or Engines())
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
        view = await self._reset_if_due(agent, key, journal, view, spoken, stop)
        if earlier := answered_before(view, spoken.run_id, {spec.name for spec in spoken.inbound.client_tools}):
            return result(key, session, spoken.run_id, earlier, None, self._clock.now_ms() - began)

        agent = await in_session(agent, key)
        provider, route = await agent.choose_model(spoken.inbound.model or view.model)
        route = msgspec.structs.replace(route, thinking=spoken.thinking or view.thinking or route.thinking)
        window = provider.context_window(route.model)
        if await self.upkeep.prune(journal, view, window, agent.pruning):
            view = await self.view(session)
        hands = await agent.hands(key, route, window)
        specs, asked = clients.offered(hands.specs(), spoken.inbound.client_tools)
        heartbeat = spoken.inbound.channel == "heartbeat"
        if key.is_private and not heartbeat:
            retire_first_run(agent.files, self._clock.now_ms())
        gathered = gather(agent, key, specs, route, self._clock, heartbeat=heartbeat)
        if key.is_private and spoken.run_id not in view.said and not heartbeat:
            spoken = with_startup(agent, spoken, view, gathered)
            spoken = await with_recalled(agent, key, spoken, view, gathered)
        if spoken.run_id not in view.said:
            spoken = with_called(agent, spoken)
        run = on_behalf(key, spoken, route, session.preferences, view, emit)
        run = with_skills(agent, run, spoken, view)
        if spoken.inbound.results:
            spoken = await self._brought(agent, view, spoken, run, window)
        opening = open_turn(view, gathered, context_for(agent, key), journal, spoken)
        await journal.write(opening.entries, spoke(spoken.inbound, route))
        run = reading(run, session.id, view, opening)
        place = _place(agent, key, spoken.run_id, journal, provider, route, window, stop, emit)
        opening = await self.upkeep.assembled(place, opening)
        await self.upkeep.ingest(place, *messages_of(opening.entries))

        async def reopen() -> tuple[View, Opening]:
            later = await self.view(session)
            anew = gather(agent, key, specs, route, self._clock, heartbeat=heartbeat)
            opened = open_turn(later, anew, context_for(agent, key), journal, spoken)
            await journal.write(opened.entries)
            return later, opened

        room = self.upkeep.room(place, view, opening, reopen)

        loop = Loop(provider, hands, run, stop, emit, self._clock, journal, steer, asked, room, agent.skills)
        usage = Usage()
        answer: list[AssistantMessage | ToolResult] = []
        direct = direct_call(agent, spoken, specs)
        said = loop.direct(direct, opening.request) if direct else loop.messages(opening.request)
        async for message in said:
            await self._keep(journal, message, room.opening, run, agent)
            await self.upkeep.ingest(place, *(message.messages if isinstance(message, Told) else (message,)))
            answer, usage = _so_far(answer, usage, message)
        self.upkeep.ended(place, room, answer)
        return result(key, session, spoken.run_id, answer, usage, self._clock.now_ms() - began)

    async def _brought(self, agent: Agent, view: View, spoken: Spoken, run: ToolRun, window: int) -> Spoken:
        """With the client's results as they are stored. Raises BadRequest when nothing waits for them any more."""
        if spoken.run_id not in view.said:
            clients.check_waited_for(view, spoken.inbound.results)
        run = msgspec.structs.replace(run, max_characters=characters_for_window(window))
        inbound = await clients.brought(spoken.inbound, run, self._clock.now_ms())
        if agent.skills is not None:
            marked = tuple(agent.skills.marked(result) for result in inbound.results)
            inbound = msgspec.structs.replace(inbound, results=marked)
        return msgspec.structs.replace(spoken, inbound=inbound)

    async def place(self, name: str, agent: str) -> SessionKey:
        """The session of an agent that somebody means who says this name: one that is there, else a new one."""
        return await place_session(self._sessions, name, agent=agent)

    async def view(self, session: Session) -> View:
        view = await self.upkeep.views.read(session.id, await self._reader.entries(session.id))
        brought = session.preferences
        model = view.model if view.chose_model else brought.model_override
        thinking = view.thinking if view.chose_thinking else brought.thinking_level
        if (model, thinking) == (view.model, view.thinking):
            return view
        return msgspec.structs.replace(view, model=model, thinking=thinking)

    async def view_of(self, key: SessionKey) -> View:
        """What is read of a session; nothing, of one that does not exist."""
        session = await self._sessions.find(key)
        return await self.view(session) if session else View()

    def journal(self, session: Session, view: View) -> Journal:
        return Journal(self._sessions, session, view.tail, self._clock, self._new_id, self._redact)

    def clean(self, inbound: Inbound) -> Inbound:
        """The message without secrets, as it is accepted and stored."""
        return redacted(inbound, self._redact)

    async def reset(
        self, key: SessionKey, reason: str, run_id: str, agent: Agent | None = None, stop: Stop | None = None
    ) -> None:
        """Start over: what was said stays in the transcript and is no longer read. Twice for one run is once.

        The agent's model takes notes before, for a short while; without an agent they are taken by rule.
        """
        session = await self._sessions.open(key)
        view = await self.view(session)
        journal = self.journal(session, view)
        entry_id = f"{run_id}-reset"
        if agent is not None and not await self.upkeep.compaction.has(session.id, entry_id):
            await self._note_before_reset(agent, key, run_id, journal, view, stop or Stop())
        await self.upkeep.compaction.reset(journal, key, reason, entry_id=entry_id)
        await self.upkeep.write_notes()

    async def _note_before_reset(
        self, agent: Agent, key: SessionKey, run_id: str, journal: Journal, view: View, stop: Stop
    ) -> None:
        if not await self.upkeep.has_news(journal.session, key, agent.compaction.flush):
            return
        provider, route = await agent.choose_model(view.model)
        window = provider.context_window(route.model)
        place = _place(agent, key, run_id, journal, provider, route, window, stop, lambda _: None)
        await self.upkeep.notes_before_reset(place, view)

    async def compact(
        self, agent: Agent, key: SessionKey, run_id: str, focus: str, stop: Stop, emit: Emit
    ) -> Compacted | None:
        """Sum the conversation up because somebody asks for it; None when there is nothing to sum up.

        Twice for one run is once.
        """
        session = await self._sessions.find(key)
        view = await self.view(session) if session else View()
        if session is None or not view.lines:
            return None
        entry_id = f"{run_id}-compaction"
        if done := await self.upkeep.compaction.done_before(session.id, entry_id):
            return done
        provider, route = await agent.choose_model(view.model)
        window = provider.context_window(route.model)
        journal = self.journal(session, view)
        place = _place(agent, key, run_id, journal, provider, route, window, stop, emit)
        return await self.upkeep.compact(place, view, focus, entry_id)

    async def settle(self, key: SessionKey, stop: Stop) -> None:
        """What is done after a turn, when its reply was delivered. A stop makes it short: somebody waits."""
        if not self.upkeep.is_due(key):
            return
        if session := await self._sessions.find(key):
            await self.upkeep.settle(key, self.journal(session, view := await self.view(session)), view, stop)

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
            entries.append(journal.model_change(ref.provider, ref.model, entry_id=f"{run_id}{CHOSEN_MODEL}"))
        if thinking is not None:
            entries.append(journal.thinking_change(thinking, entry_id=f"{run_id}{CHOSEN_THINKING}"))
        await journal.write(entries)

    async def prefer(self, key: SessionKey, preferences: Preferences) -> None:
        """Keep what the people of a session have chosen; its transcript is not touched."""
        session = await self._sessions.open(key)
        await self._sessions.append(session.id, (), SessionChange(preferences=preferences))

    async def preferences(self, key: SessionKey) -> Preferences:
        session = await self._sessions.find(key)
        return session.preferences if session else Preferences()

    async def _reset_if_due(
        self, agent: Agent, key: SessionKey, journal: Journal, view: View, spoken: Spoken, stop: Stop
    ) -> View:
        policy = self._reset_policy(key)
        reason = reset_due(policy, journal.session, now_ms=self._clock.now_ms(), zone=self._clock.zone)
        if not reason or spoken.run_id in view.said or spoken.inbound.results:
            return view
        await self._note_before_reset(agent, key, spoken.run_id, journal, view, stop)
        tail = await self.upkeep.compaction.reset(journal, key, reason)
        await self.upkeep.write_notes()  # the first message after it carries them
        return View(reason="reset", model=view.model, thinking=view.thinking, said=view.said, tail=tail, begun=tail)

    async def _keep(
        self,
        journal: Journal,
        message: AssistantMessage | ToolResult | Interjection | Told,
        opening: Opening,
        run: ToolRun,
        agent: Agent,
    ) -> None:
        if isinstance(message, Interjection):
            await journal.write([journal.message(message.message, entry_id=message.run_id)])
            return
        if isinstance(message, Told):
            await journal.write([journal.message(each) for each in message.messages])
            return
        entry = journal.message(message)
        if isinstance(message, ToolResult):
            await journal.write([entry])
            return
        finished = not message.calls and message.stop_reason in ("stop", "length") and message.api != DIRECT
        cost = spent(entry.id, message, run, agent, self._clock.now_ms())
        change = SessionChange(usage=message.usage, context_tokens=message.usage.total or None, spent=cost)
        await journal.write([entry, *(closing(journal, opening) if finished else ())], change)


def _so_far(
    answer: list[AssistantMessage | ToolResult],
    usage: Usage,
    message: AssistantMessage | ToolResult | Interjection | Told,
) -> tuple[list[AssistantMessage | ToolResult], Usage]:
    """The last reply with the results behind it, and what all replies have used."""
    match message:
        case AssistantMessage():
            return [message], usage + message.usage
        case ToolResult():
            return [*answer, message], usage
        case Told():
            return [message.reply], usage
        case Interjection():
            return answer, usage


def _place(
    agent: Agent,
    key: SessionKey,
    run_id: str,
    journal: Journal,
    provider: Provider,
    route: Route,
    window: int,
    stop: Stop,
    emit: Emit,
) -> Place:
    settings = agent.compaction, agent.cost, stop, emit, agent.pruning, agent.trusted
    return Place(key, run_id, journal, provider, route, window, *settings)
