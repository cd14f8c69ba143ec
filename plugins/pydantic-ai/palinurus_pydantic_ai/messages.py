"""Requests and replies in the library's terms. Pure and deterministic, as promise 20 asks of every wire."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Literal

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as Request
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ANY_TOOL, ModelRequest
from palinurus.providers.wires.rendering import EFFORTS, NO_OUTPUT, CallIds, result_text, tool_name, user_content
from palinurus.providers.wires.reply import read_arguments


def to_messages(request: ModelRequest) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    if request.head.system:
        found.append(Request([SystemPromptPart(request.head.system)]))
    ids = CallIds()
    for message in request.messages:
        if isinstance(message, UserMessage):
            content = user_content(message)
            found.append(Request([UserPromptPart(content if isinstance(content, str) else [*map(_block, content)])]))
        elif isinstance(message, ToolResult):
            said = result_text(message) or NO_OUTPUT
            text = f"ERROR: {said}" if message.is_error else said
            name, call_id = tool_name(message.tool_name), ids.of_result(message.tool_call_id)
            found.append(Request([ToolReturnPart(name, text, call_id)]))
        elif parts := list(_said(message, ids)):
            found.append(ModelResponse(parts))
    return found


def _block(block: Text | Image) -> str | BinaryContent:
    if isinstance(block, Text):
        return block.text
    return BinaryContent(base64.b64decode(block.data), media_type=block.mime_type)


def _said(message: AssistantMessage, ids: CallIds) -> Iterator[TextPart | ToolCallPart]:
    """Without thinking: a signature is of the model that gave it."""
    if message.text:
        yield TextPart(message.text)
    for call in message.calls:
        yield ToolCallPart(tool_name(call.name), call.arguments, ids.of_call(call.id))


def to_parameters(request: ModelRequest) -> ModelRequestParameters:
    specs = request.head.tools
    tools = [_tool(each) for each in specs]
    return ModelRequestParameters(function_tools=tools)


def _tool(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name, parameters_json_schema=spec.parameters, description=spec.description, strict=False
    )


def to_settings(request: ModelRequest, seconds: float) -> ModelSettings:
    settings = ModelSettings(max_retries=0, timeout=seconds)  # failover decides what is tried again
    if request.max_tokens is not None:
        settings["max_tokens"] = request.max_tokens
    if choice := request.tool_choice:
        settings["tool_choice"] = "required" if choice == ANY_TOOL else [choice]
    effort: Any = EFFORTS.get(request.thinking)
    if effort:
        settings["thinking"] = effort
    return settings


def from_response(response: ModelResponse, *, cut: bool, now_ms: int) -> AssistantMessage:
    content: list[Text | Thinking | ToolCall] = []
    taken: set[str] = set()
    for part in response.parts:
        if isinstance(part, TextPart) and part.content:
            content.append(Text(part.content))
        elif isinstance(part, ThinkingPart) and part.content:
            content.append(Thinking(part.content))
        elif isinstance(part, ToolCallPart):
            call_id = part.tool_call_id if part.tool_call_id not in taken else f"{part.tool_call_id}_{len(taken)}"
            taken.add(call_id)
            raw = part.args if isinstance(part.args, str) else ""
            arguments = part.args if isinstance(part.args, dict) else read_arguments(raw, cut=cut)
            content.append(ToolCall(call_id, part.tool_name or "unknown", arguments))
    used = response.usage
    cached = used.cache_read_tokens
    usage = Usage(max(used.input_tokens - cached - used.cache_write_tokens, 0), used.output_tokens, cached)
    stop: Literal["stop", "length", "toolUse"] = "length" if cut else "toolUse" if taken else "stop"
    return AssistantMessage(tuple(content), usage=usage, stop_reason=stop, timestamp=now_ms)
