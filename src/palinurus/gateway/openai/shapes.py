"""Requests of OpenAI's endpoints as they come in. Fields that we do not know are left unread."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class ImageUrl(Struct, frozen=True):
    url: str
    detail: str | None = None


class Part(Struct, frozen=True):
    """A piece of a message's content. `type` says which of the others counts."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None


Content = str | list[Part] | None


class Function(Struct, frozen=True):
    name: str
    arguments: str = ""


class Call(Struct, frozen=True):
    """A call that an assistant's message made."""

    id: str = ""
    type: str = "function"
    function: Function | None = None


class Message(Struct, frozen=True):
    role: str
    content: Content = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


class FunctionSpec(Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(Struct, frozen=True):
    type: str
    function: FunctionSpec | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(Struct, frozen=True):
    """POST /v1/chat/completions."""

    messages: list[Message]
    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ChatTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    user: str | None = None
    n: int | None = None


class Item(Struct, frozen=True):
    """One thing in the input of a response: a message, a call, or the result of one."""

    type: str = "message"
    role: str = "user"
    content: Content = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: Content = None


class ResponseTool(Struct, frozen=True):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ResponseText(Struct, frozen=True):
    format: dict[str, Any] | None = None


class ResponsesRequest(Struct, frozen=True):
    """POST /v1/responses."""

    input: str | list[Item]
    model: str = ""
    instructions: str | None = None
    stream: bool | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: ResponseText | None = None
    user: str | None = None
    previous_response_id: str | None = None
    metadata: dict[str, str] | None = None
    background: bool | None = None
    conversation: str | dict[str, Any] | None = None


class EmbeddingsRequest(Struct, frozen=True):
    """POST /v1/embeddings."""

    input: str | list[Any]
    model: str = ""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
