"""What keeps a long conversation going beside its turns: room in the window, notes, and the context engine's part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from palinurus.agent.asking import Asking
from palinurus.agent.loop import Emit, Interjection
from palinurus.agent.room import TurnRoom
from palinurus.agent.stop import Stop
from palinurus.config.compacting import CompactionSettings, FlushSettings, PruneSettings
from palinurus.context.assemble import assemble
from palinurus.context.beside import beside, beside_many
from palinurus.context.budget import messages_tokens
from palinurus.context.compact import Compacted, Compaction, Order, TakesNotes, Trigger
from palinurus.context.cut import Room, divide
from palinurus.context.engine import Assembly, Engines
from palinurus.context.epoch import Route
from palinurus.context.flush import Silent
from palinurus.context.notes import is_worth_asking
from palinurus.context.opening import Opening
from palinurus.context.prune import is_cold, prune
from palinurus.context.pruned import PRUNED, pruning
from palinurus.context.view import View, Views
from palinurus.domain.clock import Clock
from palinurus.domain.events import Notice
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolResult, Usage, UserMessage
from palinurus.domain.provenance import Trusting, trusting_nothing
from palinurus.ledger.usage import UsageRow
from palinurus.providers.provider import ModelRef, ModelRequest, Provider
from palinurus.providers.scout.smalltalk import TALKER
from palinurus.sessions.journal import Journal
from palinurus.sessions.reading import Reader
from palinurus.sessions.session import Session, SessionChange
from palinurus.sessions.store import SessionStore

WAITING_SECONDS = 10.0  # that somebody who waits for a fresh start leaves a model for its notes

Cost = Callable[[str, str, Usage], float | None]
Reopen = Callable[[], Awaitable[tuple[View, Opening]]]
"""Opens the turn anew on what is stored by now, and stores the epoch that begins with it."""


class Place(Struct, frozen=True):
    """Where a turn goes on, and with what."""

    key: SessionKey
    run_id: str
    journal: Journal
    provider: Provider
    route: Route
    window: int
    settings: CompactionSettings
    cost: Cost
    stop: Stop
    emit: Emit
    pruning: PruneSettings = PruneSettings(mode="off")
    trusted: Trusting = trusting_nothing

    def warn(self, text: str) -> None:
        self.emit(Notice(text))


async def _nothing() -> None: ...


class Upkeep:
    def __init__(
        self, sessions: SessionStore, reader: Reader, clock: Clock, notes: TakesNotes, engines: Engines
    ) -> None:
        self.views = Views()
        self.compaction = Compaction(sessions, reader, notes, self.views)
        self.engines = engines
        self.place_notes: Callable[[], Awaitable[object]] = _nothing
        """Writes notes that wait for their file. Called after turns in which some were made. Must not raise."""
        self._notes = notes
        self._clock = clock
        self._full: dict[str, Place] = {}  # by session key: where the last turn has left little room

    # -- during a turn ------------------------------------------------------------------------------------------------

    async def prune(self, journal: Journal, view: View, window: int, settings: PruneSettings) -> bool:
        """Shorten old results of tools, when the provider has forgotten the prefix anyway; whether some were."""
        if not view.lines or not is_cold(view, self._clock.now_ms(), settings):
            return False
        head = self.compaction.head_tokens(view.epoch.head) if view.epoch else 0
        decided = await beside_many(view.lines, lambda: prune(view.lines, view.pruned, window, settings, head))
        if decided:
            await journal.write([journal.custom(PRUNED, pruning(decided, settings))])
        return bool(decided)

    async def assembled(self, place: Place, opening: Opening) -> Opening:
        """The opening with the messages that the context engine wants sent."""
        session, request = place.journal.session, opening.request
        await self.engines.bootstrap(session, place.warn)
        assembly = Assembly(request.messages, place.window, opening.epoch.reason)
        messages = await self.engines.assemble(session, assembly, place.warn)
        if messages is request.messages:
            return opening
        request = msgspec.structs.replace(request, messages=messages)
        return msgspec.structs.replace(opening, request=request)

    async def ingest(self, place: Place, *messages: Message | Interjection) -> None:
        for each in messages:
            message = each.message if isinstance(each, Interjection) else each
            await self.engines.ingest(place.journal.session, message, place.warn)

    def room(self, place: Place, view: View, opening: Opening, reopen: Reopen) -> TurnRoom:
        async def anew() -> tuple[View, Opening]:
            later, opened = await reopen()
            return later, await self.assembled(place, opened)

        return TurnRoom(
            self.compaction,
            place.journal,
            place.settings,
            place.window,
            view,
            opening,
            order=lambda room, trigger: self._order(place, room, trigger, runs=frozenset({place.run_id})),
            reopen=anew,
            take_notes=lambda: self._notes_before_cut(place),
            tell=lambda done: self._tell(place, done),
        )

    def ended(self, place: Place, room: TurnRoom, answer: Sequence[AssistantMessage | ToolResult]) -> None:
        """Remember whether the turn has left little room."""
        reply = next((each for each in answer if isinstance(each, AssistantMessage)), None)
        tokens = (reply.usage.total if reply else 0) or room.tokens + messages_tokens(answer)
        if tokens > room.room().threshold - place.settings.flush.tokens_ahead(place.window):
            self._full[str(place.key)] = place

    # -- between turns ------------------------------------------------------------------------------------------------

    async def compact(self, place: Place, view: View, focus: str, entry_id: str) -> Compacted | None:
        """Because somebody asked for it."""
        head = self.compaction.head_tokens(view.epoch.head) if view.epoch else 0
        room = divide(place.window, head, place.settings)
        await self._notes_before_cut(place)
        done = await self.compaction.compact(
            place.journal, self._order(place, room, "manual", focus=focus, entry_id=entry_id)
        )
        self._full.pop(str(place.key), None)
        return done

    def is_due(self, key: SessionKey) -> bool:
        return str(key) in self._full or self.compaction.has_made_notes or not self.engines.is_legacy

    async def settle(self, key: SessionKey, journal: Journal, view: View, stop: Stop) -> None:
        """After the reply was delivered: take notes ahead of time, and write those that wait for their file.

        A stop means that somebody waits: then no notes are taken. Nothing leaves the window yet, and whoever cuts it or
        ends the next turn, in this process or another, takes them.
        """
        await self.engines.after_turn(journal.session, lambda _: None)
        place = self._full.pop(str(key), None)
        if place is not None and not stop.requested:
            await self._take_notes(place, view, stop, place.settings.flush.timeout_seconds, once=True)
        await self.write_notes()

    async def write_notes(self) -> None:
        """Write notes that wait into their files, if some were made."""
        if self.compaction.has_made_notes:
            self.compaction.has_made_notes = False
            await self.place_notes()

    async def has_news(self, session: Session, key: SessionKey, settings: FlushSettings) -> bool:
        """Whether a model should be asked for notes before everything is put away."""
        if not settings.enabled or not key.is_private:
            return False
        lines = await self.compaction.unsaved(session.id)
        return await beside(lines, lambda: is_worth_asking(lines))

    async def notes_before_reset(self, place: Place, view: View) -> None:
        """Have a model take notes of what is put away, while somebody waits: not for long.

        What it has not noted by then is noted by rule when the reset is written.
        """
        seconds = min(WAITING_SECONDS, place.settings.flush.timeout_seconds)
        if _has_model(place):
            await self._take_notes(place, view, place.stop, seconds, by_rule=False)

    async def _notes_before_cut(self, place: Place) -> None:
        """Have a model take notes, unless it has done so since the last cut."""
        view = await self.compaction.view(place.journal.session.id)
        if _has_model(place):
            seconds = place.settings.flush.timeout_seconds
            await self._take_notes(place, view, place.stop, seconds, by_rule=False, once=True)

    async def _take_notes(
        self, place: Place, view: View, stop: Stop, seconds: float, *, by_rule: bool = True, once: bool = False
    ) -> None:
        """Notes of what is in none yet. `by_rule`: also when no model gives any; `once`: between two compactions."""
        journal, settings = place.journal, place.settings.flush
        if not settings.enabled or (once and await self.compaction.flushed_since_cut(journal.session, view)):
            return
        lines = await self.compaction.unsaved(journal.session.id)
        if not lines:
            return
        spent = list[AssistantMessage]()
        ask = Asking(place.provider, journal, stop, seconds)
        fits = _has_model(place) and await beside_many(view.lines, lambda: self._fits(view, place))
        silent = _behind(view, place.route, ask, spent.append) if fits else None
        if silent is None and not by_rule:
            return
        trust = await place.trusted(place.key)
        outside = any(not trust.covers(text) for text in view.outside_texts)
        made = await self._notes.extracted(
            journal.session, place.key, lines, silent=silent, added=settings.prompt, outside=outside
        )
        if made.made_by != "model" and (stop.requested or not by_rule):
            await self._pay(place, made.id, spent)
            return
        usage = spent[0].usage if spent else Usage()
        model = f"{spent[0].provider}/{spent[0].model}" if spent else ""
        await self.compaction.flush(journal, made, usage, self._bill(place, made.id, usage, model))

    def _fits(self, view: View, place: Place) -> bool:
        """Whether the whole conversation goes into one request: a question behind more than that would be refused."""
        head = self.compaction.head_tokens(view.epoch.head) if view.epoch else 0
        return head + sum(self.compaction.weigh(view.lines)) <= place.window

    async def _pay(self, place: Place, notes_id: str, spent: Sequence[AssistantMessage]) -> None:
        """What a model has cost whose notes could not be used."""
        for reply in spent:
            bill = self._bill(place, notes_id, reply.usage, f"{reply.provider}/{reply.model}")
            await place.journal.write([], SessionChange(usage=reply.usage, spent=bill))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _order(
        self,
        place: Place,
        room: Room,
        trigger: Trigger,
        *,
        runs: frozenset[str] = frozenset(),
        focus: str = "",
        entry_id: str = "",
    ) -> Order:
        return Order(
            place.key,
            room,
            trigger,
            place.settings,
            place.route.model,
            Asking(place.provider, place.journal, place.stop, place.settings.timeout_seconds)
            if _has_model(place)
            else None,
            lambda wanted: self.engines.compact(place.journal.session, wanted, place.warn),
            lambda entry_id, made: self._bill(place, entry_id, made.usage, made.model),
            focus,
            runs,
            entry_id,
            place.pruning,
        )

    def _bill(self, place: Place, entry_id: str, usage: Usage, model: str) -> UsageRow | None:
        """What a summary or notes have cost; None when no model was asked."""
        if not usage.total:
            return None
        ref = ModelRef.parse(model)
        return UsageRow(
            entry_id=entry_id,
            at=self._clock.now_ms(),
            run_id=place.run_id,
            session_key=str(place.key),
            agent=place.key.agent,
            provider=ref.provider,
            model=ref.model,
            usage=usage,
            cost=place.cost(ref.provider, ref.model, usage),
        )

    def _tell(self, place: Place, done: Compacted) -> None:
        if place.settings.notify or place.journal.session.preferences.verbose_level in ("on", "full"):
            place.emit(Notice(told(done)))


def _has_model(place: Place) -> bool:
    """Scout and the small model that chats for him take no notes and sum nothing up."""
    return place.route.provider != TALKER.provider


def _behind(view: View, route: Route, ask: Asking, spent: Callable[[AssistantMessage], None]) -> Silent | None:
    """Asks behind a copy of the conversation: the provider's cache has all of it but the question."""
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


def told(done: Compacted) -> str:
    return (
        f"compacted: {done.messages} messages became a summary, {done.tokens_before:,} → {done.tokens_after:,} tokens"
    )
