"""Read sessions: list them, show one, preview some, search all, export one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import NotOffered
from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.operations.operation import AgentRef, Positional, Private, SessionRef, operation
from palinurus.operations.services import Services
from palinurus.operations.table import mcp_tool
from palinurus.sessions.index import Hit
from palinurus.sessions.names import find_session, require_session
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

MOST_PREVIEWS = 64


class SessionList(Struct, frozen=True):
    sessions: tuple[Session, ...]


class Transcript(Struct, frozen=True):
    session: Session
    entries: tuple[Entry, ...]
    broken: tuple[Broken, ...] = ()  # rows that cannot be read, and why


class PreviewItem(Struct, frozen=True):
    role: Literal["user", "assistant"]
    text: str


class SessionPreview(Struct, frozen=True):
    key: str
    status: Literal["ok", "empty", "missing"]
    items: tuple[PreviewItem, ...] = ()  # oldest first


class Previews(Struct, frozen=True):
    ts: int
    previews: tuple[SessionPreview, ...]


class SessionHits(Struct, frozen=True):
    hits: tuple[Hit, ...]


CONVERSATIONS_LIST = mcp_tool(
    "conversations_list",
    "List the conversations that the agents of this home have had, the newest first.",
    ("agent", Annotated[str, "only those of this agent"], ""),
    ("limit", Annotated[int, Meta(ge=1, le=200), "at most so many"], 50),
    private=True,
)


@operation("sessions.list", scope="read", mcp=CONVERSATIONS_LIST)
async def list_sessions(
    services: Services,
    agent: Annotated[AgentRef, "Only this agent's."] = "",
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50,
    archived: Annotated[bool, "Also show ended sessions, and those of single requests to the API."] = False,
) -> SessionList:
    """List sessions, newest first.

    Example:
      pal sessions list --limit 5
    """
    known = await services.sessions.recent(agent=agent, limit=limit, archived=archived, one_offs=archived)
    return SessionList(tuple(known))


MESSAGES_READ = mcp_tool(
    "messages_read",
    "Read what was said in a conversation, from its end; `skip` pages back to what is older.",
    ("session_key", Annotated[str, "the conversation, as conversations_list tells it"]),
    ("limit", Annotated[int, Meta(ge=1, le=200), "so many entries of the transcript"], 30),
    ("skip", Annotated[int, Meta(ge=0, le=100_000), "leave out so many of the newest entries"], 0),
    private=True,
)


@operation("sessions.show", scope="read", mcp=MESSAGES_READ)
async def show_session(
    services: Services,
    session_key: Annotated[SessionRef, Positional] = "",
    last: Annotated[int, Private, Meta(ge=0, le=1_000_000), "Only so many entries, from the end; 0: all."] = 0,
) -> Transcript:
    """Show all messages of a session, including those before a reset. Ended sessions can be shown too.

    Name the session by its key, name or id. Default: the main session.

    Examples:
      pal sessions show agent:main:main
      pal sessions show trip
    """
    session = await require_session(services.sessions, session_key, agent=services.agents.default, archived=True)
    rows = await services.sessions.rows(session.id)
    read = [decode_row(row) for row in rows[-last if last else 0 :]]
    good = tuple(entry for entry in read if not isinstance(entry, Broken))
    return Transcript(session, good, tuple(entry for entry in read if isinstance(entry, Broken)))


MESSAGES_SEARCH = mcp_tool(
    "messages_search",
    "Search all conversations for words. Gives places; messages_read reads around them.",
    ("query", Annotated[str, Meta(min_length=1, max_length=2_000), "words; any of them may match"]),
    ("agent", Annotated[str, "only in conversations of this agent"], ""),
    ("limit", Annotated[int, Meta(ge=1, le=50), "at most so many"], 10),
    private=True,
)


@operation("sessions.search", scope="read", mcp=MESSAGES_SEARCH)
async def search_sessions(
    services: Services,
    query: str,
    agent: Annotated[AgentRef, "Only this agent's."] = "",
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 10,
) -> SessionHits:
    """Search all messages.

    Example:
      pal sessions search "green bicycle"
    """
    return SessionHits(tuple(await services.index.search(query, agent=agent, limit=limit)))


@operation("sessions.preview", scope="read", strict=False)
async def preview_sessions(
    services: Services,
    keys: tuple[str, ...],
    limit: Annotated[int, Meta(ge=1, le=200), "Of the last messages."] = 12,
    max_chars: Annotated[int, Meta(ge=20, le=10_000), "Of each."] = 240,
) -> Previews:
    """Glance at some conversations: what was said last."""
    wanted = [await _preview(services, text, limit, max_chars) for text in keys[:MOST_PREVIEWS]]
    return Previews(services.clock.now_ms(), tuple(wanted))


async def _preview(services: Services, text: str, limit: int, max_chars: int) -> SessionPreview:
    session = await find_session(services.sessions, text, agent=services.agents.default)
    if session is None:
        return SessionPreview(text, "missing")
    rows = await services.sessions.rows(session.id)
    said = tuple(islice(_preview_items(rows, max_chars), limit))
    return SessionPreview(text, "ok" if said else "empty", said[::-1])


def _preview_items(rows: Sequence[Row], most: int) -> Iterator[PreviewItem]:
    for entry in newest_first(rows):
        message = entry.message
        if not isinstance(message, ToolResult) and (words := message.text.strip()):
            short = words if len(words) <= most else f"{words[: most - 1]}…"
            yield PreviewItem("user" if isinstance(message, UserMessage) else "assistant", short)


def newest_first(rows: Sequence[Row]) -> Iterator[MessageEntry]:
    """What was said, from the end. A row is decoded when it is come to: transcripts are long."""
    for row in reversed(rows):
        entry = decode_row(row)
        if isinstance(entry, MessageEntry):
            yield entry


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
async def export_session(services: Services, session_key: str, format: Format = "markdown") -> ExportedSession:  # noqa: A002
    """A conversation as the text of a file."""
    session = await require_session(services.sessions, session_key, agent=services.agents.default, archived=True)
    rows = await services.sessions.rows(session.id)
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
            for block in message.content:
                if isinstance(block, ToolCall):
                    yield _fenced(block.name, msgspec.json.encode(block.arguments).decode())
                elif isinstance(block, Text) and block.text:
                    yield block.text
            if message.error_message:
                yield f"*{message.error_message}*"


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
