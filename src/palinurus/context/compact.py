"""Compaction: the only way in which history leaves what a model reads (promise 2).

Threshold, the provider's refusal, `/compact` and every reset use it: plan the cut, make notes of what is before it,
have a summary written, and store notes and cut in one append. The database refuses a cut without notes. No lock and no
transaction is held while a model writes; a crash at any time leaves the session unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.context.budget import (
    TokenCounts,
    WindowDivision,
    cut_points,
    newest,
    plan_cut,
    prune,
    run_off_loop,
    run_off_loop_if_many,
    turn_start,
)
from palinurus.context.epoch import PRUNED, pruning
from palinurus.context.flush import Flush
from palinurus.context.notes import fills_notes, may_be_noted
from palinurus.context.settings import CompactionSettings, PruneSettings
from palinurus.context.summary import Ask, Summariser, SummaryOrder, SummaryResult, wanted
from palinurus.context.view import OUTSIDE, Line, View, Views, summary_of
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, Usage, UserMessage, carried
from palinurus.ledger.usage import UsageRow
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.journal import Journal
from palinurus.sessions.reader import Reader, is_passed
from palinurus.sessions.session import Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Broken, CompactionEntry, Entry, MessageEntry
from palinurus.text.tokens import estimate_tokens

Trigger = Literal["threshold", "overflow", "manual"]
_SUMMED = 8  # maximum characters per token of the window: older text is in notes and not in the summary
_LEAST_SUMMED = 200_000
_WORTH = 20  # an automatic cut must free at least this part of the window


class CompactionOrder(Struct, frozen=True):
    """What to compact, and how to summarise it."""

    key: SessionKey
    division: WindowDivision
    trigger: Trigger
    settings: CompactionSettings = CompactionSettings()
    model: str = ""
    ask: Ask | None = None  # None: the summary is made by rule
    engine: Callable[[SummaryOrder], Awaitable[str]] | None = None
    """A context engine's own summary, checked; "" if it has none. Must not raise."""
    bill: Callable[[str, SummaryResult], UsageRow | None] = lambda entry_id, made: None
    """Returns the usage row for the cost of the summary, given the entry's id."""
    focus: str = ""
    run_ids: frozenset[str] = frozenset()  # of the current turn
    entry_id: str = ""
    pruning: PruneSettings = PruneSettings(mode="off")


class CompactionResult(Struct, frozen=True, rename="camel"):
    entry_id: str
    messages: int  # no longer read
    tokens_before: int
    tokens_after: int
    made_by: str
    summary: str

    @property
    def notice(self) -> str:
        tokens = f"{self.tokens_before:,} → {self.tokens_after:,} tokens"
        return f"compacted: {self.messages} messages became a summary, {tokens}"


class Compaction(Struct, eq=False):
    _sessions: SessionStore
    _reader: Reader
    _notes: Flush
    _views: Views
    _counts: TokenCounts
    _on_notes: Callable[[], None]
    """Called after notes were stored that are not yet in a file."""

    async def compact(self, journal: Journal, order: CompactionOrder) -> CompactionResult | None:
        """Compacts and returns the result; None if nothing can be cut."""
        entries = await self._reader.entries(journal.session.id)
        view = await self._views.read(journal.session.id, entries)
        weights = await run_off_loop_if_many(view.lines, lambda: self._counts.of(view.lines))
        cut = await run_off_loop_if_many(view.lines, lambda: self._plan(view, weights, order))
        if not cut:
            return None
        gone, kept = view.lines[:cut], view.lines[cut:]
        previous = summary_of(gone[0]) or ""
        count = cut - bool(previous) + view.unread
        first_kept = kept[0].id if kept else ""
        extraction = await self._extracted(journal, order.key, entries, first_kept)
        made = await self._summarised(order, gone[1:] if previous else gone, previous)
        before = order.division.head + sum(weights)
        after = order.division.head + sum(weights[cut:]) + estimate_tokens(made.text)
        details = {
            "tokensAfter": after,
            "messages": count,
            "trigger": order.trigger,
            "madeBy": made.made_by,
            "attempts": made.attempts,
            **_marks(view, cut, order),
        }
        entry = journal.compaction(made.text, first_kept, before, details, entry_id=order.entry_id)
        change = SessionChange(
            extraction=extraction,
            compacted=True,
            context_tokens=after,
            usage=made.usage,
            spent=order.bill(entry.id, made),
        )
        await self._write(journal, [entry, *self._pruned(journal, view, cut, order)], change)
        return CompactionResult(entry.id, count, before, after, made.made_by, entry.summary)

    async def done_before(self, session_id: str, entry_id: str) -> CompactionResult | None:
        """The result of a compaction that is already in the transcript."""
        for entry in reversed(await self._reader.entries(session_id)):
            if isinstance(entry, CompactionEntry) and entry.id == entry_id:
                details = entry.details or {}
                numbers = int(details.get("messages", 0)), entry.tokens_before, int(details.get("tokensAfter", 0))
                return CompactionResult(entry_id, *numbers, str(details.get("madeBy", "")), entry.summary)
        return None

    async def reset(self, journal: Journal, key: SessionKey, reason: str, *, entry_id: str = "") -> str:
        """Resets the session, with notes by rule of what is in none yet; returns the id of the reset entry."""
        entries = await self._reader.entries(journal.session.id)
        known = bool(entry_id) and await self.has(journal.session.id, entry_id)
        extraction = None if known else await self._extracted(journal, key, entries, "")
        entry = journal.reset(reason, entry_id=entry_id)
        change = SessionChange(restarted=True, context_tokens=0, extraction=extraction)
        await self._write(journal, [entry], change)
        return entry.id

    async def has(self, session_id: str, entry_id: str) -> bool:
        return any(entry.id == entry_id for entry in await self._reader.entries(session_id))

    async def unsaved(self, session_id: str) -> list[Line]:
        """Messages that are in no notes yet."""
        return await self._unsaved(session_id, await self._reader.entries(session_id), "", by_rule=False)

    async def flush(self, journal: Journal, made: Extraction, usage: Usage, spent: UsageRow | None) -> None:
        """Stores notes that were made ahead of time, and their cost."""
        change = SessionChange(extraction=journal.clean(made), flushed=True, usage=usage, spent=spent)
        await self._write(journal, [], change)

    async def flushed_since_cut(self, session: Session, view: View) -> bool:
        """Whether notes of a part that is still read exist: once per cycle is enough."""
        cursor = await self._sessions.cursor(session.id)
        return any(line.id == cursor for line in view.lines)

    def _plan(self, view: View, weights: Sequence[int], order: CompactionOrder) -> int:
        """The index of the first line that stays; 0 if a cut would gain nothing."""
        turn = turn_start(view.lines, order.run_ids)
        if turn == len(view.lines) and order.run_ids & view.cut_runs:
            turn = 0  # the turn began before the part that is read
        forced = order.trigger != "threshold"
        cut = plan_cut(weights, cut_points(view.lines), order.division, at_least_half=forced, turn=turn)
        first = 1 if view.lines and summary_of(view.lines[0]) is not None else 0
        gain = sum(weights[first:cut])
        return cut if cut > first and (forced or gain * _WORTH >= order.division.window) else 0

    def _pruned(self, journal: Journal, view: View, cut: int, order: CompactionOrder) -> list[Entry]:
        """Pruning decisions for what stays: a new epoch begins in any case."""
        decided = prune(view.lines[cut:], view.pruned, order.division.window, order.pruning, order.division.head)
        return [journal.custom(PRUNED, pruning(decided, order.pruning))] if decided else []

    async def _extracted(
        self, journal: Journal, key: SessionKey, entries: Sequence[Entry | Broken], first_kept: str
    ) -> Extraction | None:
        """Notes of what is cut and in none yet."""
        lines = await self._unsaved(journal.session.id, entries, first_kept, by_rule=True)
        if not lines:
            return None
        return journal.clean(await self._notes.extracted(journal.session, key, lines))

    async def _unsaved(
        self, session_id: str, entries: Sequence[Entry | Broken], first_kept: str, *, by_rule: bool
    ) -> list[Line]:
        """All messages between the cursor and the first that stays, in order.

        `by_rule`: without old ones from which the rules would take nothing.
        """
        cursor = await self._sessions.cursor(session_id)
        ids = [entry.id for entry in entries]
        start = ids.index(cursor) + 1 if cursor in ids else 0
        end = ids.index(first_kept) if first_kept else len(ids)
        read = next((at + 1 for at in range(end - 1, start - 1, -1) if is_passed(entries[at])), start)
        lines = await _lines_of(entries[read:end])
        if read == start:
            return lines
        # If newer messages fill the notes, older ones count only if they request a note.
        full = by_rule and await run_off_loop(lines, lambda: fills_notes(lines))
        older = await self._reader.words(session_id, start, entries[start:read], may_be_noted if full else bool)
        return [*await _lines_of(older), *lines]

    async def _write(self, journal: Journal, entries: Sequence[Entry], change: SessionChange) -> None:
        await journal.write(entries, change)
        if change.extraction is not None:
            self._on_notes()

    async def _summarised(self, order: CompactionOrder, gone: Sequence[Line], previous: str) -> SummaryResult:
        settings = order.settings
        gone = newest(gone, max(order.division.window * _SUMMED, _LEAST_SUMMED))
        asked = await run_off_loop(
            gone,
            lambda: wanted(
                gone,
                previous,
                tokens=order.division.summary,
                characters=settings.max_summary,
                focus=order.focus,
                strict=settings.identifiers,
            ),
        )
        if order.engine is not None and (text := await order.engine(asked)):
            return SummaryResult(text, "engine")
        ask = order.ask if settings.timeout_seconds else None
        return await Summariser(ask, order.model, order.division.window).write(asked)


async def _lines_of(entries: Sequence[Entry | Broken]) -> list[Line]:
    said = (entry for entry in entries if isinstance(entry, MessageEntry))
    return await run_off_loop_if_many(entries, lambda: [Line(entry.id, entry.message) for entry in said])


def _marks(view: View, cut: int, order: CompactionOrder) -> dict[str, object]:
    """What must be known later about cut lines: their outside sources, and runs that were cut in the middle."""
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
