"""A request as the bytes of the OpenAI chat-completions wire.

Thinking is not replayed: this wire has no place for it. Images that a tool returned become a placeholder line, because
the wire takes images from users only. Tool call ids that the wire would refuse are replaced, and the results with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palinurus.domain.messages import AssistantMessage, Image, Message, Text, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ModelRequest
from palinurus.providers.wires.rendering import NO_OUTPUT, CallIds, as_json, result_text, tool_name, user_content

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
    return as_json(body)


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.head.system:
        yield {"role": "system", "content": request.head.system}
    ids = CallIds()
    for message in request.messages:
        if rendered := _message(message, ids):
            yield rendered


def _message(message: Message, ids: CallIds) -> dict[str, Any] | None:
    if isinstance(message, UserMessage):
        content = user_content(message)
        return {"role": "user", "content": content if isinstance(content, str) else [_part(part) for part in content]}
    if isinstance(message, AssistantMessage):
        return _assistant(message, ids)
    return {"role": "tool", "tool_call_id": ids.of_result(message.tool_call_id), "content": _result(message)}


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
            "function": {"name": tool_name(call.name), "arguments": as_json(call.arguments).decode()},
        }
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _result(result: ToolResult) -> str:
    text = result_text(result)
    return f"ERROR: {text}" if result.is_error else text or NO_OUTPUT


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
    }
