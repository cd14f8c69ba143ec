"""A request as the bytes of the OpenAI chat-completions wire.

Pure and deterministic: the same request gives the same bytes, and a message is rendered from nothing but itself and the
messages before it, so that a longer conversation starts with the very elements of the shorter one (promise 20).

Thinking is not replayed: this wire has no place for it. Images that a tool returned become a placeholder line, because
the wire takes images from users only. Tool call ids that the wire would refuse are replaced, and the results with them.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from palinurus.domain.messages import AssistantMessage, ContextNote, Image, Message, Text, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ModelRequest

LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
EFFORTS = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high"} | dict.fromkeys(
    ("xhigh", "max", "ultra"), "high"
)
"""Thinking level -> `reasoning_effort`. `off` and `adaptive` send nothing: the model's own default holds."""


def to_openai(request: ModelRequest, *, max_tokens_field: str = "max_tokens") -> bytes:
    """The JSON body of a streaming request. Never raises for what a stored message can hold."""
    body: dict[str, Any] = {"model": request.model, "messages": list(_messages(request))}
    if request.head.tools:
        body["tools"] = [_tool(spec) for spec in request.head.tools]
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    if request.max_tokens is not None:
        body[max_tokens_field] = request.max_tokens
    if effort := EFFORTS.get(request.thinking):
        body["reasoning_effort"] = effort
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half a surrogate pair in an old entry costs a character, not the session
        return msgspec.json.encode(_encodable(body))


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


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.head.system:
        yield {"role": "system", "content": request.head.system}
    ids = CallIds()
    for message in request.messages:
        if rendered := _message(message, ids):
            yield rendered


def _message(message: Message, ids: CallIds) -> dict[str, Any] | None:
    if isinstance(message, UserMessage):
        return {"role": "user", "content": _user_content(message)}
    if isinstance(message, AssistantMessage):
        return _assistant(message, ids)
    return {"role": "tool", "tool_call_id": ids.of_result(message.tool_call_id), "content": _result_text(message)}


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    notes = "\n".join(render_note(note) for note in message.context)
    if isinstance(message.content, str):
        return _joined(notes, message.content)
    if not any(isinstance(block, Image) for block in message.content):
        return _joined(notes, message.text)
    return [*([{"type": "text", "text": notes}] if notes else []), *(_part(block) for block in message.content)]


def render_note(note: ContextNote) -> str:
    """What rides beside the sender's words. A note cannot end its own fence."""
    if note.kind == "time":
        return f"[time: {note.text}]"
    name = f' name="{html.escape(note.name)}"' if note.name else ""
    inside = note.text.replace("</context", "<\\/context")
    return f'<context kind="{html.escape(note.kind)}"{name}>\n{inside}\n</context>'


def _part(block: Text | Image) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _assistant(message: AssistantMessage, ids: CallIds) -> dict[str, Any] | None:
    if not message.calls:
        # An empty assistant message says nothing and several servers refuse it.
        return {"role": "assistant", "content": message.text} if message.text else None
    calls = [
        {
            "id": ids.of_call(call.id),
            "type": "function",
            "function": {
                "name": ILLEGAL_CHARACTER.sub("_", call.name)[:64] or "unknown",
                "arguments": _arguments(call.arguments),
            },
        }
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _arguments(arguments: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(arguments)).decode()


def _result_text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        text = result.content
    else:
        text = "\n".join(
            block.text if isinstance(block, Text) else f"[image: {block.mime_type}]" for block in result.content
        )
    return f"ERROR: {text}" if result.is_error else text or "(no output)"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
    }


def _joined(notes: str, text: str) -> str:
    return f"{notes}\n{text}" if notes and text else notes or text


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
