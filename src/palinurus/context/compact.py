"""The one way in which history leaves what a model reads (promise 2).

Threshold, the provider's refusal, `/compact` and every reset come through here: plan the cut, take notes of what lies
before it, have a summary written, and store notes and cut in one append. The database refuses a cut without notes. No
lock and no transaction is held while a model writes; a crash at any moment leaves the story as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from palinurus.config.compacting import CompactionSettings, PruneSettings
from palinurus.context.beside import MANY, beside, beside_many
from palinurus.context.budget import estimate_tokens, message_tokens, rough_tokens
from palinurus.context.cut import Room, cut_points, newest, plan_cut, turn_start
from palinurus.context.flush import Silent
from palinurus.context.prune import prune
from palinurus.context.pruned import PRUNED, pruning
from palinurus.context.summarise import Ask, Summarised, Summariser
from palinurus.context.summary import Wanted, wanted
from palinurus.context.view import OUTSIDE, Line, View, Views, summary_of
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, Usage, UserMessage
from palinurus.domain.provenance import carried
from palinurus.ledger.usage import UsageRow
from palinurus.providers.provider import Head
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.journal import Journal
from palinurus.sessions.reading import Reader
from palinurus.sessions.session import Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Broken, CompactionEntry, Entry, MessageEntry

Trigger = Literal["threshold", "overflow", "manual"]
_SUMMED = 16  # characters for each token of the window, at most: what is older is in notes and not in the summary
_LEAST_SUMMED = 200_000
_WORTH = 20  # a cut on its own account must free at least this part of the window


class TakesNotes(Protocol):
    async def extracted(
        self,
        session: Session,
        key: SessionKey,
        lines: Sequence[Line],
        *,
        silent: Silent | None = None,
        added: str = "",
        outside: bool = False,
    ) -> Extraction:
        """Notes of these lines, of which there is at least one; they are empty when nothing should be kept.

        `silent` asks a model behind a private copy of the conversation, which takes a while, and `added` is what it is
        asked besides; `outside`: that conversation holds text from outside, there or before. Must not raise.
        """


class Order(Struct, frozen=True):
    """What is to be compacted, and by whose words."""

    key: SessionKey
    room: Room
    trigger: Trigger
    settings: CompactionSettings = CompactionSettings()
    model: str = ""
    ask: Ask | None = None  # None: the summary is made by rule
    engine: Callable[[Wanted], Awaitable[str]] | None = None
    """A context engine's own summary, checked; "" when it has none. Must not raise."""
    bill: Callable[[str, Summarised], UsageRow | None] = lambda entry_id, made: None
    """The row in the usage ledger for what the summary has cost; the entry's id goes in."""
    focus: str = ""
    run_ids: frozenset[str] = frozenset()  # of the turn that goes on
    entry_id: str = ""
    pruning: PruneSettings = PruneSettings(mode="off")


class Compacted(Struct, frozen=True, rename="camel"):
    entry_id: str
    messages: int  # that are no longer read
    tokens_before: int
    tokens_after: int
    made_by: str
    summary: str


class Compaction:
    def __init__(self, sessions: SessionStore, reader: Reader, notes: TakesNotes, views: Views) -> None:
        self._sessions = sessions
        self._reader = reader
        self._notes = notes
        self._views = views
        self.has_made_notes = True  # since somebody has last looked; a process before this one may have
        self._heads: dict[tuple[str, tuple[str, ...]], int] = {}
        self._weights: dict[tuple[str, int], int] = {}  # a message that was weighed once keeps its weight

    async def compact(self, journal: Journal, order: Order) -> Compacted | None:
        """Cut, and say what came of it; None when there is nothing that could go."""
        entries = await self._reader.entries(journal.session.id)
        view = await self._views.read(journal.session.id, entries)
        weights = await beside_many(view.lines, lambda: self.weigh(view.lines))
        cut = await beside_many(view.lines, lambda: self._plan(view, weights, order))
        if not cut:
            return None
        gone, kept = view.lines[:cut], view.lines[cut:]
        previous = summary_of(gone[0]) or ""
        first_kept = kept[0].id if kept else ""
        extraction = await self._extracted(journal, order.key, entries, first_kept)
        made = await self._summarised(order, gone[1:] if previous else gone, previous)
        before = order.room.head + sum(weights)
        after = order.room.head + sum(weights[cut:]) + estimate_tokens(made.text)
        entry = journal.compaction(
            made.text,
            first_kept,
            before,
            {
                "tokensAfter": after,
                "messages": cut - bool(previous),
                "trigger": order.trigger,
                "madeBy": made.made_by,
                "attempts": made.attempts,
                **_marks(view, cut, order),
            },
            entry_id=order.entry_id,
        )
        change = SessionChange(
            extraction=extraction,
            compacted=True,
            context_tokens=after,
            usage=made.usage,
            spent=order.bill(entry.id, made),
        )
        await self._write(journal, [entry, *self._pruned(journal, view, cut, order)], change)
        return Compacted(entry.id, cut - bool(previous), before, after, made.made_by, entry.summary)

    async def done_before(self, session_id: str, entry_id: str) -> Compacted | None:
        """What came of a compaction that is in the transcript already."""
        for entry in reversed(await self._reader.entries(session_id)):
            if isinstance(entry, CompactionEntry) and entry.id == entry_id:
                details = entry.details or {}
                numbers = int(details.get("messages", 0)), entry.tokens_before, int(details.get("tokensAfter", 0))
                return Compacted(entry_id, *numbers, str(details.get("madeBy", "")), entry.summary)
        return None

    async def reset(self, journal: Journal, key: SessionKey, reason: str, *, entry_id: str = "") -> str:
        """Put everything away, with notes by rule of what is in none yet; the id of the entry that does it."""
        entries = await self._reader.entries(journal.session.id)
        known = bool(entry_id) and await self.has(journal.session.id, entry_id)
        extraction = None if known else await self._extracted(journal, key, entries, "")
        entry = journal.reset(reason, entry_id=entry_id)
        change = SessionChange(restarted=True, context_tokens=0, extraction=extraction)
        await self._write(journal, [entry], change)
        return entry.id

    async def view(self, session_id: str) -> View:
        """What is read of a session by now."""
        return await self._views.read(session_id, await self._reader.entries(session_id))

    async def has(self, session_id: str, entry_id: str) -> bool:
        return any(entry.id == entry_id for entry in await self._reader.entries(session_id))

    async def unsaved(self, session_id: str) -> list[Line]:
        """What was said and is in no notes yet."""
        return await self._unsaved(session_id, await self._reader.entries(session_id), "")

    async def flush(self, journal: Journal, made: Extraction, usage: Usage, spent: UsageRow | None) -> None:
        """Keep notes that were taken ahead of time, and what it cost."""
        change = SessionChange(extraction=journal.clean(made), flushed=True, usage=usage, spent=spent)
        await self._write(journal, [], change)

    async def flushed_since_cut(self, session: Session, view: View) -> bool:
        """Whether notes were taken of something that is still read: once per cycle is enough."""
        cursor = await self._sessions.cursor(session.id)
        return any(line.id == cursor for line in view.lines)

    def head_tokens(self, head: Head) -> int:
        key = head.system, tuple(spec.name for spec in head.tools)
        if key not in self._heads:
            if len(self._heads) > 100:
                self._heads.clear()
            schemas = msgspec.json.encode(head.tools).decode()
            self._heads[key] = estimate_tokens(head.system) + (estimate_tokens(schemas) if head.tools else 0)
        return self._heads[key]

    def weigh(self, lines: Sequence[Line]) -> list[int]:
        """The tokens of each line. Of very many the older ones are judged by their length, unless they were weighed."""
        if len(self._weights) > 100_000:
            self._weights.clear()
        start = max(len(lines) - MANY, 0)
        older = [
            self._weights.get((line.id, len(line.message.text))) or rough_tokens(line.message) for line in lines[:start]
        ]
        return older + [self._weight(line) for line in lines[start:]]

    def _weight(self, line: Line) -> int:
        key = line.id, len(line.message.text)  # the same line is shorter when it was pruned
        weight = self._weights.get(key)
        if weight is None:
            weight = self._weights[key] = message_tokens(line.message)
        return weight

    def _plan(self, view: View, weights: Sequence[int], order: Order) -> int:
        """The index of the first line that stays; 0 when a cut would gain nothing."""
        turn = turn_start(view.lines, order.run_ids)
        if turn == len(view.lines) and order.run_ids & view.cut_runs:
            turn = 0  # the turn began before what is read
        forced = order.trigger != "threshold"
        cut = plan_cut(weights, cut_points(view.lines), order.room, at_least_half=forced, turn=turn)
        first = 1 if view.lines and summary_of(view.lines[0]) is not None else 0
        gain = sum(weights[first:cut])
        return cut if cut > first and (forced or gain * _WORTH >= order.room.window) else 0

    def _pruned(self, journal: Journal, view: View, cut: int, order: Order) -> list[Entry]:
        """Decisions about old results among what stays: a new epoch begins in any case."""
        decided = prune(view.lines[cut:], view.pruned, order.room.window, order.pruning, order.room.head)
        return [journal.custom(PRUNED, pruning(decided, order.pruning))] if decided else []

    async def _extracted(
        self, journal: Journal, key: SessionKey, entries: Sequence[Entry | Broken], first_kept: str
    ) -> Extraction | None:
        """Notes of what goes and is in none yet."""
        lines = await self._unsaved(journal.session.id, entries, first_kept)
        if not lines:
            return None
        return journal.clean(await self._notes.extracted(journal.session, key, lines))

    async def _unsaved(self, session_id: str, entries: Sequence[Entry | Broken], first_kept: str) -> list[Line]:
        """All messages between the cursor and the first that stays, in the order of writing."""
        cursor = await self._sessions.cursor(session_id)
        ids = [entry.id for entry in entries]
        start = ids.index(cursor) + 1 if cursor in ids else 0
        end = ids.index(first_kept) if first_kept else len(ids)
        return [Line(entry.id, entry.message) for entry in entries[start:end] if isinstance(entry, MessageEntry)]

    async def _write(self, journal: Journal, entries: Sequence[Entry], change: SessionChange) -> None:
        await journal.write(entries, change)
        self.has_made_notes = self.has_made_notes or change.extraction is not None

    async def _summarised(self, order: Order, gone: Sequence[Line], previous: str) -> Summarised:
        settings = order.settings
        gone = newest(gone, max(order.room.window * _SUMMED, _LEAST_SUMMED))
        asked = await beside(
            gone,
            lambda: wanted(
                gone,
                previous,
                tokens=order.room.summary,
                characters=settings.max_summary,
                focus=order.focus,
                strict=settings.identifiers,
            ),
        )
        if order.engine is not None and (text := await order.engine(asked)):
            return Summarised(text, "engine")
        ask = order.ask if settings.timeout_seconds else None
        return await Summariser(ask, order.model, order.room.window).write(asked)


def _marks(view: View, cut: int, order: Order) -> dict[str, object]:
    """What must be known later of lines that are gone: where they came from, and whose turn was cut in the middle."""
    gone = view.lines[:cut]
    marks: dict[str, object] = {}
    if texts := carried(text for line in gone for text in view.outside.get(line.id, ())):
        marks |= {"origin": str(Origin.OUTSIDE), OUTSIDE: msgspec.to_builtins(texts)}
    runs = view.cut_runs if order.run_ids & view.cut_runs else frozenset[str]()
    begun = bool(runs)
    for line in gone:
        begun = begun or line.id in order.run_ids
        if begun and isinstance(line.message, UserMessage) and summary_of(line) is None:
            runs |= {line.id, *line.message.also}
    if runs:
        marks["runs"] = sorted(runs)
    return marks
