"""Maintenance of long sessions: pruning during a turn; notes, summaries and resets between turns.

Most turns need none of it. The code for notes and summaries is imported on first use.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from palinurus.agent.agent import Agent, TurnContext, turn_context
from palinurus.agent.history import OpenSession, SessionHistory
from palinurus.agent.loop import Emit, Interjection
from palinurus.agent.reply import ModelQuestion, Stop
from palinurus.context.assemble import TurnOpening, assemble
from palinurus.context.budget import (
    TokenCounts,
    WindowDivision,
    divide,
    is_cold,
    prune,
    run_off_loop,
    run_off_loop_if_many,
)
from palinurus.context.engine import Assembly, Engines
from palinurus.context.epoch import PRUNED, Route, pruning
from palinurus.context.view import View
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.events import Notice
from palinurus.domain.hooks import NOTED, Hooks
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Message, Origin, Usage, UserMessage
from palinurus.ledger.usage import UsageRow
from palinurus.providers.provider import EMBEDDED, ModelRef, ModelRequest
from palinurus.sessions.session import SessionChange

if TYPE_CHECKING:  # not needed by a turn without notes or summaries
    from palinurus.context.compact import Compaction, CompactionOrder, CompactionResult, Trigger
    from palinurus.context.flush import AskSilently, Flush

log = logging.getLogger(__name__)
WAITING_SECONDS = 10.0  # seconds for the model's notes while a person waits for a reset


async def _nothing() -> None: ...


class ContextMaintenance:
    def __init__(
        self, history: SessionHistory, clock: Clock, new_id: NewId, engines: Engines, hooks: Hooks | None = None
    ) -> None:
        self.counts = TokenCounts()
        self._hooks = hooks or Hooks()
        self.engines = engines
        self.place_notes: Callable[[], Awaitable[object]] = _nothing
        """Writes pending notes into their files. Called after turns in which some were made. Must not raise."""
        self._has_made_notes = True  # since the last write; an earlier process may have made some
        self._history = history
        self._clock = clock
        self._new_id = new_id
        self._full: dict[str, TurnContext] = {}  # by session key: the last turn left little space

    @cached_property
    def _notes(self) -> Flush:
        from palinurus.context.flush import Flush  # see above: rarely needed, and slow to import

        return Flush(self._clock, self._new_id)

    @cached_property
    def compaction(self) -> Compaction:
        from palinurus.context.compact import Compaction

        history = self._history
        return Compaction(history.sessions, history.reader, self._notes, history.views, self.counts, self._on_notes)

    def _on_notes(self) -> None:
        self._has_made_notes = True

    # -- during a turn ------------------------------------------------------------------------------------------------

    async def prune(self, turn: TurnContext, view: View) -> bool:
        """Shortens old tool results if the provider's cache has expired anyway; returns whether some were."""
        settings = turn.agent.pruning
        if not view.lines or not is_cold(view, self._clock.now_ms(), settings):
            return False
        head = self._head_tokens(view)
        decided = await run_off_loop_if_many(
            view.lines, lambda: prune(view.lines, view.pruned, turn.window, settings, head)
        )
        if decided:
            await turn.journal.write([turn.journal.custom(PRUNED, pruning(decided, settings))])
        return bool(decided)

    async def assembled(self, turn: TurnContext, opening: TurnOpening) -> TurnOpening:
        """The opening with the messages from the context engine."""
        if self.engines.is_legacy:
            return opening
        session, request = turn.journal.session, opening.request
        await self.engines.bootstrap(session, turn.warn)
        assembly = Assembly(request.messages, turn.window, opening.epoch.reason)
        messages = await self.engines.assemble(session, assembly, turn.warn)
        return msgspec.structs.replace(opening, request=msgspec.structs.replace(request, messages=messages))

    async def ingest(self, turn: TurnContext, *messages: Message | Interjection) -> None:
        for each in () if self.engines.is_legacy else messages:
            message = each.message if isinstance(each, Interjection) else each
            await self.engines.ingest(turn.journal.session, message, turn.warn)

    def mark_full(self, turn: TurnContext) -> None:
        """Records that the turn has left little space: notes are made after its reply was delivered."""
        self._full[str(turn.key)] = turn

    async def cut(self, turn: TurnContext, division: WindowDivision, trigger: Trigger) -> bool:
        """Summarises the oldest part, because the window is full; returns whether anything was cut."""
        if trigger == "threshold":  # a request that the provider refused would be refused with a question after it, too
            await self._notes_before_cut(turn)
        order = msgspec.structs.replace(self._order(turn, division, trigger), run_ids=frozenset({turn.run_id}))
        done = await self._compact(turn, order)
        if done is None:
            return False
        log.info("%s: %d messages summed up by %s", turn.key, done.messages, done.made_by)
        if turn.agent.compaction.notify or turn.journal.session.preferences.verbose_level in ("on", "full"):
            turn.emit(Notice(done.notice))
        return True

    # -- between turns ------------------------------------------------------------------------------------------------

    async def compact(
        self, agent: Agent, key: SessionKey, run_id: str, focus: str, stop: Stop, emit: Emit
    ) -> CompactionResult | None:
        """Compacts the session on request; None if there is nothing to compact.

        Repeating it for one run is harmless.
        """
        if not (await self._history.view_of(key)).lines:
            return None
        session, entry_id = await self._history.open(key), f"{run_id}-compaction"
        if done := await self.compaction.done_before(session.journal.session.id, entry_id):
            return done
        turn = await turn_context(agent, session, run_id, (session.view.model, ""), stop, emit)
        view = await self._history.view_for_window(turn.journal.session, session.view, turn.window)
        division = divide(turn.window, self._head_tokens(view), turn.agent.compaction)
        await self._notes_before_cut(turn)
        order = msgspec.structs.replace(self._order(turn, division, "manual"), focus=focus, entry_id=entry_id)
        result = await self._compact(turn, order)
        self._full.pop(str(turn.key), None)
        return result

    async def reset(
        self, key: SessionKey, reason: str, run_id: str, agent: Agent | None = None, stop: Stop | None = None
    ) -> None:
        """Resets the session: the transcript stays and is no longer read. Repeating it for one run is harmless.

        The agent's model makes notes before, for a short while; without an agent they are made by rule.
        """
        session, entry_id = await self._history.open(key), f"{run_id}-reset"
        if agent is not None and not await self.compaction.has(session.journal.session.id, entry_id):
            await self._notes_before_reset(agent, session, run_id, stop or Stop())
        await self._reset(session, reason, entry_id)

    async def start_over(self, agent: Agent, session: OpenSession, run_id: str, reason: str, stop: Stop) -> OpenSession:
        """The session after a reset that was due before this run: its view is empty."""
        await self._notes_before_reset(agent, session, run_id, stop)
        tail, old = await self._reset(session, reason), session.view
        view = View(
            reason="reset", model=old.model, thinking=old.thinking, stored_ids=old.stored_ids, tail=tail, begun=tail
        )
        return OpenSession(session.key, session.journal, view)

    async def settle(self, key: SessionKey, stop: Stop) -> None:
        """After the reply was delivered: makes notes ahead of time, and writes pending ones into their files.

        A stop means that a person waits: then no notes are made. Nothing is lost: the next cut or the end of the next
        turn makes them.
        """
        if str(key) not in self._full and not self._has_made_notes and self.engines.is_legacy:
            return
        session = await self._history.sessions.find(key)
        if session is None:
            return
        view = await self._history.view(session)
        await self.engines.after_turn(session, lambda _: None)
        turn = self._full.pop(str(key), None)
        if turn is not None and not stop.requested:
            seconds = turn.agent.compaction.flush.timeout_seconds
            await self._take_notes(msgspec.structs.replace(turn, stop=stop), view, seconds, once=True)
        await self.write_notes(key)

    async def write_notes(self, key: SessionKey, *, ended: bool = False) -> None:
        """Writes pending notes into their files, if some were made. `ended`: the session is reset."""
        placed: object = None
        if self._has_made_notes:
            self._has_made_notes = False
            placed = await self.place_notes()
        if key.is_private and (placed or ended):
            await self._hooks.collect_messages(NOTED, key, lambda: {"agentId": key.agent})

    async def _compact(self, turn: TurnContext, order: CompactionOrder) -> CompactionResult | None:
        session = turn.journal.session
        facts = {"sessionId": session.id, "trigger": order.trigger, "tokensBefore": session.context_tokens}
        for text in await self._hooks.collect_messages("session:compact:before", turn.key, lambda: facts):
            turn.warn(text)
        done = await self.compaction.compact(turn.journal, order)
        if done is not None:
            facts |= {"compactedCount": done.messages, "tokensBefore": done.tokens_before}
            facts |= {"tokensAfter": done.tokens_after, "summary": done.summary}
            for text in await self._hooks.collect_messages("session:compact:after", turn.key, lambda: facts):
                turn.warn(text)
        return done

    async def _reset(self, session: OpenSession, reason: str, entry_id: str = "") -> str:
        """The id of the reset entry."""
        facts = {"sessionId": session.journal.session.id, "reason": reason}
        self._hooks.observe("session_end", session.key, lambda: facts)
        reset_id = await self.compaction.reset(session.journal, session.key, reason, entry_id=entry_id)
        await self.write_notes(session.key, ended=True)  # the first message after it includes them
        return reset_id

    async def _notes_before_reset(self, agent: Agent, session: OpenSession, run_id: str, stop: Stop) -> None:
        """Lets a model make notes of what is reset, within a short time.

        The rest is noted by rule when the reset is written.
        """
        flush = agent.compaction.flush
        if not flush.enabled or not session.key.is_private:
            return
        from palinurus.context.notes import is_worth_asking

        lines = await self.compaction.unsaved(session.journal.session.id)
        if not await run_off_loop(lines, lambda: is_worth_asking(lines)):
            return
        turn = await turn_context(agent, session, run_id, (session.view.model, ""), stop, lambda _: None)
        if _has_model(turn):
            view = await self._history.view_for_window(turn.journal.session, session.view, turn.window)
            await self._take_notes(turn, view, min(WAITING_SECONDS, flush.timeout_seconds), by_rule=False)

    async def _notes_before_cut(self, turn: TurnContext) -> None:
        """Lets a model make notes, unless it has done so since the last cut."""
        if _has_model(turn):
            view = await self._history.view(turn.journal.session)
            await self._take_notes(turn, view, turn.agent.compaction.flush.timeout_seconds, by_rule=False, once=True)

    async def _take_notes(
        self, turn: TurnContext, view: View, seconds: float, *, by_rule: bool = True, once: bool = False
    ) -> None:
        """Makes notes of the rest. `by_rule`: also if no model writes any; `once`: between two compactions."""
        journal, settings = turn.journal, turn.agent.compaction.flush
        if not settings.enabled or (once and await self.compaction.flushed_since_cut(journal.session, view)):
            return
        spent = list[AssistantMessage]()
        ask = ModelQuestion(turn.provider, journal, turn.stop, seconds)
        fits = _has_model(turn) and await run_off_loop_if_many(view.lines, lambda: self._fits(view, turn.window))
        silent = _ask_behind(view, turn.route, ask, spent.append) if fits else None
        if silent is None and not by_rule:
            return
        lines = await self.compaction.unsaved(journal.session.id)
        if not lines:
            return
        trust = await turn.agent.trusted(turn.key)
        outside = any(not trust.covers(text) for text in view.outside_texts)
        made = await self._notes.extracted(
            journal.session, turn.key, lines, silent=silent, added=settings.prompt, outside=outside
        )
        usage = sum((reply.usage for reply in spent), Usage())
        model = f"{spent[-1].provider}/{spent[-1].model}" if spent else ""
        if made.made_by != "model" and (turn.stop.requested or not by_rule):
            if spent:  # the cost of a model whose notes could not be used
                bill = self._bill(turn, made.id, model, usage)
                await journal.write([], SessionChange(usage=usage, spent=bill))
            return
        await self.compaction.flush(journal, made, usage, self._bill(turn, made.id, model, usage))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _head_tokens(self, view: View) -> int:
        return self.counts.head(view.epoch.head) if view.epoch else 0

    def _fits(self, view: View, window: int) -> bool:
        """Whether the whole session fits into one request: with a question after it, a longer one would be refused."""
        return not view.unread and self._head_tokens(view) + sum(self.counts.of(view.lines)) <= window

    def _order(self, turn: TurnContext, division: WindowDivision, trigger: Trigger) -> CompactionOrder:
        from palinurus.context.compact import CompactionOrder

        settings = turn.agent.compaction
        asks = _has_model(turn)
        return CompactionOrder(
            turn.key,
            division,
            trigger,
            settings,
            turn.route.model,
            ModelQuestion(turn.provider, turn.journal, turn.stop, settings.timeout_seconds) if asks else None,
            lambda wanted: self.engines.compact(turn.journal.session, wanted, turn.warn),
            lambda entry_id, made: self._bill(turn, entry_id, made.model, made.usage),
            pruning=turn.agent.pruning,
        )

    def _bill(self, turn: TurnContext, entry_id: str, model: str, usage: Usage) -> UsageRow | None:
        """The cost of a summary or notes; None if no model was called."""
        ref = ModelRef.parse(model)
        return turn.usage_row(entry_id, (ref.provider, ref.model), usage, self._clock.now_ms()) if usage.total else None


def _ask_behind(
    view: View, route: Route, ask: ModelQuestion, spent: Callable[[AssistantMessage], None]
) -> AskSilently | None:
    """Sends a prompt after a copy of the session: the provider's cache has all of it but the prompt."""
    epoch = view.epoch
    if epoch is None:
        return None

    async def silent(question: str) -> str | None:
        messages = [*(line.message for line in view.lines), UserMessage(question, origin=Origin.SYSTEM)]
        copy = assemble(messages, epoch_start=view.epoch_start)
        reply = await ask(ModelRequest(route.model, epoch.head, copy, thinking=route.thinking))
        if reply is None:
            return None
        spent(reply)
        return reply.text if reply.stop_reason in ("stop", "length") and not reply.calls else None

    return silent


def _has_model(turn: TurnContext) -> bool:
    """Whether there is a real model: Scout and its small model write no notes and summaries."""
    return turn.route.provider != EMBEDDED
