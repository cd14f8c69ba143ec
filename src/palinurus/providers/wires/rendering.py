"""What every wire renders alike: notes, call ids, tool names, results, and the bytes of a body.

Pure and deterministic: the same messages give the same bytes, and a message is rendered from nothing but itself and
the messages before it, so that a longer conversation starts with the very elements of the shorter one (promise 20).
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from palinurus.config.secrets import MARKER
from palinurus.domain.messages import AssistantMessage, ContextNote, Image, Text, Thinking, ToolResult, UserMessage

LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
NO_OUTPUT = "(no output)"
NOTHING_SAID = "(empty message)"
NOT_SHOWN = "(earlier messages are not shown)"


def render_note(note: ContextNote) -> str:
    """What rides beside the sender's words. A note cannot end its own fence."""
    if note.kind == "time":
        return f"[time: {note.text}]"
    name = f' name="{html.escape(note.name)}"' if note.name else ""
    inside = note.text.replace("</context", "<\\/context")
    return f'<context kind="{html.escape(note.kind)}"{name}>\n{inside}\n</context>'


def user_content(message: UserMessage) -> str | Sequence[Text | Image]:
    """The notes before the sender's words: one text, or blocks where there is a picture."""
    notes = "\n".join(render_note(note) for note in message.context)
    if isinstance(message.content, str) or not any(isinstance(block, Image) for block in message.content):
        text = message.text
        return f"{notes}\n{text}" if notes and text else notes or text
    return (*((Text(notes),) if notes else ()), *message.content)


def result_text(result: ToolResult) -> str:
    """A result in words, its images by name. Empty when the tool said nothing."""
    if isinstance(result.content, str):
        return result.content
    return "\n".join(
        block.text if isinstance(block, Text) else f"[image: {block.mime_type}]" for block in result.content
    )


def tool_name(name: str) -> str:
    """A name that every wire takes; a model may have called one that nobody has."""
    return ILLEGAL_CHARACTER.sub("_", name)[:64] or "unknown"


def written_by(message: AssistantMessage, *, wire: str, provider: str, model: str) -> bool:
    """Whether this very model said it: signatures mean nothing to any other."""
    return (message.api, message.provider, message.model) == (wire, provider, model)


def is_whole(thought: Thinking) -> bool:
    """Whether a thought can go back to its writer. Where a secret was taken out, its signature no longer holds."""
    return bool(thought.thinking_signature) and MARKER not in f"{thought.thinking}{thought.thinking_signature}"


class CallIds:
    """Legal ids for tool calls, no two alike in one request, and the same ones for their results."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, list[str]] = {}  # raw id -> legal ids whose result has not come yet
        self._last: dict[str, str] = {}

    def of_call(self, raw: str) -> str:
        legal, attempt = (raw if LEGAL_ID.fullmatch(raw) else _cleaned(raw, 0)), 0
        while legal in self._used:
            attempt += 1
            legal = _cleaned(raw, attempt)
        self._used.add(legal)
        self._open.setdefault(raw, []).append(legal)
        self._last[raw] = legal
        return legal

    def of_result(self, raw: str) -> str:
        waiting = self._open.get(raw)
        return waiting.pop(0) if waiting else self._last.get(raw) or self.of_call(raw)


def _cleaned(raw: str, attempt: int) -> str:
    digest = hashlib.sha256(f"{attempt}:{raw}".encode("utf-8", "replace")).hexdigest()[:12]
    return f"{ILLEGAL_CHARACTER.sub('_', raw)[:48]}_{digest}"


def as_json(value: Any) -> bytes:
    """JSON of whatever a stored message can hold. Half a surrogate pair costs a character, not the session."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
