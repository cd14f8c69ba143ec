"""What a client says was said: both endpoints' messages as one list of lines, and what of it is new. Pure.

Clients of OpenAI keep the history themselves and send all of it each time. A session of ours has its own, so only what
stands behind the last reply is new there; a request on its own brings everything. What is not the current message goes
along as labelled text (`User:`, `Assistant:`, `Tool:<name>:`), as OpenClaw does it: it is what a client claims, and no
part of a transcript that we keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import Origin
from palinurus.gateway.openai.shapes import Call, Content, ImageUrl, Item, Message, Part

MOST_LINES = 4_096
MOST_PICTURES = 8
MOST_CHARACTERS = 1_000_000
GO_ON = "(The results are above. Go on.)"

Role = Literal["user", "assistant", "tool"]
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image")


class Line(Struct, frozen=True):
    """One message of a conversation. Pictures are data URLs that nobody has looked at yet."""

    role: Role
    text: str = ""
    pictures: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()  # of an assistant: what it called, in words
    call_id: str = ""  # of a tool
    name: str = ""  # of a tool

    @property
    def is_empty(self) -> bool:
        return not self.text.strip() and not self.pictures


class Talk(Struct, frozen=True):
    """A conversation as a client tells it."""

    lines: tuple[Line, ...]
    instructions: str = ""  # of system and developer, in their order

    @property
    def new(self) -> tuple[Line, ...]:
        """What stands behind the last reply."""
        replies = [index for index, line in enumerate(self.lines) if line.role == "assistant"]
        return self.lines[replies[-1] + 1 :] if replies else self.lines


class Current(Struct, frozen=True):
    """What a turn answers, and what is told beside it."""

    text: str
    pictures: tuple[str, ...] = ()
    history: str = ""
    origin: Origin = Origin.OWNER  # of the history: outside, if it holds what a tool said


def of_messages(messages: Sequence[Message]) -> Talk:
    """Messages of a chat. Raises BadRequest for what we cannot read."""
    _check_number(len(messages))
    names = {call.id: call.function.name for message in messages for call in message.tool_calls or () if call.function}
    lines: list[Line] = []
    told: list[str] = []
    for index, message in enumerate(messages):
        text, pictures = _content(message.content, f"messages[{index}]")
        if message.role in ("system", "developer"):
            told.append(text)
            continue
        role = _ROLES.get(message.role)
        if role is None:
            raise BadRequest(f"messages[{index}].role: {message.role[:40]!r} is no role we know", hint="user, or tool")
        name = names.get(message.tool_call_id or "") or message.name or "tool"
        calls = tuple(map(_in_words, message.tool_calls or ())) if role == "assistant" else ()
        lines.append(Line(role, text, pictures, calls, message.tool_call_id or "", name if role == "tool" else ""))
    return Talk(_spoken(lines), _joined(told))


def of_items(items: str | Sequence[Item]) -> Talk:
    """The input of a response. Raises BadRequest for what we cannot read."""
    if isinstance(items, str):
        return Talk((Line("user", items),))
    _check_number(len(items))
    names = {item.call_id: item.name for item in items if item.type == "function_call"}
    lines: list[Line] = []
    told: list[str] = []
    for index, item in enumerate(items):
        line = _line(item, names, f"input[{index}]")
        if isinstance(line, str):
            told.append(line)
        elif line is not None:
            lines.append(line)
    return Talk(_spoken(lines), _joined(told))


def _line(item: Item, names: dict[str, str], where: str) -> Line | str | None:
    """A line; or words of the system; or nothing that anybody said."""
    match item.type:
        case "message":
            text, pictures = _content(item.content, where)
            if item.role in ("system", "developer"):
                return text
            role = _ROLES.get(item.role)
            if role not in ("user", "assistant"):
                raise BadRequest(f"{where}.role: {item.role[:40]!r} is no role we know", hint="user")
            return Line(role, text, pictures)
        case "function_call":
            return Line("assistant", calls=(f"{item.name}({item.arguments})",))
        case "function_call_output":
            text, pictures = _content(item.output, where)
            return Line("tool", text, pictures, (), item.call_id, names.get(item.call_id) or "tool")
        case "reasoning":
            return None
    raise BadRequest(f"{where}.type: {item.type[:40]!r} cannot be read here", hint="message, or function_call_output")


def current(lines: Sequence[Line]) -> Current:
    """The last line as the message to answer, and the others as history. Raises BadRequest when there is none."""
    last = lines[-1] if lines else None
    if last is None or last.role == "assistant":
        raise BadRequest("the last message must be of a user or a tool", hint="what is to be answered?")
    words = last if last.role == "user" else None
    earlier = lines[:-1] if words else lines
    pictures = tuple(picture for line in lines for picture in line.pictures)
    history = labelled(earlier)
    if len(history) > MOST_CHARACTERS:
        raise BadRequest(f"the history has {len(history):,} characters, the limit is {MOST_CHARACTERS:,}")
    origin = Origin.OUTSIDE if any(line.role == "tool" for line in earlier) else Origin.OWNER
    return Current(words.text if words else GO_ON, pictures, history, origin)


def labelled(lines: Iterable[Line]) -> str:
    """Lines as text, each with who said it. Pictures are numbered as they stand in the message."""
    number = 0
    told: list[str] = []
    for line in lines:
        label = f"Tool:{line.name}" if line.role == "tool" else line.role.capitalize()
        shown = [line.text, *(f"[called {call}]" for call in line.calls)]
        for _ in line.pictures:
            number += 1
            shown.append(f"[picture {number}]")
        told.append(f"{label}: {' '.join(part for part in shown if part)}")
    return "\n\n".join(told)


def _spoken(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Without messages that say nothing. What a tool says counts even when it is nothing."""
    kept = tuple(line for line in lines if not line.is_empty or line.calls or line.role == "tool")
    if sum(len(line.pictures) for line in kept) > MOST_PICTURES:
        raise BadRequest(f"more than {MOST_PICTURES} pictures in one request", hint="send fewer")
    return kept


def _content(content: Content, where: str) -> tuple[str, tuple[str, ...]]:
    """Words, and pictures as URLs."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    pictures: list[str] = []
    for index, part in enumerate(content):
        if part.type in _TEXTS:
            texts.append(part.text or "")
        elif part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in _PICTURES:
            pictures.append(_address(part, f"{where}.content[{index}]"))
        else:
            raise BadRequest(
                f"{where}.content[{index}]: {part.type[:40]!r} cannot be read here", hint="text, or image_url"
            )
    return "\n".join(text for text in texts if text), tuple(pictures)


def _address(part: Part, where: str) -> str:
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    if not url:
        raise BadRequest(f"{where}: a picture without image_url", hint="send it as a data: URL")
    return url


def _in_words(call: Call) -> str:
    return f"{call.function.name}({call.function.arguments})" if call.function else call.type


def _joined(told: Iterable[str]) -> str:
    return "\n\n".join(text for text in told if text.strip())


def _check_number(count: int) -> None:
    if count > MOST_LINES:
        raise BadRequest(f"{count:,} messages in one request, the limit is {MOST_LINES:,}", hint="send fewer")
