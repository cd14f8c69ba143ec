"""What the tools sessions_list, sessions_history, sessions_search and agents_list answer."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from palinurus.config.agents import agent_settings
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import RUN_KINDS, SessionKey
from palinurus.domain.messages import harmless
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.extensions.subagents.settings import SubagentSettings
from palinurus.extensions.subagents.visibility import (
    QuotedPart,
    SessionAccess,
    fitting,
    quote_session,
    room,
    shown,
    sources_of,
)
from palinurus.operations.services import Services
from palinurus.sessions.index import Hit
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import timestamp

KINDS = ("main", "direct", "group", "channel", "named", *RUN_KINDS)
MAX_SESSIONS, MAX_MESSAGES, MAX_HISTORY, MAX_HITS = 100, 20, 500, 50
MAX_LABEL = 60
MAX_PREVIEW = 300  # characters of one message in a list


class ListedSessions(Struct, frozen=True):
    """Which sessions are listed, and how many of their last messages."""

    limit: int
    messages: int
    kinds: tuple[str, ...]
    active_minutes: float


async def list_visible(services: Services, run: ToolRun, wanted: ListedSessions) -> ToolOutput:
    if unknown := [kind for kind in wanted.kinds if kind not in KINDS]:
        raise BadRequest(f"there is no kind of session {unknown[0][:80]!r}", hint=f"kinds: {', '.join(KINDS)}")
    access = SessionAccess(services)
    since = services.clock.now_ms() - wanted.active_minutes * 60_000 if wanted.active_minutes > 0 else 0
    seen = [
        each
        for each in await access.sessions(access.scope(run))
        if each.archived_at is None
        and each.updated_at >= since
        and (not wanted.kinds or SessionKey.parse(each.key).kind in wanted.kinds)
    ]
    rows, quoted = [], {}
    for session in seen[: _within(wanted.limit, MAX_SESSIONS)]:
        rows.append(_row(services, run, session))
        if wanted.messages > 0:
            part = QuotedPart(min(wanted.messages, MAX_MESSAGES), characters=MAX_PREVIEW)
            quoted[session.key] = quotation = await quote_session(services, session, part)
            rows[-1] |= {"messages": quotation.messages} if quotation.messages else {}
    listed = fitting(rows, room(run))
    answer = {"sessions": listed} | ({"more": len(seen) - len(listed)} if len(seen) > len(listed) else {})
    sources = [each for row in listed if row["key"] in quoted for each in quoted[row["key"]].sources]
    return shown(run, answer, [row["key"] for row in listed if "messages" in row], sources)


def _within(number: int, most: int) -> int:
    """How many results are given: the limits are not in the schemas, which are sent with every request."""
    return max(1, min(number, most))


def _row(services: Services, run: ToolRun, session: Session) -> dict[str, Any]:
    """What is said about a session. The label of another agent's would be its words."""
    key = SessionKey.parse(session.key)
    active = [each for each in services.dispatcher.runs.active(key) if each.id != run.run_id]
    facts = {
        "key": session.key,
        "label": harmless(session.label)[:MAX_LABEL] if key.agent == run.key.agent else "",
        "updated": timestamp(session.updated_at)[:19],
        "current": key == run.key,
        "running": any(not each.waits for each in active),
        "parent": session.spawned_by,
        "contextTokens": session.context_tokens,
    }
    return {name: value for name, value in facts.items() if value}


async def read_visible(services: Services, run: ToolRun, name: str, limit: int, *, tools: bool) -> ToolOutput:
    session = await SessionAccess(services).find(run, name)
    part = QuotedPart(_within(limit, MAX_HISTORY), tools, size=room(run))
    quotation = await quote_session(services, session, part)
    answer: dict[str, Any] = {"key": session.key, "messages": quotation.messages}
    answer |= {"ended": True} if session.archived_at is not None else {}
    answer |= {"older": "there are more messages before these"} if quotation.older else {}
    answer |= {"cut": "some texts are shortened"} if quotation.cut else {}
    return shown(run, answer, (session.key,), quotation.sources)


async def search_visible(services: Services, run: ToolRun, query: str, limit: int) -> ToolOutput:
    hits = await _search(services, run, query, _within(limit, MAX_HITS))
    entries: dict[tuple[str, str], list[str]] = {}
    for hit in hits:
        entries.setdefault((hit.session_id, hit.session_key), []).append(hit.entry_id)
    sources = [each for place, ids in entries.items() for each in await sources_of(services, *place, ids)]
    found = [{"key": hit.session_key, "at": hit.timestamp[:19], "role": hit.role, "text": hit.snippet} for hit in hits]
    return shown(run, {"found": fitting(found, room(run))}, [hit.session_key for hit in hits], sources)


async def _search(services: Services, run: ToolRun, query: str, limit: int) -> list[Hit]:
    """Best first. What cannot be seen is not searched, so that it takes no place among the best.

    The message that asks, and results of tools, which repeat what was said elsewhere, are left out.
    """
    access = SessionAccess(services)
    scope = access.scope(run)
    most = limit * 4
    hits = [hit for agent in scope.agents for hit in await services.index.search(query, agent=agent, limit=most)]
    others = [each.key for each in await access.sessions(scope) if each.agent not in scope.agents]
    if others:
        hits += await services.index.search(query, limit=most, keys=others)
    said = [hit for hit in hits if hit.role != "tool" and hit.entry_id != run.run_id]
    return sorted(said, key=lambda hit: -hit.score)[:limit]


def list_agents(services: Services, run: ToolRun) -> ToolOutput:
    own, readable = run.key.agent, SessionAccess(services).scope(run).agents
    spawns = [each.strip().lower() for each in services.config.section(SubagentSettings, own).allow_agents]
    rows: list[dict[str, Any]] = [{"id": own, "current": True}]
    for other in (each for each in services.agents.ids if each != own):
        by = ["sessions_spawn"] if "*" in spawns or other in spawns else []
        by += ["sessions_send"] if other in readable else []
        name = harmless(agent_settings(services.config, services.home, other).name)[:MAX_LABEL]
        rows += [{"id": other, "name": name, "by": by}] if by else []
    return ToolOutput(msgspec.json.encode({"agents": rows}).decode())
