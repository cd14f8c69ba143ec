"""Rendering shared by all wires: notes, call ids, tool names, results, and the bytes of a body.

Pure and deterministic: the same messages give the same bytes, and a message is rendered only from itself and the
messages before it, so that a longer conversation starts with the same elements as the shorter one (promise 20).
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from palinurus.config.secrets import MARKER
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Image,
    Text,
    Thinking,
    ToolResult,
    UserMessage,
    encodable,
)

Part = dict[str, Any]
LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
NO_OUTPUT = "(no output)"
NOTHING_SAID = "(empty message)"
NOT_SHOWN = "(earlier messages are not shown)"
EFFORTS = {level: level for level in ("minimal", "low", "medium", "high")} | dict.fromkeys(
    ("xhigh", "max", "ultra"), "high"
)
"""Thinking level -> effort, on OpenAI's wires. `off` and `adaptive` send nothing: the model's own default applies."""


def render_note(note: ContextNote) -> str:
    """Renders a note. A note cannot close its own fence."""
    if note.kind == "time":
        return f"[time: {note.text}]"
    name = f' name="{html.escape(note.name)}"' if note.name else ""
    inside = note.text.replace("</context", "<\\/context")
    return f'<context kind="{html.escape(note.kind)}"{name}>\n{inside}\n</context>'


def user_content(message: UserMessage) -> str | Sequence[Text | Image]:
    """The notes before the sender's text: one text, or blocks if there is an image."""
    notes = "\n".join([render_note(note) for note in message.context])
    if not isinstance(message.content, str):
        for block in message.content:
            if isinstance(block, Image):
                return (*((Text(notes),) if notes else ()), *message.content)
    text = message.text
    return f"{notes}\n{text}" if notes and text else notes or text


def merge_roles(rendered: Iterable[tuple[str, list[Part]]], field: str, text: Callable[[str], Part]) -> list[Part]:
    """Merges consecutive messages of one role, by their `field` lists: two wires want all results of a reply in one
    message.

    The first message is the user's, as these wires require.
    """
    messages: list[Part] = []
    for role, parts in rendered:
        if not messages and role != "user":
            messages.append({"role": "user", field: [text(NOT_SHOWN)]})
        if messages and messages[-1]["role"] == role:
            messages[-1][field].extend(parts)
        else:
            messages.append({"role": role, field: parts})
    return messages or [{"role": "user", field: [text(NOTHING_SAID)]}]


def result_text(result: ToolResult) -> str:
    """A result as text, with its images by name. Empty if the tool returned nothing."""
    if isinstance(result.content, str):
        return result.content
    return "\n".join(
        block.text if isinstance(block, Text) else f"[image: {block.mime_type}]" for block in result.content
    )


def tool_name(name: str) -> str:
    """A name that every wire accepts; a model may have called a tool that does not exist."""
    return ILLEGAL_CHARACTER.sub("_", name)[:64] or "unknown"


def written_by(message: AssistantMessage, *, wire: str, provider: str, model: str) -> bool:
    """Whether this model wrote it: signatures are invalid for any other."""
    return (message.api, message.provider, message.model) == (wire, provider, model)


def is_whole(thought: Thinking) -> bool:
    """Whether thinking can be sent back to its model. If a secret was redacted, its signature is invalid."""
    return bool(thought.thinking_signature) and MARKER not in f"{thought.thinking}{thought.thinking_signature}"


class CallIds:
    """Valid ids for tool calls, unique in one request, and the same ones for their results."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, list[str]] = {}  # raw id -> valid ids without a result yet
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
    """JSON of any stored message. A lone surrogate costs a character, not the session."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(value))
