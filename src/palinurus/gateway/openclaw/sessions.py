"""Sessions in OpenClaw's shape: list, describe, resolve, change, reset, compact.

In the rows `totalTokens` is how full the context window was at the last call, as OpenClaw counts it; `inputTokens` and
`outputTokens` are the total use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import BadRequest, NotFound, NotOffered
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolResult, UserMessage
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations import session_changes as changes
from palinurus.operations.services import Services
from palinurus.operations.session_maintenance import compact_session
from palinurus.operations.sessions import newest_first
from palinurus.operations.shapes import From, made_of
from palinurus.sessions.names import find_session
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import MessageEntry, Row, decode_row

MOST_ROWS = 1_000
MOST_SEARCHED = 2_000  # newest sessions that a filter looks at
FILTERS = ("label", "search", "active_minutes", "active_only", "exclude_subagents", "exclude_cron")
MAX_TITLE = 60
MAX_PREVIEW = 160
Key = Annotated[str, Meta(min_length=1, max_length=512)]


class SessionRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    session_id: Annotated[str, From("id")]
    kind: str  # direct | group
    chat_type: str
    updated_at: int
    created_at: int
    last_interaction_at: int
    has_active_run: bool
    active_run_ids: tuple[str, ...]
    agent_id: Annotated[str, From("agent")]
    started_at: int = 0
    label: str = ""
    display_name: Annotated[str, From("label")] = ""
    derived_title: str = ""
    last_message_preview: str = ""
    channel: str = ""
    peer_name: str = ""  # of the person at the other end
    model_provider: Annotated[str, From("provider")] = ""
    model: str = ""
    thinking_level: str = ""
    verbose_level: Annotated[str, From("preferences.verbose_level")] = ""
    elevated_level: Annotated[str, From("preferences.elevated_level")] = ""
    reasoning_level: Annotated[str, From("preferences.reasoning_level")] = ""
    response_usage: Annotated[str, From("preferences.response_usage")] = ""
    queue_mode: Annotated[str, From("preferences.queue_mode")] = ""
    queue_debounce_ms: Annotated[int | None, From("preferences.queue_debounce_ms")] = None
    queue_cap: Annotated[int | None, From("preferences.queue_cap")] = None
    queue_drop: Annotated[str, From("preferences.queue_drop")] = ""
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: Annotated[int, From("context_tokens")] = 0
    total_tokens_fresh: bool = True
    compaction_count: int = 0
    delivery_context: Annotated[Delivery | None, From("delivery")] = None
    last_channel: Annotated[str, From("delivery.channel")] = ""
    last_to: Annotated[str, From("delivery.to")] = ""


class SessionRows(Struct, frozen=True, rename="camel"):
    ts: int
    count: int
    has_more: bool
    sessions: tuple[SessionRow, ...]


class DescribedSession(Struct, frozen=True):
    session: SessionRow | None  # its model is the one that answered last
    resolved: changes.ResolvedModel | None = None  # what answers from now on


class ListSessions(Struct, frozen=True, rename="camel"):
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100
    offset: Annotated[int, Meta(ge=0, le=100_000)] = 0
    agent_id: str = ""
    label: str = ""
    search: str = ""
    active_minutes: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    active_only: bool = False
    exclude_subagents: bool = False
    exclude_cron: bool = False
    include_derived_titles: bool = False
    include_last_message: bool = False


class ResolvedKey(Struct, frozen=True, omit_defaults=True):
    ok: bool
    key: str = ""


class PatchedRow(Struct, frozen=True):
    key: str
    entry: SessionRow
    resolved: changes.ResolvedModel
    ok: bool = True


class ResetRow(Struct, frozen=True):
    key: str
    entry: SessionRow
    ok: bool = True


class CompactedRow(Struct, frozen=True, rename="camel"):
    key: str
    compacted: bool
    entry: SessionRow
    tokens_before: int
    tokens_after: int
    reason: str = ""  # why nothing was compacted
    ok: bool = True


async def session_row(services: Services, session: Session, *, title: bool = False, last: bool = False) -> SessionRow:
    """`title`: with the first text of the session as its title. `last`: with the end of its last message."""
    key = SessionKey.parse(session.key)
    active = tuple(run.id for run in services.dispatcher.runs.active(key))
    rows = await services.sessions.rows(session.id) if title or last else []
    return made_of(
        SessionRow,
        session,
        kind="direct" if session.chat_type == "direct" else "group",
        has_active_run=bool(active),
        active_run_ids=active,
        derived_title=_first_text(rows) if title else "",
        last_message_preview=_last_text(rows) if last else "",
        channel=key.channel,
    )


def _first_text(rows: Sequence[Row]) -> str:
    for row in rows:
        entry = decode_row(row)
        if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage) and entry.message.text.strip():
            return _short(entry.message.text, MAX_TITLE)
    return ""


def _last_text(rows: Sequence[Row]) -> str:
    messages = (entry.message for entry in newest_first(rows) if not isinstance(entry.message, ToolResult))
    return next((_short(message.text, MAX_PREVIEW) for message in messages if message.text.strip()), "")


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


@method("sessions.list", scope="read")
async def list_sessions(client: ClientSession, params: ListSessions) -> SessionRows:
    """Sessions, the newest first."""
    services = client.services
    end = params.offset + params.limit
    filters = any(getattr(params, name) for name in FILTERS)
    # Without a filter the newest are enough; one more shows whether there are others.
    most = MOST_SEARCHED if filters else end + 1
    known = await services.sessions.recent(agent=params.agent_id, limit=most, one_offs=False)
    found = [each for each in known if _wanted(services, each, params)]
    page = found[params.offset : end]
    titles, last = params.include_derived_titles, params.include_last_message
    rows = [await session_row(services, each, title=titles, last=last) for each in page]
    return SessionRows(services.clock.now_ms(), len(rows), len(found) > end, tuple(rows))


def _wanted(services: Services, session: Session, params: ListSessions) -> bool:
    key = SessionKey.parse(session.key)
    minutes = params.active_minutes
    recent = minutes is None or services.clock.now_ms() - session.updated_at <= minutes * 60_000
    of_kind = not (params.exclude_subagents and key.is_subagent) and not (params.exclude_cron and key.kind == "cron")
    searched = params.search.strip().lower()
    named = params.label in ("", session.label) and searched in f"{session.key} {session.label}".lower()
    return recent and of_kind and named and (not params.active_only or bool(services.dispatcher.runs.active(key)))


@method("sessions.describe", scope="read")
async def describe_session(client: ClientSession, key: Key) -> DescribedSession:
    """One session."""
    services = client.services
    session = await find_session(services.sessions, key, agent=services.agents.default)
    if session is None:
        return DescribedSession(None)
    place = SessionKey.parse(session.key)
    thinking = (await services.turns.history.view_of(place)).thinking
    row = await session_row(services, session, title=True, last=True)
    resolved = await changes.what_answers(services, place) if place.agent in services.agents.ids else None
    return DescribedSession(msgspec.structs.replace(row, thinking_level=thinking), resolved)


@method("sessions.resolve", scope="read")
async def resolve_session(
    client: ClientSession,
    key: str = "",
    session_id: str = "",
    label: str = "",
    agent_id: str = "",
    allow_missing: bool = False,
) -> ResolvedKey:
    """The key of a session, by its id or name."""
    services = client.services
    if sum(map(bool, (key, session_id, label))) != 1:
        raise BadRequest("name one of key, sessionId and label")
    if key:
        named = await find_session(services.sessions, key, agent=agent_id or services.agents.default)
        found = [named.key] if named else []
    else:
        known = await services.sessions.recent(agent=agent_id, limit=MOST_SEARCHED)
        found = [each.key for each in known if session_id in ("", each.id) and label in ("", each.label)]
    if len(found) > 1:
        raise BadRequest(f"{len(found)} sessions have the label {label[:80]!r}", hint="name one by its key")
    if not found and not allow_missing:
        raise NotFound("there is no such session", hint="sessions.list shows them")
    return ResolvedKey(True, found[0]) if found else ResolvedKey(ok=False)


async def patched_row(client: ClientSession, done: changes.PatchedSession) -> PatchedRow:
    row = await session_row(client.services, done.entry)
    row = msgspec.structs.replace(row, thinking_level=done.resolved.thinking_level)
    return PatchedRow(done.key, row, done.resolved)


async def reset_row(client: ClientSession, done: changes.ResetSession) -> ResetRow:
    return ResetRow(done.key, await session_row(client.services, done.entry))


@method("sessions.compact", scope="admin")
async def compact(
    client: ClientSession, key: Key, focus: str = "", max_lines: int | None = None, idempotency_key: str = ""
) -> CompactedRow:
    """Summarise the context when the current run has ended. The transcript stays."""
    if max_lines is not None:
        raise NotOffered("a transcript is never cut to a number of lines", hint="leave maxLines out to get a summary")
    done = await compact_session(client.services, idempotency_key=idempotency_key, key=key, focus=focus)
    row = await session_row(client.services, done.entry)
    reason = "" if done.compacted else "there is nothing to summarise yet"
    return CompactedRow(done.key, done.compacted, row, done.tokens_before, done.tokens_after, reason)
