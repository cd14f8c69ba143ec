"""A piece of a transcript, short enough for another agent to read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolResult, UserMessage
from palinurus.gateway.mcp_server.visit import Arguments, Shown
from palinurus.operations.sessions import Transcript
from palinurus.sessions.transcript import CompactionEntry, Entry, MessageEntry, ResetEntry

ALL_CHARACTERS = 100_000  # of one answer
LONGEST, SHORTEST = 8_000, 500  # of one message in it, as many are asked for


class ReadMessages(Arguments, frozen=True):
    session_key: Annotated[str, Meta(description="the conversation, as conversations_list tells it")]
    limit: Annotated[int, Meta(ge=1, le=200, description="so many entries of the transcript")] = 30
    skip: Annotated[int, Meta(ge=0, le=100_000, description="leave out so many of the newest entries")] = 0


class SaidMessage(Shown, frozen=True):
    id: str
    at: str
    role: str
    text: str = ""
    calls: tuple[str, ...] = ()  # tools that were called
    tool: str = ""  # whose result it is
    origin: str = ""  # who is behind the words, where it is not the owner or the agent
    error: str = ""


class Said(Shown, frozen=True):
    session_key: str
    messages: tuple[SaidMessage, ...]  # oldest first
    older: bool = False  # whether there is more before them


def said(transcript: Transcript, *, limit: int, skip: int) -> Said:
    """Of the last entries the window that was asked for, as far as they are words."""
    entries = transcript.entries[: max(len(transcript.entries) - skip, 0)][-limit:]
    room = max(SHORTEST, min(LONGEST, ALL_CHARACTERS // max(len(entries), 1)))
    shown = tuple(message for entry in entries if (message := _shown(entry, room)) is not None)
    return Said(transcript.session.key, shown, transcript.session.entry_count > limit + skip)


def _shown(entry: Entry, room: int) -> SaidMessage | None:
    match entry:
        case MessageEntry():
            return _message(entry, entry.message, room)
        case CompactionEntry():
            return SaidMessage(entry.id, entry.timestamp, "summary", _clipped(entry.summary, room))
        case ResetEntry():
            return SaidMessage(entry.id, entry.timestamp, "reset", entry.reason)
        case _:
            return None


def _message(entry: MessageEntry, message: Message, room: int) -> SaidMessage:
    text = _clipped(message.text, room)
    match message:
        case UserMessage():
            return SaidMessage(entry.id, entry.timestamp, "user", text, origin=_origin(message.origin))
        case AssistantMessage():
            calls = tuple(call.name for call in message.calls)
            return SaidMessage(entry.id, entry.timestamp, "assistant", text, calls, error=message.error_message or "")
        case ToolResult():
            origin = _origin(message.origin)
            return SaidMessage(entry.id, entry.timestamp, "tool", text, tool=message.tool_name, origin=origin)


def _origin(origin: Origin) -> str:
    return "" if origin == Origin.OWNER else str(origin)


def _clipped(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]}\n[… {len(text) - room:,} more characters …]"
