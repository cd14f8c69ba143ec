"""What of a transcript is read: a fold over its entries from the last reset on."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from palinurus.context.epoch import BOOTSTRAPPED, Epoch, read_epoch
from palinurus.domain.messages import AssistantMessage, Message, Origin, UserMessage
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
)


class Line(Struct, frozen=True):
    """A message with the id of its entry."""

    id: str
    message: Message


class View(Struct, frozen=True):
    """The part of a session that a request is made of."""

    lines: tuple[Line, ...] = ()
    epoch: Epoch | None = None
    epoch_start: int = 0  # index into lines: what stood there before the epoch began
    told: dict[str, str] = {}  # workspace files as the model was last shown them, head and notes together
    bootstrapped: bool = False  # a turn was answered with the full head
    model: str = ""  # chosen in this session with a model_change, "provider/model"
    thinking: str = ""
    reason: str = "new"  # why the next epoch would start, if there is none
    said: frozenset[str] = frozenset()  # ids of all messages, those that are no longer read included
    broken: int = 0
    tail: str | None = None  # the entry that the next one is a child of


def fold(entries: Sequence[Entry | Broken]) -> View:
    """Read a whole transcript, oldest entry first."""
    path = branch(entries)
    view = _Fold()
    for entry in path:
        view.add(entry)
    return view.done(path[-1].id if path else None)


class _Fold:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.epoch: Epoch | None = None
        self.epoch_start = 0
        self.told: dict[str, str] = {}
        self.bootstrapped = False
        self.model = ""
        self.thinking = ""
        self.reason = "new"
        self.said: set[str] = set()
        self.broken = 0

    def add(self, entry: Entry | Broken) -> None:
        match entry:
            case MessageEntry():
                self._message(entry)
            case CustomEntry():
                self._custom(entry)
            case ResetEntry():
                self._keep(entry.first_kept_entry_id, None, "reset")
            case CompactionEntry():
                self._keep(entry.first_kept_entry_id, _summary(entry.id, entry.summary), "compaction")
            case BranchSummaryEntry():
                self.lines.append(_summary(entry.id, entry.summary))
            case CustomMessageEntry():
                self.lines.append(Line(entry.id, UserMessage(entry.content, origin=Origin.SYSTEM)))
            case ModelChange():
                self.model = f"{entry.provider}/{entry.model_id}" if entry.model_id else ""  # empty: the agent's own
            case ThinkingLevelChange():
                self.thinking = entry.thinking_level
            case Broken():
                self.broken += 1
            case _:  # headers, labels and names say nothing to the model
                pass

    def _message(self, entry: MessageEntry) -> None:
        self.lines.append(Line(entry.id, entry.message))
        self.said.add(entry.id)
        if isinstance(entry.message, UserMessage):
            self.said.update(entry.message.also)
            self.told |= {note.name: note.digest for note in entry.message.context if note.kind == "file"}

    def _custom(self, entry: CustomEntry) -> None:
        if entry.custom_type == BOOTSTRAPPED:
            self.bootstrapped = True
        elif epoch := read_epoch(entry):
            self.epoch, self.epoch_start = epoch, len(self.lines)
            self.told, self.bootstrapped = dict(epoch.files), False

    def _keep(self, first_kept: str | None, opening: Line | None, reason: str) -> None:
        """Nothing before `first_kept` is read any more; an id that is not there keeps nothing."""
        at = next((i for i, line in enumerate(self.lines) if line.id == first_kept), len(self.lines))
        self.lines = ([opening] if opening else []) + self.lines[at:]
        self.epoch, self.epoch_start, self.bootstrapped, self.reason = None, 0, False, reason

    def done(self, tail: str | None) -> View:
        return View(
            lines=tuple(self.lines),
            epoch=self.epoch,
            epoch_start=self.epoch_start,
            told=self.told,
            bootstrapped=self.bootstrapped,
            model=self.model,
            thinking=self.thinking,
            reason=self.reason,
            said=frozenset(self.said),
            broken=self.broken,
            tail=tail,
        )


def _summary(entry_id: str, text: str) -> Line:
    words = f"Summary of the conversation so far:\n\n<summary>\n{text}\n</summary>"
    return Line(entry_id, UserMessage(words, origin=Origin.SYSTEM))


def last_usage(view: View) -> tuple[int, int]:
    """Tokens that the last counted call had in its window, and the index of the line after its reply."""
    for index in range(len(view.lines) - 1, -1, -1):
        message = view.lines[index].message
        if isinstance(message, AssistantMessage) and message.usage.total:
            return message.usage.total, index + 1
    return 0, 0
