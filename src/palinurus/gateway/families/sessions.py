"""Sessions in OpenClaw's shape: listed, looked at, changed, started over, ended.

What changes a session is told to all who listen to it, as `sessions.changed`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest, NotFound, NotOffered
from palinurus.domain.keys import SessionKey
from palinurus.gateway.door.guard import Refused
from palinurus.gateway.families.session_rows import SessionRow, session_row
from palinurus.gateway.talk import conversing
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations import session_changes as changes
from palinurus.operations.house import House
from palinurus.operations.session_compaction import compact_session
from palinurus.sessions.names import find_session
from palinurus.sessions.session import Session

MOST_ROWS = 1_000
MOST_SEARCHED = 2_000  # newest sessions that a filter looks at
Key = Annotated[str, Meta(min_length=1, max_length=512)]


class ListRows(Struct, frozen=True, rename="camel"):
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


class Rows(Struct, frozen=True, rename="camel"):
    ts: int
    count: int
    has_more: bool
    sessions: tuple[SessionRow, ...]


class Describe(Struct, frozen=True, rename="camel"):
    key: Key


class Described(Struct, frozen=True):
    session: SessionRow | None  # its model is the one that answered last
    resolved: changes.Resolved | None = None  # what answers from now on


class Resolve(Struct, frozen=True, rename="camel"):
    """One of key, session id or label."""

    key: str = ""
    session_id: str = ""
    label: str = ""
    agent_id: str = ""
    allow_missing: bool = False


class ResolvedKey(Struct, frozen=True, omit_defaults=True):
    ok: bool
    key: str = ""


class PatchedRow(Struct, frozen=True):
    key: str
    entry: SessionRow
    resolved: changes.Resolved
    ok: bool = True


class ResetRow(Struct, frozen=True):
    key: str
    entry: SessionRow
    ok: bool = True


class Compact(Struct, frozen=True, rename="camel"):
    key: Key
    focus: str = ""
    max_lines: int | None = None
    idempotency_key: str = ""


class CompactedRow(Struct, frozen=True, rename="camel"):
    key: str
    compacted: bool
    entry: SessionRow
    tokens_before: int
    tokens_after: int
    reason: str = ""  # why nothing was compacted
    ok: bool = True


class SendMessage(Struct, frozen=True, rename="camel"):
    key: Key
    message: str
    thinking: str = ""
    attachments: tuple[conversing.Attachment, ...] = ()
    timeout_ms: int = 0
    idempotency_key: str = ""


class AbortRuns(Struct, frozen=True, rename="camel"):
    key: str = ""
    run_id: str = ""


async def _list(talk: Talk, params: ListRows) -> Rows:
    house = talk.desk.house
    end = params.offset + params.limit
    # Without a filter the newest are enough; one more tells whether there are others.
    known = await house.sessions.recent(agent=params.agent_id, limit=MOST_SEARCHED if _filters(params) else end + 1)
    found = [each for each in known if _wanted(house, each, params)]
    page = found[params.offset : end]
    titles, last = params.include_derived_titles, params.include_last_message
    rows = [await session_row(house, each, title=titles, last=last) for each in page]
    return Rows(house.clock.now_ms(), len(rows), len(found) > end, tuple(rows))


async def _describe(talk: Talk, params: Describe) -> Described:
    house = talk.desk.house
    session = await find_session(house.sessions, params.key, agent=house.agents.default)
    if session is None:
        return Described(None)
    key = SessionKey.parse(session.key)
    thinking = (await house.turns.view_of(key)).thinking
    row = await session_row(house, session, title=True, last=True)
    resolved = await changes.what_answers(house, key) if key.agent in house.agents.ids else None
    return Described(msgspec.structs.replace(row, thinking_level=thinking), resolved)


async def _resolve(talk: Talk, params: Resolve) -> ResolvedKey:
    house = talk.desk.house
    if sum(map(bool, (params.key, params.session_id, params.label))) != 1:
        raise BadRequest("name one of key, sessionId and label")
    if params.key:
        named = await find_session(house.sessions, params.key, agent=params.agent_id or house.agents.default)
        found = [named.key] if named else []
    else:
        known = await house.sessions.recent(agent=params.agent_id, limit=MOST_SEARCHED)
        found = [each.key for each in known if params.session_id in ("", each.id) and params.label in ("", each.label)]
    if len(found) > 1:
        raise BadRequest(f"{len(found)} sessions are called {params.label[:80]!r}", hint="name one by its key")
    if not found and not params.allow_missing:
        raise NotFound("there is no such session", hint="sessions.list shows them")
    return ResolvedKey(True, found[0]) if found else ResolvedKey(ok=False)


async def _patch(talk: Talk, params: changes.PatchSession) -> PatchedRow:
    lifted = params.elevated_level not in (msgspec.UNSET, "off")  # to clear an `off` is to allow it, too
    if lifted and not talk.principal.may("approvals"):
        details = {"code": "MISSING_SCOPE", "missingScope": "operator.approvals"}
        raise Refused(403, "FORBIDDEN", "elevatedLevel needs the scope approvals", details=details)
    patched = await changes.patch_session.handler(talk.desk.house, params)
    _tell(talk, patched.key, "patch")
    row = await session_row(talk.desk.house, patched.entry, title=False, last=False)
    entry = msgspec.structs.replace(row, thinking_level=patched.resolved.thinking_level)
    return PatchedRow(patched.key, entry, patched.resolved)


async def _reset(talk: Talk, params: Any) -> ResetRow:
    done = await changes.reset_session.handler(talk.desk.house, params)
    _tell(talk, done.key, params.reason)
    return ResetRow(done.key, await session_row(talk.desk.house, done.entry, title=False, last=False))


async def _delete(talk: Talk, params: Any) -> changes.Deleted:
    done = await changes.delete_session.handler(talk.desk.house, params)
    if done.deleted:
        _tell(talk, done.key, "delete")
    return done


async def _compact(talk: Talk, params: Compact) -> CompactedRow:
    if params.max_lines is not None:
        raise NotOffered("a transcript is never cut to so many lines", hint="leave maxLines out: it is summed up")
    house, key = talk.desk.house, params.idempotency_key
    done = await compact_session(house, key=params.key, focus=params.focus, idempotency_key=key)
    if done.compacted:
        _tell(talk, done.key, "compact")
    row = await session_row(talk.desk.house, done.entry, title=False, last=False)
    reason = "" if done.compacted else "there is nothing to sum up yet"
    return CompactedRow(done.key, done.compacted, row, done.tokens_before, done.tokens_after, reason)


async def _send(talk: Talk, params: SendMessage) -> conversing.Started:
    key = params.idempotency_key or talk.desk.new_id()
    sent = conversing.SendChat(params.key, params.message, key, params.thinking, attachments=params.attachments)
    return await conversing.chat_send(talk, sent)


async def _abort(talk: Talk, params: AbortRuns) -> conversing.Aborted:
    return await conversing.abort(talk, conversing.Abort(params.key, params.run_id))


def _tell(talk: Talk, key: str, reason: str) -> None:
    talk.desk.hub.publish("sessions.changed", key, lambda: {"sessionKey": key, "reason": reason})


def _filters(params: ListRows) -> bool:
    plain = ListRows(
        limit=params.limit,
        offset=params.offset,
        agent_id=params.agent_id,
        include_derived_titles=params.include_derived_titles,
        include_last_message=params.include_last_message,
    )
    return params != plain


def _wanted(house: House, session: Session, params: ListRows) -> bool:
    key = SessionKey.parse(session.key)
    minutes = params.active_minutes
    recent = minutes is None or house.clock.now_ms() - session.updated_at <= minutes * 60_000
    of_kind = not (params.exclude_subagents and key.is_subagent) and not (params.exclude_cron and key.kind == "cron")
    searched = params.search.strip().lower()
    return (
        recent
        and of_kind
        and params.label in ("", session.label)
        and (not searched or searched in f"{session.key} {session.label}".lower())
        and (not params.active_only or bool(house.dispatcher.runs.active(key)))
    )


METHODS = (
    Method("sessions.list", ListRows, Rows, "read", _list, about="Conversations, the newest first."),
    Method("sessions.describe", Describe, Described, "read", _describe, about="One conversation."),
    Method("sessions.get", Describe, Described, "read", _describe, about="The same as sessions.describe."),
    Method(
        "sessions.resolve", Resolve, ResolvedKey, "read", _resolve, about="The key of a session, by its id or name."
    ),
    Method(
        "sessions.patch",
        changes.PatchSession,
        PatchedRow,
        "write",
        _patch,
        about="Name a session, or choose how it is run. null goes back to what the config says.",
    ),
    Method(
        "sessions.reset",
        changes.reset_session.params,
        ResetRow,
        "write",
        _reset,
        about="Start over when what runs has ended; what was said stays in the transcript.",
    ),
    Method(
        "sessions.delete",
        changes.delete_session.params,
        changes.Deleted,
        "write",
        _delete,
        about="End a conversation and stop what runs in it. Its words are archived, and the key is free again.",
    ),
    Method(
        "sessions.compact",
        Compact,
        CompactedRow,
        "write",
        _compact,
        about="Sum a conversation up when what runs has ended; what was said stays in the transcript.",
    ),
    Method(
        "sessions.send",
        SendMessage,
        conversing.Started,
        "write",
        _send,
        about="The same as chat.send.",
        repeatable=True,
    ),
    Method("sessions.abort", AbortRuns, conversing.Aborted, "write", _abort, about="The same as chat.abort."),
)
