"""One turn, from an accepted message to a stored reply. Read this file first.

`TurnRunner.run` has the steps: open the session, choose the model and the tools, assemble the request, loop, store each
message, finish. Each finished message is stored before the loop continues, so a crash loses at most the sentence that
was being streamed. A turn that was interrupted by a crash is simply run again: its message is in the transcript
already, under the run's id, and the turn continues from there.

Around the turn: history.py reads and opens sessions, maintenance.py keeps them within the model's window.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from palinurus.agent.agent import Agent, TurnContext, turn_context
from palinurus.agent.gather import add_hook_files, add_notes, direct_call, reads_private, request_parts, tool_run
from palinurus.agent.history import OpenSession, SessionHistory
from palinurus.agent.loop import DIRECT, DirectReply, Emit, Interjection, Loop, Steer
from palinurus.agent.maintenance import ContextMaintenance
from palinurus.agent.reply import Stop
from palinurus.agent.resume import earlier_reply, offer_tools, take_results
from palinurus.agent.window import WindowBudget
from palinurus.context.assemble import RequestParts, TurnInput, TurnOpening, closing_entries, open_turn, unanswered
from palinurus.context.engine import Engines
from palinurus.context.view import View
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import Failure
from palinurus.domain.events import RunResult
from palinurus.domain.hooks import Hooks
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Message, ToolResult, Usage
from palinurus.domain.tool import ToolSpec
from palinurus.ledger.usage import UsageRow
from palinurus.sessions.journal import Redact
from palinurus.sessions.reset import ResetPolicy, reset_due
from palinurus.sessions.session import MAX_PEER_NAME, SessionChange, place_after
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import messages_of
from palinurus.workspace.seed import retire_first_run

_FAILURES = frozenset(Failure)
HEARTBEAT = "heartbeat"  # the channel of a look at HEARTBEAT.md, which nobody wrote


class TurnReply(Struct):
    """The loop's results so far: the last reply with the results after it, and the usage of all replies."""

    messages: list[Message] = []
    usage: Usage = Usage()

    def add(self, message: AssistantMessage | ToolResult | Interjection | DirectReply) -> None:
        match message:
            case AssistantMessage():
                self.messages, self.usage = [message], self.usage + message.usage
            case ToolResult():
                self.messages.append(message)
            case DirectReply():
                self.messages = [message.reply]
            case Interjection():
                pass


class TurnRunner:
    """Runs turns of any agent over one store."""

    def __init__(
        self,
        sessions: SessionStore,
        reset_policy: Callable[[SessionKey], ResetPolicy],
        clock: Clock,
        new_id: NewId,
        redact: Redact,
        engines: Engines | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.hooks = hooks or Hooks()
        self.history = SessionHistory(sessions, clock, new_id, redact)
        self.maintenance = ContextMaintenance(self.history, clock, new_id, engines or Engines(), self.hooks)
        self._reset_policy = reset_policy
        self._clock = clock

    async def run(
        self, agent: Agent, key: SessionKey, message: TurnInput, stop: Stop, emit: Emit, steer: Steer
    ) -> RunResult:
        """Runs one turn. Each step gets the results of earlier ones, and changes none of them."""
        began = self._clock.now_ms()

        # Open the session. A run that already has its reply returns it: it was stored before a crash.
        session = await self._open_session(agent, key, message, stop)
        session.journal.unused = message.inbound.channel == HEARTBEAT
        client_tools = message.inbound.client_tools
        if earlier := earlier_reply(session.view, message.run_id, {spec.name for spec in client_tools}):
            return self._result(session, message.run_id, TurnReply(earlier, _usage_of(earlier[0])), began)

        # Choose the model and the tools. The message's own choice takes precedence over the session's.
        choice = message.inbound.model or session.view.model, message.thinking or session.view.thinking
        turn = await turn_context(agent, session, message.run_id, choice, stop, emit)
        view = await self._prune(turn, session.view)
        tools = offer_tools(await turn.agent.tools(key, turn.route, turn.window), client_tools)

        # Assemble: the message with notes and results of client tools, stored, and the request that follows from it.
        parts = await self._request_parts(turn, view, tools.specs, message)
        noted_message = await add_notes(turn, message, view, parts)
        full_message = await take_results(turn, noted_message, view, self._clock.now_ms())
        opening = await self._open_turn(turn, view, parts, full_message)

        # Loop: model, tools, model, until done. Each message is stored before the loop continues.
        reopen = partial(self._reopen, turn, tools.specs, full_message)
        budget = WindowBudget(self.maintenance, turn, view, opening, reopen)
        loop = Loop(
            provider=turn.provider,
            tools=tools.runner,
            run=tool_run(turn, noted_message, view, opening),
            stop=stop,
            emit=emit,
            clock=self._clock,
            journal=turn.journal,
            steer=steer,
            client_tools=tools.client,
            budget=budget,
            skills=turn.agent.skills,
        )
        direct = direct_call(turn.agent, full_message, tools.specs)
        reply = TurnReply()
        request = msgspec.structs.replace(
            opening.request, tool_choice=message.inbound.tool_choice, reply_format=message.inbound.reply_format
        )
        async for each in loop.direct(direct, request) if direct else loop.messages(request):
            await self._store(turn, each, budget.opening)
            reply.add(each)

        # Finish: if the window is nearly full, notes are made after the delivery.
        if await budget.is_nearly_full(reply.messages):
            self.maintenance.mark_full(turn)
        return self._result(session, message.run_id, reply, began)

    # -- the steps of a turn, in order --------------------------------------------------------------------------------

    async def _open_session(self, agent: Agent, key: SessionKey, message: TurnInput, stop: Stop) -> OpenSession:
        """The session with its view, which is empty if a reset is due."""
        session = await self.history.open(key)
        stored = session.journal.session
        if message.run_id in session.view.stored_ids:  # it continues where it was interrupted
            if session.view.unread:
                return OpenSession(key, session.journal, await self.history.whole_view(stored))
            return session
        reason = reset_due(self._reset_policy(key), stored, now_ms=self._clock.now_ms(), zone=self._clock.zone)
        if not reason or message.inbound.results:
            return session
        self.hooks.observe("session:auto-reset", key, lambda: {"sessionId": stored.id, "reason": reason})
        return await self.maintenance.start_over(agent, session, message.run_id, reason, stop)

    async def _prune(self, turn: TurnContext, stored: View) -> View:
        """The view with everything that the model's window may hold, and old tool results shortened."""
        session = turn.journal.session
        view = await self.history.view_for_window(session, stored, turn.window)
        return await self.history.view(session) if await self.maintenance.prune(turn, view) else view

    async def _request_parts(
        self, turn: TurnContext, view: View, specs: tuple[ToolSpec, ...], message: TurnInput
    ) -> RequestParts:
        inbound = message.inbound
        if reads_private(turn.key, inbound) and inbound.by_person:
            retire_first_run(turn.agent.files, self._clock.now_ms())
        parts = request_parts(turn.agent, turn.key, specs, turn.route, self._clock, inbound)
        if inbound.light:
            return msgspec.structs.replace(parts, files=())
        return await add_hook_files(
            self.hooks, turn.agent, turn.key, view, parts, private=reads_private(turn.key, inbound)
        )

    async def _open_turn(self, turn: TurnContext, view: View, parts: RequestParts, message: TurnInput) -> TurnOpening:
        """Stores the messages that open the turn; returns the request."""
        opening = open_turn(view, parts, turn.agent.context, turn.journal, message)
        by_person, peer = message.inbound.by_person, message.inbound.peer
        if not view.lines:
            self.hooks.observe("session_start", turn.key, lambda: {"sessionId": turn.journal.session.id})
        change = SessionChange(
            interaction=by_person,
            provider=turn.route.provider,
            model=turn.route.model,
            delivery=place_after(turn.journal.session, message.inbound),
            peer_name=peer.sender_name[:MAX_PEER_NAME] if peer is not None and peer.kind == "direct" else "",
            spawn=message.inbound.spawn,
        )
        await turn.journal.write(opening.entries, change)
        assembled = await self.maintenance.assembled(turn, opening)
        await self.maintenance.ingest(turn, *messages_of(opening.entries))
        return assembled

    async def _reopen(
        self, turn: TurnContext, specs: tuple[ToolSpec, ...], message: TurnInput
    ) -> tuple[View, TurnOpening]:
        """Opens the turn again from the store, after the window was cut."""
        view = await self.history.view(turn.journal.session)
        parts = await self._request_parts(turn, view, specs, message)
        opening = open_turn(view, parts, turn.agent.context, turn.journal, message)
        await turn.journal.write(opening.entries)
        return view, opening

    async def _store(
        self,
        turn: TurnContext,
        message: AssistantMessage | ToolResult | Interjection | DirectReply,
        opening: TurnOpening,
    ) -> None:
        """Stores a message before the loop continues; a reply together with its usage."""
        journal = turn.journal
        match message:
            case Interjection():
                await journal.write([journal.message(message.message, entry_id=message.run_id)])
            case DirectReply():
                await journal.write([journal.message(each) for each in message.messages])
            case ToolResult():
                await journal.write([journal.message(message)])
            case AssistantMessage():
                entry = journal.message(message)
                finished = not message.calls and message.stop_reason in ("stop", "length") and message.api != DIRECT
                change = SessionChange(
                    usage=message.usage,
                    context_tokens=message.usage.total or None,
                    spent=self._usage_row(turn, entry.id, message),
                )
                await journal.write([entry, *(closing_entries(journal, opening) if finished else ())], change)
        await self.maintenance.ingest(turn, *(message.messages if isinstance(message, DirectReply) else (message,)))

    def _usage_row(self, turn: TurnContext, entry_id: str, reply: AssistantMessage) -> UsageRow | None:
        """The reply's row in the usage ledger. None if no model was called, or it failed without usage."""
        failed = reply.stop_reason in ("error", "aborted") and not reply.usage.total
        if reply.api == DIRECT or failed:
            return None
        return turn.usage_row(entry_id, (reply.provider, reply.model), reply.usage, self._clock.now_ms())

    def _result(self, session: OpenSession, run_id: str, answer: TurnReply, began: int) -> RunResult:
        reply = answer.messages[0]
        assert isinstance(reply, AssistantMessage)  # noqa: S101  # every way out of the loop ends with one
        kind, why = _failure(reply.error_message or "")
        failed = reply.stop_reason in ("error", "aborted")
        return RunResult(
            run_id=run_id,
            session_key=str(session.key),
            session_id=session.journal.session.id,
            status="ok" if not failed else "aborted" if reply.stop_reason == "aborted" else "error",
            text=reply.text,
            model="" if reply.api == DIRECT else f"{reply.provider}/{reply.model}",
            usage=answer.usage,
            error=why,
            error_kind=kind,
            duration_ms=self._clock.now_ms() - began,
            stop_reason=reply.stop_reason,
            calls=unanswered(answer.messages),
        )


def _usage_of(message: Message) -> Usage:
    return message.usage if isinstance(message, AssistantMessage) else Usage()


def _failure(message: str) -> tuple[str, str]:
    """The kind and message of a provider's failure, as the loop puts them into a failed reply."""
    kind, _, why = message.partition(": ")
    return (kind, why) if kind in _FAILURES else ("", message)
