"""The transcript: typed entries in an append-only tree, in OpenClaw's JSON form.

An entry is a message, a change of model, a reset, a compaction. Each has an id and the id of its parent; nothing is
ever rewritten. `decode_row` turns a stored row into an entry and never raises: an unreadable row becomes a `Broken`
entry, which costs a line of context and not the session (promise 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.messages import AssistantMessage, Image, Message, Origin, Text, ToolResult
from palinurus.sessions.older import todays_form

VERSION = 3  # of the JSON form: OpenClaw's last version that is plain lines
CHOSEN_MODEL, CHOSEN_THINKING = "-model", "-thinking"  # suffix of the ids of model changes made here by a person
SENT = "-sent-"  # in the id of a message sent from another session: it is not an answer


class _Entry(Struct, frozen=True, tag_field="type", rename="camel", omit_defaults=True, gc=False):
    id: str
    timestamp: str  # ISO 8601, UTC
    parent_id: str | None = None


class SessionHeader(_Entry, frozen=True, tag="session"):
    version: int = VERSION
    cwd: str = ""


class MessageEntry(_Entry, frozen=True, tag="message", kw_only=True):
    message: Message


class CompactionEntry(_Entry, frozen=True, tag="compaction", kw_only=True):
    summary: str
    first_kept_entry_id: str
    tokens_before: int = 0
    details: dict[str, Any] | None = None


class BranchSummaryEntry(_Entry, frozen=True, tag="branch_summary", kw_only=True):
    from_id: str
    summary: str


class CustomEntry(_Entry, frozen=True, tag="custom", kw_only=True):
    """State of ours that no model reads."""

    custom_type: str
    data: Any = None


class CustomMessageEntry(_Entry, frozen=True, tag="custom_message", kw_only=True):
    """Text of ours that the model reads as a user message."""

    custom_type: str
    content: str | tuple[Text | Image, ...]
    display: bool = False
    details: dict[str, Any] | None = None


class ModelChange(_Entry, frozen=True, tag="model_change", kw_only=True):
    provider: str
    model_id: str
    used: bool = False  # not chosen by a person: another home recorded the model it used


class ThinkingLevelChange(_Entry, frozen=True, tag="thinking_level_change", kw_only=True):
    thinking_level: str
    used: bool = False


class LabelEntry(_Entry, frozen=True, tag="label", kw_only=True):
    target_id: str
    label: str | None = None


class SessionInfo(_Entry, frozen=True, tag="session_info", kw_only=True):
    name: str


class ResetEntry(_Entry, frozen=True, tag="reset", kw_only=True):
    """Entries before it stay stored and are no longer read."""

    reason: str = ""
    first_kept_entry_id: str | None = None


Entry = (
    SessionHeader
    | MessageEntry
    | CompactionEntry
    | BranchSummaryEntry
    | CustomEntry
    | CustomMessageEntry
    | ModelChange
    | ThinkingLevelChange
    | LabelEntry
    | SessionInfo
    | ResetEntry
)


class Broken(Struct, frozen=True):
    """A stored row that cannot be read as an entry: it stays stored and is not sent to the model."""

    id: str
    parent_id: str | None
    reason: str


class Row(Struct, frozen=True, gc=False):
    """An entry as stored: `payload` is the JSON object byte for byte.

    `speaker` is set for imported rows: the origin of user messages that do not state one.
    """

    id: str
    parent_id: str | None
    payload: str
    speaker: Origin | None = None


_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_encoder = msgspec.json.Encoder()


def encode_entry(entry: Entry) -> str:
    return _encoder.encode(entry).decode()


def decode_row(row: Row) -> Entry | Broken:
    try:
        entry = _decoder.decode(row.payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:  # ValidationError is a DecodeError
        older = _read_older(row)
        if older is None:
            return Broken(row.id, row.parent_id, str(error))
        entry = older
    return entry if row.speaker is None else _as_told(entry, row.speaker)


def _read_older(row: Row) -> Entry | None:
    """The same for rows that were imported byte for byte."""
    form = todays_form(row.payload, row.id, row.parent_id)
    try:
        entry: Entry | None = msgspec.convert(form, Entry) if form is not None else None
    except (msgspec.ValidationError, RecursionError):
        entry = None
    return entry


def _as_told(entry: Entry, speaker: Origin) -> Entry:
    """Adds the origin that the other home did not record (promise 18): its tools may have read outside text.

    OpenClaw writes a change of model whenever it uses another one, and stores choices in the session's row.
    """
    if isinstance(entry, ModelChange | ThinkingLevelChange):
        ours = entry.id.endswith((CHOSEN_MODEL, CHOSEN_THINKING))  # it was exported from here and imported again
        return entry if ours else msgspec.structs.replace(entry, used=True)
    if isinstance(entry, CustomMessageEntry | CompactionEntry):  # made there, from unknown sources
        return msgspec.structs.replace(entry, details={"origin": str(Origin.OUTSIDE)})
    if not isinstance(entry, MessageEntry) or isinstance(entry.message, AssistantMessage):
        return entry
    origin = Origin.OUTSIDE if isinstance(entry.message, ToolResult) else speaker
    if entry.message.origin in (origin, Origin.OUTSIDE) or origin == Origin.OWNER:
        return entry
    return msgspec.structs.replace(entry, message=msgspec.structs.replace(entry.message, origin=origin))


def is_straight(entries: Sequence[Entry | Broken | Row]) -> bool:
    """Whether each entry follows the one before it."""
    return all(later.parent_id == entry.id for entry, later in pairwise(entries))


def branch(entries: Sequence[Entry | Broken]) -> list[Entry | Broken]:
    """The path from the root to the last entry.

    A parent that does not exist is replaced by the entry before: a damaged link may cost order, never history.
    """
    if is_straight(entries):
        return list(entries)
    position = {entry.id: index for index, entry in enumerate(entries)}
    path: list[Entry | Broken] = []
    index = len(entries) - 1
    while index >= 0:
        entry = entries[index]
        path.append(entry)
        parent = position.get(entry.parent_id) if entry.parent_id is not None else None
        if entry.parent_id is None and index > 0:
            parent = index - 1  # a second root: a line of an old file without a link
        # A link that does not point backwards would make the walk endless.
        index = parent if parent is not None and parent < index else index - 1
    path.reverse()
    return path


def timestamp(ms: int) -> str:
    """The time format of entries: UTC with milliseconds."""
    moment = datetime.fromtimestamp(ms // 1000, UTC).isoformat()
    return f"{moment[:19]}.{ms % 1000:03d}Z"


def messages_of(entries: Iterable[Entry | Broken]) -> list[Message]:
    return [entry.message for entry in entries if isinstance(entry, MessageEntry)]


FORGOTTEN = "palinurus:forgotten"
"""The custom type of the entry that is added after words were forgotten. Entries keep their position, id and parent,
only the words are removed; a process that has cached the transcript reads it again.
"""


def is_forgetting(entry: Entry | Broken) -> bool:
    return isinstance(entry, CustomEntry) and entry.custom_type == FORGOTTEN
