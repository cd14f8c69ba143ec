"""Reads rows that other programs and earlier releases wrote as entries of today.

Imported transcripts are stored byte for byte. Most rows are valid entries; these are not: lines of the first version,
which have no ids, bare messages (`{"role": …, "content": …}`), a reply whose content is a plain string, a lone
surrogate. They are converted on each read, and never on the disk.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, encodable
from palinurus.sessions.others import others_form

ROLES = {"user": "user", "human": "user", "system": "user", "assistant": "assistant", "tool": "assistant",
         "tool_result": "toolResult", "toolResult": "toolResult"}  # fmt: skip
BLOCKS = {"user": ("text", "image"), "assistant": ("text", "thinking", "toolCall"), "toolResult": ("text", "image")}
CALL_IDS = ("toolCallId", "tool_call_id", "tool_use_id", "call_id")  # fields in which a result may name its call
ANSWERS = "-answers-"  # in the id of a bare result: between its own position and that of its call
CALLS_IN_A_ROW = 100  # bare calls that count as one reply; the limit bounds the work
STOPS = ("stop", "length", "toolUse", "error", "aborted")


def speaker_in(key: SessionKey) -> Origin:
    """The origin of user messages in an imported session. The other home did not record it, so where other people may
    have written (a group, a channel, a direct chat, a hook) all of them count as from outside.
    """
    return Origin.OWNER if key.is_private and key.kind != "direct" else Origin.OUTSIDE


def todays_form(payload: str, entry_id: str, parent_id: str | None) -> dict[str, Any] | None:
    """The row as JSON data of an entry; None if it is not recognised. Never raises."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    whole = encodable(value)  # a lone surrogate cannot be sent to a model
    return _typed(others_form(whole) or whole, entry_id, parent_id)


def _typed(value: dict[str, Any], entry_id: str, parent_id: str | None) -> dict[str, Any] | None:
    if "type" not in value:
        value = {"type": "message", "message": value, "timestamp": value.get("timestamp")}
    elif value["type"] == "message" and "message" not in value:
        value = {**value, "message": value}
    stamp = value.get("timestamp")
    value |= {"id": entry_id, "parentId": parent_id, "timestamp": stamp if isinstance(stamp, str) else _stamp(stamp)}
    message = value.get("message")
    if value["type"] == "message":
        if not isinstance(message, dict):
            return None
        value["message"] = _message(message, entry_id, parent_id)
    return value


def _message(said: dict[str, Any], entry_id: str, parent_id: str | None) -> dict[str, Any]:
    written = said.get("role")
    role = ROLES.get(written, "") if isinstance(written, str) else ""
    if not role:
        return said  # it stays unreadable
    message: dict[str, Any] = {**said, "role": role, "content": _content(said.get("content"), role)}
    if not isinstance(message.get("timestamp"), int):
        message.pop("timestamp", None)
    if written == "tool":  # a lone call; its result names its line
        arguments = said.get("input", said.get("arguments"))
        call = {"type": "toolCall", "id": entry_id, "name": str(said.get("name") or "tool")}
        message["content"] = [{**call, "arguments": arguments if isinstance(arguments, dict) else {"input": arguments}}]
        message["stopReason"] = "toolUse"
    if role == "assistant" and message.get("stopReason") not in STOPS:
        message["stopReason"] = "stop"
    if role == "toolResult":
        message["toolCallId"] = call_named(said) or entry_id.partition(ANSWERS)[2] or parent_id or entry_id
        message.setdefault("toolName", str(said.get("name") or "tool"))
    return message


def call_named(said: dict[str, Any]) -> str:
    """The call that a bare result names itself."""
    return next((named for name in CALL_IDS if isinstance(named := said.get(name), str) and named), "")


def _content(content: Any, role: str) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        return [
            block for block in map(_block, content) if isinstance(block, dict) and block.get("type") in BLOCKS[role]
        ]
    return [] if content is None else content


def _block(block: Any) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict) and not isinstance(block.get("type"), str):  # data, or text under a name
        words = block.get("text", block.get("content")) if len(block) == 1 else None
        return {"type": "text", "text": words if isinstance(words, str) else json.dumps(block, ensure_ascii=False)}
    if isinstance(block, dict) and block.get("type") == "toolCall" and not isinstance(block.get("arguments"), dict):
        return {**block, "arguments": _arguments(block.get("arguments"))}
    return block


def _arguments(written: Any) -> dict[str, Any]:
    try:
        value = json.loads(written) if isinstance(written, str) else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"input": written}


def _stamp(value: Any) -> str:
    try:
        moment = datetime.fromtimestamp(value / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
