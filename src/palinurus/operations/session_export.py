"""A conversation to take away: as markdown for people, as JSON or as the very lines that are stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.domain.errors import NotOffered
from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.sessions.names import require_session
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import (
    Broken,
    CompactionEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    ModelChange,
    ResetEntry,
    Row,
    decode_row,
)

MAX_CHARACTERS = 16 * 1024 * 1024  # a frame of the gateway carries it whole
MOST_OF_A_RESULT = 4_000  # characters of a tool's result in markdown

Format = Literal["markdown", "json", "jsonl"]
_KINDS: dict[Format, tuple[str, str]] = {
    "markdown": ("md", "text/markdown"),
    "json": ("json", "application/json"),
    "jsonl": ("jsonl", "application/x-ndjson"),
}


class ExportedSession(Struct, frozen=True, rename="camel"):
    session_key: str
    file_name: str
    media_type: str
    content: str


@operation("sessions.export", scope="read")
async def export_session(house: House, session_key: str, format: Format = "markdown") -> ExportedSession:  # noqa: A002
    """A conversation as the text of a file."""
    session = await require_session(house.sessions, session_key, agent=house.agents.default, archived=True)
    rows = await house.sessions.rows(session.id)
    size = sum(len(row.payload) for row in rows)
    if size > MAX_CHARACTERS:
        raise NotOffered(f"{size:,} characters are too many for one answer", hint="`pal sessions show KEY --json`")
    ending, media = _KINDS[format]
    content = {"markdown": _markdown, "json": _json, "jsonl": _lines}[format](session, rows)
    return ExportedSession(session.key, f"{_name(session)}.{ending}", media, content)


def _name(session: Session) -> str:
    """A name for a file, of signs that every system takes."""
    named = session.label or session.key
    return re.sub(r"[^\w.-]+", "-", named, flags=re.ASCII).strip("-.")[:80] or "session"


def _lines(_: Session, rows: Sequence[Row]) -> str:
    return "".join(f"{row.payload}\n" for row in rows)


def _json(session: Session, rows: Sequence[Row]) -> str:
    entries = [msgspec.Raw(row.payload.encode()) for row in rows if not isinstance(decode_row(row), Broken)]
    about = {"sessionKey": session.key, "sessionId": session.id, "label": session.label, "entries": entries}
    return msgspec.json.format(msgspec.json.encode(about)).decode()


def _markdown(session: Session, rows: Sequence[Row]) -> str:
    parts = [f"# {session.label or session.key}", f"`{session.key}`"]
    if session.archived_at is not None:
        parts.append(f"*Archived: this conversation has ended (`{session.id}`).*")
    for row in rows:
        entry = decode_row(row)
        parts += [f"*(a line that cannot be read: {entry.reason})*"] if isinstance(entry, Broken) else _entry(entry)
    return "\n\n".join(parts) + "\n"


def _entry(entry: Entry) -> list[str]:
    match entry:
        case MessageEntry():
            return list(_message(entry.message, entry.timestamp[:16].replace("T", " ")))
        case ResetEntry():
            return [f"---\n\n*A fresh start ({entry.reason or 'reset'})*"]
        case CompactionEntry():
            return [f"---\n\n*Summed up so far:*\n\n{_quoted(entry.summary)}"]
        case ModelChange():
            return [f"*Model: {entry.provider}/{entry.model_id}*"]
        case CustomMessageEntry():
            return [_quoted(_text(entry.content))] if entry.display else []
        case _:
            return []


def _message(message: Message, at: str) -> Iterator[str]:
    match message:
        case UserMessage():
            yield f"## You · {at}"
            yield _text(message.content)
        case ToolResult():
            yield _fenced(f"{message.tool_name} →", message.text[:MOST_OF_A_RESULT])
        case AssistantMessage():
            yield f"## Agent · {at}"
            yield from (told for block in message.content if (told := _block(block)))
            if message.error_message:
                yield f"*{message.error_message}*"


def _block(block: Text | Thinking | ToolCall) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return _fenced(f"{block.name}", msgspec.json.encode(block.arguments).decode())
        case Thinking():
            return ""


def _text(content: str | tuple[Text | Image, ...]) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join("*(a picture)*" if isinstance(block, Image) else block.text for block in content)


def _fenced(title: str, text: str) -> str:
    """A block that its own content cannot end."""
    ticks = max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1
    return f"{title}\n\n{'`' * ticks}\n{text}\n{'`' * ticks}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


OPERATIONS = (export_session,)
