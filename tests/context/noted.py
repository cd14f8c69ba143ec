"""Lines of a conversation, for the tests of notes and pruning."""

from __future__ import annotations

from typing import Any

from palinurus.context.view import Line
from palinurus.domain.messages import AssistantMessage, Origin, Text, ToolCall, ToolResult, UserMessage

NOON = 1_763_208_000_000  # 2025-11-15 12:00 UTC


def user(text: str, entry_id: str = "", *, at: int = NOON, origin: Origin = Origin.OWNER, **more: Any) -> Line:
    return Line(entry_id or f"u-{abs(hash(text))}", UserMessage(text, at, origin, **more))


def model(text: str, *calls: ToolCall, entry_id: str = "", at: int = NOON) -> Line:
    content = (*((Text(text),) if text else ()), *calls)
    return Line(entry_id or f"a-{abs(hash(text))}", AssistantMessage(content, timestamp=at))


def result(text: Any, entry_id: str = "", *, tool: str = "exec", origin: Origin = Origin.OWNER, **more: Any) -> Line:
    return Line(entry_id or f"r-{abs(hash(str(text)))}", ToolResult("c", tool, text, origin=origin, **more))
