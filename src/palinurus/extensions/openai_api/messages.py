"""The requests of the endpoints, and their messages as one history.

Clients of OpenAI keep the history themselves and send all of it each time. A session here has its own, so only the
messages after the last reply are new; a session that is new gets all of them as entries of their roles. A result whose
call is not there becomes a note of outside text. Unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from palinurus.domain.errors import BadRequest

MOST_MESSAGES = 4_096
MOST_PICTURES = 8
MOST_CHARACTERS = 1_000_000
GO_ON = "(The results are above. Go on.)"
Role = Literal["user", "assistant", "tool"]
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
SYSTEM = ("system", "developer")
_TEXTS = ("text", "input_text", "output_text", "refusal")
_PICTURES = ("image_url", "input_image")
_INSTEAD = {"input_audio": "send what was said as text", "file": "send its text", "input_file": "send its text"}


class ImageUrl(Struct, frozen=True):
    url: str
    detail: str | None = None


class ContentPart(Struct, frozen=True):
    """A part of a message. `type` says which other field is used."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None


Content = str | list[ContentPart] | None


class ChatFunction(Struct, frozen=True):
    name: str
    arguments: str = ""


class ChatToolCall(Struct, frozen=True):
    """A call that an assistant's message made."""

    id: str = ""
    type: str = "function"
    function: ChatFunction | None = None


class ChatMessage(Struct, frozen=True):
    role: str
    content: Content = None
    name: str | None = None
    tool_calls: list[ChatToolCall] | None = None
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

    messages: list[ChatMessage]
    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ChatTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    user: str | None = None
    n: int | None = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None


class CompletionRequest(Struct, frozen=True):
    """POST /v1/completions."""

    prompt: str | list[Any]
    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    suffix: str | None = None
    echo: bool | None = None
    n: int | None = None
    best_of: int | None = None
    user: str | None = None


class InputItem(Struct, frozen=True):
    """A message, a call, or the result of a call."""

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

    input: str | list[InputItem]
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


class ClientCall(Struct, frozen=True):
    """A tool call in the history of a client."""

    id: str
    name: str
    arguments: str  # as JSON

    @property
    def text(self) -> str:
        return f"{self.name}({self.arguments})"


class ClientMessage(Struct, frozen=True):
    """One message. Pictures are URLs that were not read yet."""

    role: Role
    text: str = ""
    pictures: tuple[str, ...] = ()
    calls: tuple[ClientCall, ...] = ()  # of an assistant
    call_id: str = ""  # of a tool
    name: str = ""  # of a tool
    is_error: bool = False  # of a tool


class ClientHistory(Struct, frozen=True):
    """The messages of a request."""

    messages: tuple[ClientMessage, ...]
    instructions: str = ""  # of system and developer, in their order

    @property
    def new(self) -> tuple[ClientMessage, ...]:
        """The messages after the last reply."""
        replies = [index for index, message in enumerate(self.messages) if message.role == "assistant"]
        return self.messages[replies[-1] + 1 :] if replies else self.messages


def read_messages(messages: Sequence[ChatMessage]) -> ClientHistory:
    """Messages of a chat. Raises BadRequest for what cannot be read."""
    calls = (call for message in messages for call in message.tool_calls or ())
    names = {call.id: call.function.name for call in calls if call.id and call.function}
    return make_history([_chat_message(each, names, f"messages[{index}]") for index, each in enumerate(messages)])


def _chat_message(message: ChatMessage, names: dict[str, str], where: str) -> ClientMessage | str:
    """The message, or the text of a system message."""
    text, pictures = _content(message.content, where)
    if message.role in SYSTEM:
        return text
    role = _ROLES.get(message.role)
    if role is None:
        raise BadRequest(f"{where}.role: {message.role[:40]!r} is an unknown role", hint="user, or tool")
    call_id = message.tool_call_id or ""
    calls = tuple(map(_call, message.tool_calls or ())) if role == "assistant" else ()
    name = names.get(call_id) or message.name or "tool" if role == "tool" else ""
    return ClientMessage(role, text, pictures, calls, call_id, name)


def read_items(items: str | Sequence[InputItem]) -> ClientHistory:
    """The input of a response. Raises BadRequest for what cannot be read."""
    if isinstance(items, str):
        return ClientHistory((ClientMessage("user", items),))
    names = {item.call_id: item.name for item in items if item.type == "function_call"}
    return make_history([_item_message(item, names, f"input[{index}]") for index, item in enumerate(items)])


def _item_message(item: InputItem, names: dict[str, str], where: str) -> ClientMessage | str:
    """The message, or the text of a system message, which is empty for an item to ignore."""
    match item.type:
        case "message":
            text, pictures = _content(item.content, where)
            if item.role in SYSTEM:
                return text
            role = _ROLES.get(item.role)
            if role not in ("user", "assistant"):
                raise BadRequest(f"{where}.role: {item.role[:40]!r} is an unknown role", hint="user")
            return ClientMessage(role, text, pictures)
        case "function_call":
            return ClientMessage("assistant", calls=(ClientCall(item.call_id, item.name, item.arguments),))
        case "function_call_output":
            text, pictures = _content(item.output, where)
            return ClientMessage("tool", text, pictures, (), item.call_id, names.get(item.call_id) or "tool")
        case "reasoning":
            return ""
    raise BadRequest(f"{where}.type: {item.type[:40]!r} is not supported", hint="message, or function_call_output")


def make_history(parts: Sequence[ClientMessage | str]) -> ClientHistory:
    """Without messages that are empty, except tool results. Text belongs to the instructions."""
    if len(parts) > MOST_MESSAGES:
        raise BadRequest(f"{len(parts):,} messages in one request; the limit is {MOST_MESSAGES:,}", hint="send fewer")
    messages = tuple(
        each
        for each in parts
        if isinstance(each, ClientMessage) and (each.text.strip() or each.pictures or each.calls or each.role == "tool")
    )
    if sum(len(each.pictures) for each in messages) > MOST_PICTURES:
        raise BadRequest(f"more than {MOST_PICTURES} pictures in one request", hint="send fewer")
    instructions = "\n\n".join(each for each in parts if isinstance(each, str) and each.strip())
    if not messages and instructions:  # some clients say all they want in the system message
        return ClientHistory((ClientMessage("user", instructions),))
    return ClientHistory(messages, instructions)


def split_history(messages: Sequence[ClientMessage]) -> tuple[Sequence[ClientMessage], str, tuple[str, ...]]:
    """What was said before, and text and pictures of the message to answer. Raises BadRequest when there is none."""
    last = messages[-1] if messages else None
    if last is None or last.role == "assistant":
        raise BadRequest("the last message must be from a user or a tool", hint="add the message to answer")
    earlier = messages[:-1] if last.role == "user" else messages
    size = sum(len(each.text) + sum(len(call.text) for call in each.calls) for each in earlier)
    if size > MOST_CHARACTERS:
        raise BadRequest(f"the history has {size:,} characters; the limit is {MOST_CHARACTERS:,}")
    return (earlier, last.text, last.pictures) if last.role == "user" else (earlier, GO_ON, ())


def _content(content: Content, where: str) -> tuple[str, tuple[str, ...]]:
    """Text, and pictures as URLs."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    pictures: list[str] = []
    for index, part in enumerate(content):
        if part.type in _TEXTS:
            texts.append((part.refusal if part.type == "refusal" else part.text) or "")
        elif part.type in _PICTURES:
            pictures.append(_address(part, f"{where}.content[{index}]"))
        else:
            what = f"{where}.content[{index}]: {part.type[:40]!r}"
            raise BadRequest(f"{what} is not supported", hint=_INSTEAD.get(part.type, "text, or image_url"))
    return "\n".join(text for text in texts if text), tuple(pictures)


def _address(part: ContentPart, where: str) -> str:
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    if not url:
        raise BadRequest(f"{where}: a picture without image_url", hint="send it as a data: URL")
    return url


def _call(call: ChatToolCall) -> ClientCall:
    function = call.function or ChatFunction(call.type)
    return ClientCall(call.id, function.name, function.arguments)
