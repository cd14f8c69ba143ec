"""Writes entries into one session: links each to the one before, stamps it, redacts secrets, and stores it.

Every entry goes through here, so what a model is sent later is what was stored: already redacted (promise 19).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.messages import Message, map_strings
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import (
    CompactionEntry,
    CustomEntry,
    Entry,
    MessageEntry,
    ModelChange,
    ResetEntry,
    ThinkingLevelChange,
    timestamp,
)

Redact = Callable[[str], str]
"""Returns the text without secrets, or the same text if there is none. Must not raise."""

E = TypeVar("E", bound=Struct)


class Journal(Struct, eq=False):
    _store: SessionStore
    session: Session
    _tail: str | None
    _clock: Clock
    _new_id: NewId
    redact: Redact
    unused: bool = False  # see SessionChange

    def clean(self, message: E) -> E:
        """The message as it will be stored: redacted."""
        return redacted(message, self.redact)

    def message(self, message: Message, *, entry_id: str = "") -> MessageEntry:
        """An entry for this message. `entry_id` makes writing it twice harmless."""
        return MessageEntry(message=self.clean(message), **self._place(entry_id))

    def custom(self, custom_type: str, data: Any = None) -> CustomEntry:
        return CustomEntry(custom_type=custom_type, data=data, **self._place())

    def reset(self, reason: str, *, entry_id: str = "") -> ResetEntry:
        return ResetEntry(reason=reason, **self._place(entry_id))

    def compaction(
        self, summary: str, first_kept: str, tokens_before: int, details: dict[str, Any], *, entry_id: str = ""
    ) -> CompactionEntry:
        place = {"first_kept_entry_id": first_kept, **self._place(entry_id)}
        return self.clean(CompactionEntry(summary=summary, tokens_before=tokens_before, details=details, **place))

    def model_change(self, provider: str, model: str, *, entry_id: str = "") -> ModelChange:
        return ModelChange(provider=provider, model_id=model, **self._place(entry_id))

    def thinking_change(self, level: str, *, entry_id: str = "") -> ThinkingLevelChange:
        return ThinkingLevelChange(thinking_level=level, **self._place(entry_id))

    async def write(self, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> None:
        """Stores entries in this order. When it returns they are on the disk."""
        change = msgspec.structs.replace(change, unused=True) if self.unused else change
        self.session = await self._store.append(self.session.id, entries, change)

    def _place(self, entry_id: str = "") -> dict[str, Any]:
        parent, self._tail = self._tail, entry_id or self._new_id()
        return {"id": self._tail, "parent_id": parent, "timestamp": timestamp(self._clock.now_ms())}


def redacted(record: E, redact: Redact) -> E:
    """The record with secrets redacted in every string; the same object if it holds none."""
    try:
        text = msgspec.json.encode(record).decode()
    except UnicodeEncodeError:
        record = msgspec.convert(map_strings(msgspec.to_builtins(record), _whole_characters), type(record))
        text = msgspec.json.encode(record).decode()
    if redact(text) == text:
        return record
    return msgspec.convert(map_strings(msgspec.to_builtins(record), redact), type(record))


def _whole_characters(text: str) -> str:
    """Replaces lone surrogates, as a cut JSON escape leaves them: they cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
