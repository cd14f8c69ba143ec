"""The view of a transcript: a fold over its entries since the last reset."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.context.epoch import BOOTSTRAPPED, Epoch, PrunedForm, project, read_epoch, read_pruning
from palinurus.domain.messages import (
    UNKNOWN,
    AssistantMessage,
    Message,
    Origin,
    OutsideText,
    UserMessage,
    digest_of,
    text_of,
    texts_in,
)
from palinurus.sessions.older import CALLS_IN_A_ROW
from palinurus.sessions.reader import PASSED
from palinurus.sessions.transcript import (
    BranchSummaryEntry,
    Broken,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    ModelChange,
    ResetEntry,
    ThinkingLevelChange,
    branch,
    is_forgetting,
)

OUTSIDE = "outside"  # in the details of a compaction: the outside texts in its summary
AT_ONCE = 1_000  # entries that are read on the event loop; more are read in a thread (promise 10)


class Line(Struct, frozen=True, gc=False):
    """A message with the id of its entry."""

    id: str
    message: Message


class View(Struct, frozen=True):
    """The part of a session that a request is made of."""

    lines: tuple[Line, ...] = ()
    epoch: Epoch | None = None
    epoch_start: int = 0  # index into lines: earlier ones are older than the epoch
    shown_files: dict[str, str] = {}  # digests of workspace files as the model has last read them, in head or notes
    bootstrapped: bool = False  # a turn was answered with the full head
    model: str = ""  # chosen in this session with a model_change, "provider/model"
    chose_model: bool = False  # whether there was such a change, also back to the agent's default
    thinking: str = ""
    chose_thinking: bool = False
    reason: str = "new"  # why the next epoch would start, if there is none
    stored_ids: Container[str] = frozenset()  # ids of all messages, including those that are no longer read
    broken: int = 0
    unread: int = 0  # older messages after the last cut that were not decoded: see sessions/reader.py
    read_from: int = 0  # index into lines: from here on none is left out
    tail: str | None = None  # the parent of the next entry
    cut_runs: frozenset[str] = frozenset()  # runs of a turn that the last compaction has cut in the middle
    answered: str = ""  # time of the last model answer, from its entry
    pruned: dict[str, PrunedForm] = {}  # shortened tool results; `lines` already has them shortened
    outside: dict[str, tuple[OutsideText, ...]] = {}  # outside texts of lines, by line id

    begun: str = ""  # the reset at the start of the session

    @property
    def outside_texts(self) -> tuple[OutsideText, ...]:
        return tuple(dict.fromkeys(text for texts in self.outside.values() for text in texts))


def fold(entries: Sequence[Entry | Broken]) -> View:
    """Reads a whole transcript, oldest entry first."""
    path = branch(entries)
    view = _Fold()
    for entry in path:
        view.add(entry)
    return view.done(path[-1].id if path else None)


class KnownIds:
    """A snapshot of a growing collection of ids: a copy would cost more each turn."""

    def __init__(self, ids: dict[str, int]) -> None:
        self._ids = ids
        self._count = len(ids)

    def __contains__(self, entry_id: object) -> bool:
        return isinstance(entry_id, str) and self._ids.get(entry_id, self._count) < self._count

    def __eq__(self, other: object) -> bool:
        known = other._known() if isinstance(other, KnownIds) else other
        return self._known() == known

    __hash__ = None  # type: ignore[assignment]  # it is compared in tests, and never a key

    def _known(self) -> frozenset[str]:
        return frozenset(entry_id for entry_id, at in self._ids.items() if at < self._count)


class Views:
    """Views of growing sessions: of a known transcript only the new entries are read."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: OrderedDict[str, tuple[_Fold, int, str]] = OrderedDict()  # number of entries read, and the last id

    async def read(self, session_id: str, entries: Sequence[Entry | Broken]) -> View:
        """The same as `view`, in a thread if there is much to read."""
        _, count, last = self._known.get(session_id, (None, 0, ""))
        known = count if count and _goes_on(entries, count, last) else 0
        if len(entries) - known <= AT_ONCE:
            return self.view(session_id, entries)
        return await asyncio.to_thread(self.view, session_id, list(entries))  # a copy: the list may grow meanwhile

    def forget(self, session_id: str) -> None:
        """Drops a view after its entries were decoded again with more text."""
        self._known.pop(session_id, None)

    def view(self, session_id: str, entries: Sequence[Entry | Broken]) -> View:
        read, count, last = self._known.pop(session_id, (_Fold(), 0, ""))
        if not count or not _goes_on(entries, count, last):
            read, count = _Fold(), 0
        for entry in entries[count:] if count else branch(entries):
            read.add(entry)
        if entries:
            self._known[session_id] = read, len(entries), entries[-1].id
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return read.done(entries[-1].id if entries else None)


def _goes_on(entries: Sequence[Entry | Broken], count: int, last: str) -> bool:
    """Whether the new entries only continue the known ones; a branch or another transcript is read from its root."""
    if len(entries) < count or entries[count - 1].id != last:
        return False
    new = range(count, len(entries))
    return all(entries[at].parent_id == entries[at - 1].id and not is_forgetting(entries[at]) for at in new)


class _Fold:
    def __init__(self) -> None:
        self.view = View()  # fields that seldom change are set here at once, the others by `done`
        self.lines: list[Line] = []
        self.shown_files: dict[str, str] = {}
        self.stored_ids: dict[str, int] = {}  # in order
        self.broken = 0
        self.unread = self.read_from = 0
        self.order: dict[str, int] = {}  # of all entries, also those that are no lines
        self.summaries: set[str] = set()
        self.pruned: dict[str, PrunedForm] = {}
        self.answered = ""
        self.outside: dict[str, tuple[OutsideText, ...]] = {}

    def _set(self, **fields: Any) -> None:
        self.view = msgspec.structs.replace(self.view, **fields)

    def add(self, entry: Entry | Broken) -> None:
        self.order[entry.id] = len(self.order)
        match entry:
            case MessageEntry():
                self._message(entry)
            case CustomEntry():
                self._custom(entry)
            case ResetEntry():
                self._keep(entry.first_kept_entry_id, None, "reset")
                self._set(cut_runs=frozenset(), begun=entry.id)
            case CompactionEntry():
                self._compaction(entry)
            case BranchSummaryEntry() | CustomMessageEntry():
                self._foreign(entry)
            case ModelChange() | ThinkingLevelChange():
                self._choice(entry)
            case Broken():
                self.broken += 1
            case _:  # headers, labels and names are not for the model
                pass

    def _foreign(self, entry: BranchSummaryEntry | CustomMessageEntry) -> None:
        """Entries of other programs. An abandoned branch is not read, so its summary is from unknown text."""
        if isinstance(entry, BranchSummaryEntry):
            self.lines.append(_summary(entry.id, entry.summary, Origin.OUTSIDE))
            self.outside[entry.id] = (OutsideText(digest_of(entry.summary)),)
            return
        texts = _carried(entry.details or {}, text_of(entry.content))
        origin = Origin.OUTSIDE if texts else Origin.SYSTEM
        self.lines.append(Line(entry.id, UserMessage(entry.content, origin=origin)))
        if texts:
            self.outside[entry.id] = texts

    def _choice(self, entry: ModelChange | ThinkingLevelChange) -> None:
        if entry.used:
            return  # a model that another home used is not a choice here
        if isinstance(entry, ThinkingLevelChange):
            self._set(chose_thinking=True, thinking=entry.thinking_level)
        else:
            model = f"{entry.provider}/{entry.model_id}" if entry.model_id else ""  # empty: the agent's default
            self._set(chose_model=True, model=model)

    def _message(self, entry: MessageEntry) -> None:
        if entry.message is PASSED:
            self.stored_ids.setdefault(entry.id, len(self.stored_ids))
            self.unread, self.read_from = self.unread + 1, len(self.lines)
            return
        line = Line(entry.id, entry.message)
        met = len(self.lines) > self.read_from  # the line before it precedes it in the session too
        if met and (more := _bare_call(line)) and (calls := _bare_call(before := self.lines[-1])):
            self.lines[-1] = Line(before.id, msgspec.structs.replace(calls, content=(*calls.content, *more.content)))
        else:
            self.lines.append(line)
        self.stored_ids.setdefault(entry.id, len(self.stored_ids))
        if texts := texts_in(entry.message):
            self.outside[entry.id] = texts
        if isinstance(entry.message, AssistantMessage):
            self.answered = entry.timestamp
        if isinstance(entry.message, UserMessage):
            for run_id in entry.message.also:
                self.stored_ids.setdefault(run_id, len(self.stored_ids))
            self.shown_files |= {note.name: note.digest for note in entry.message.context if note.kind == "file"}

    def _custom(self, entry: CustomEntry) -> None:
        if entry.custom_type == BOOTSTRAPPED:
            self._set(bootstrapped=True)
        elif is_forgetting(entry):
            self._end_epoch("forget" if self.view.epoch else self.view.reason)
        elif epoch := read_epoch(entry):
            self._set(epoch=epoch, epoch_start=len(self.lines), bootstrapped=False)
            self.shown_files = dict(epoch.files)
        elif decided := read_pruning(entry):
            self.pruned |= decided
            self._end_epoch("pruning" if self.view.epoch else self.view.reason)

    def _compaction(self, entry: CompactionEntry) -> None:
        details = entry.details or {}
        texts = _carried(details, entry.summary)
        origin = Origin.OUTSIDE if texts else Origin.SYSTEM
        self._keep(entry.first_kept_entry_id, _summary(entry.id, entry.summary, origin), "compaction")
        if texts:
            self.outside = {entry.id: texts, **self.outside}
        self.summaries.add(entry.id)
        runs = details.get("runs")
        self._set(cut_runs=frozenset(map(str, runs)) if isinstance(runs, list) else frozenset())

    def _keep(self, first_kept: str | None, opening: Line | None, reason: str) -> None:
        """Drops everything before `first_kept`; an unknown id keeps nothing."""
        target = self.order.get(first_kept or "", len(self.order))
        kept = [line for line in self.lines if self.order[line.id] >= target and line.id not in self.summaries]
        self.lines = ([opening] if opening else []) + kept
        self.outside = {line.id: self.outside[line.id] for line in kept if line.id in self.outside}
        self.unread = self.read_from = 0
        self._end_epoch(reason)

    def _end_epoch(self, reason: str) -> None:
        self._set(epoch=None, epoch_start=0, bootstrapped=False, reason=reason)

    def _lines(self) -> tuple[Line, ...]:
        if not self.pruned:
            return tuple(self.lines)
        return tuple(
            Line(line.id, project(line.message, form)) if (form := self.pruned.get(line.id)) else line
            for line in self.lines
        )

    def _pruned_lines(self) -> dict[str, PrunedForm]:
        return {line.id: self.pruned[line.id] for line in self.lines if line.id in self.pruned}

    def done(self, tail: str | None) -> View:
        return msgspec.structs.replace(
            self.view,
            lines=self._lines(),
            shown_files=dict(self.shown_files),
            stored_ids=KnownIds(self.stored_ids),
            broken=self.broken,
            unread=self.unread,
            read_from=self.read_from,
            tail=tail,
            answered=self.answered,
            pruned=self._pruned_lines() if self.pruned else {},
            outside=dict(self.outside),
        )


def _carried(details: Mapping[str, Any], text: str) -> tuple[OutsideText, ...]:
    """The outside texts from which our text was made; if that is not stored, it counts as outside itself."""
    try:
        texts = msgspec.convert(details.get(OUTSIDE, []), tuple[OutsideText, ...])
    except msgspec.ValidationError:
        texts = (UNKNOWN,)
    return texts or ((OutsideText(digest_of(text)),) if details.get("origin") == Origin.OUTSIDE else ())


def _bare_call(line: Line) -> AssistantMessage | None:
    """A call that another program wrote on a separate line. Several in a row are one reply: their results follow."""
    message = line.message
    first = message.content[0] if isinstance(message, AssistantMessage) and message.content else None
    if not isinstance(message, AssistantMessage) or len(message.content) >= CALLS_IN_A_ROW:
        return None
    return message if getattr(first, "id", "") == line.id else None


_SUMMARY = "Summary of the conversation so far:\n\n<summary>\n"
_END = "\n</summary>"


def _summary(entry_id: str, text: str, origin: Origin = Origin.SYSTEM) -> Line:
    return Line(entry_id, UserMessage(f"{_SUMMARY}{text}{_END}", origin=origin))


def summary_of(line: Line) -> str | None:
    """The text of a summary; None for any other line."""
    if not isinstance(line.message, UserMessage) or line.message.timestamp:
        return None
    words = line.message.text
    return words[len(_SUMMARY) : -len(_END)] if words.startswith(_SUMMARY) and words.endswith(_END) else None


def last_usage(view: View) -> tuple[int, int]:
    """Tokens in the window of the last counted call of this epoch, and the index of the line after its reply."""
    if view.epoch is None and view.reason in ("compaction", "pruning"):
        return 0, 0  # it was counted with more in the window
    for index in range(len(view.lines) - 1, view.epoch_start - 1, -1):
        message = view.lines[index].message
        if isinstance(message, AssistantMessage) and message.usage.total:
            return message.usage.total, index + 1
    return 0, 0
