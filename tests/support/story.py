"""What clients sent, and transcripts as the witness has read them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from palinurus.context.epoch import PRUNED, Epoch, read_epoch
from palinurus.domain.messages import AssistantMessage, Message, ToolResult, UserMessage
from palinurus.sessions.transcript import (
    Broken,
    CompactionEntry,
    CustomEntry,
    Entry,
    MessageEntry,
    ResetEntry,
    Row,
    decode_row,
)

KEYS = (
    "agent:main:main",
    "agent:main:direct:ann",
    "agent:main:telegram:group:g1",
    "agent:main:slack:channel:c1:thread:9",
    "agent:main:subagent:5a1b",
)
LABEL = re.compile(r"#(\d+)#")
"""The number of a letter, in the words of each: so that they are found again wherever they turn up."""


class Letter:
    """One message of a client, and what the client was told about it."""

    def __init__(self, number: int, key: str, text: str, command: str = "") -> None:
        self.number = number
        self.key = key
        self.text = text
        self.command = command  # "", "new", "new with words" or "compact"
        self.exact = f"KEY-{number:04d}-q7"  # an identifier in its words, to be found again
        self.saved = False  # the identifier is in notes
        self.idempotency_key = f"letter-{number}"
        self.first_sent = 0  # a moment of the witness's own count
        self.acknowledged = 0  # 0: never
        self.run_id = ""
        self.words_kept = False
        self.set_aside = False  # told of a failure of the disk while its row stayed pending: it may come late

    @property
    def is_said(self) -> bool:
        """Whether it has words for the transcript."""
        return self.command not in ("new", "compact")


class Story:
    """A transcript as read so far."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.entries: list[Entry | Broken] = []
        self.ids: dict[str, int] = {}
        self.labels: list[int] = []
        self.epochs: list[tuple[str, Epoch, str]] = []  # entry id, epoch, and what was cut since the last one, and how
        self.cuts = 0  # compactions and resets
        self.summaries: list[str] = []
        self._cut = ""

    def read(self, rows: Iterable[Row]) -> list[int]:
        """Take further rows in; the labels of the letters that they hold."""
        known = len(self.labels)
        for row in rows:
            entry = decode_row(row)
            self.ids[row.id] = len(self.rows)
            self.rows.append(row)
            self.entries.append(entry)
            match entry:
                case MessageEntry():
                    self.labels += labels(entry.message)
                    self.ids |= dict.fromkeys(_also(entry.message), self.ids[row.id])
                case ResetEntry():
                    self._cut = "reset"
                    self.cuts += 1
                case CompactionEntry():
                    self._cut = "compaction"
                    self.cuts += 1
                    self.summaries.append(entry.summary)
                case CustomEntry() if entry.custom_type == PRUNED:
                    self._cut = self._cut or "pruning"
                case CustomEntry() if epoch := read_epoch(entry):
                    self.epochs.append((entry.id, epoch, self._cut))
                    self._cut = ""
        return self.labels[known:]

    def answer_to(self, run_id: str) -> AssistantMessage | None:
        """The last reply of the turn that heard this run; who speaks behind a tool result speaks into a turn."""
        reply: AssistantMessage | None = None
        before: Message | None = None
        for entry in self.entries[self.ids[run_id] + 1 :]:
            if isinstance(entry, MessageEntry):
                if isinstance(entry.message, UserMessage) and not isinstance(before, ToolResult):
                    break
                if isinstance(entry.message, AssistantMessage):
                    reply = entry.message
                before = entry.message
        return reply

    def results(self) -> list[ToolResult]:
        messages = [entry.message for entry in self.entries if isinstance(entry, MessageEntry)]
        return [message for message in messages if isinstance(message, ToolResult)]


def _also(message: Message) -> tuple[str, ...]:
    return message.also if isinstance(message, UserMessage) else ()


def labels(message: Message) -> list[int]:
    """Which letters this message holds. Only people send letters; what a model says is not looked at."""
    return [int(found) for found in LABEL.findall(message.text)] if isinstance(message, UserMessage) else []
