"""Which sessions a run may see, and what it is shown of them.

A run sees its own session, its subagents' (its tree), those of its agent, or also those of other agents, as the config
says; a run that is not the owner's, or in a shared or sandboxed session, never sees more than its tree. What a model is
shown of another agent's session, or of one that had read text from outside, is text from outside (promise 18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Origin, ToolResult, harmless, texts_in, wrapped
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.extensions.subagents.settings import AgentToAgentSettings, SessionToolSettings, refuses_agent
from palinurus.operations.services import Services
from palinurus.operations.sessions import newest_first
from palinurus.sessions.names import find_session, is_whole
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import MessageEntry, Row, decode_row
from palinurus.text.words import nearest

MOST = 10_000  # newest sessions that are looked through
MAX_BYTES = 80 * 1024  # of one result
MAX_TEXT = 4_000  # characters of one message
MAX_SOURCES = 50  # that a result names; the rest become its session
_MARKERS = 400  # characters around a text from outside
_RESET = '{"type":"reset"'


class SessionScope(Struct, frozen=True):
    """The sessions that a run may see: its own, its subagents' if `tree`, and all of these agents."""

    key: str
    agents: tuple[str, ...]
    tree: bool
    rule: str  # why no more


class SessionAccess:
    """Finds sessions for a run among those that it may see."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def scope(self, run: ToolRun) -> SessionScope:
        wanted = self._services.config.section(SessionToolSettings).visibility
        rule = f"tools.sessions.visibility is {wanted}"
        if wanted == "self":
            return SessionScope(str(run.key), (), tree=False, rule=rule)
        if (narrower := self._narrower(run)) or wanted == "tree":
            return SessionScope(str(run.key), (), tree=True, rule=narrower or rule)
        others = [each for each in self._services.agents.ids if each != run.key.agent]
        seen = [each for each in others if not self._refuses(run.key.agent, each)]
        return SessionScope(str(run.key), (run.key.agent, *seen), tree=True, rule=rule)

    async def sessions(self, scope: SessionScope) -> list[Session]:
        """All that can be seen, newest first, ended ones too."""
        known = await self._services.sessions.recent(limit=MOST, archived=True)
        parents = _parents(known)
        return [
            each
            for each in known
            if each.agent in scope.agents
            or each.key == scope.key
            or (scope.tree and _is_below(each.key, scope.key, parents))
        ]

    async def find(self, run: ToolRun, name: str) -> Session:
        """The session of that key, label or id. Raises BadRequest with the rule if it may not be seen, NotFound."""
        scope, agent = self.scope(run), run.key.agent
        text = name.strip().lower() or scope.key
        whole = f"agent:{agent}:{text}" if ":" in text and not is_whole(text) else text
        if scope.agents:
            found = await find_session(self._services.sessions, whole, agent=agent, archived=True, only=agent)
            if found is not None and found.agent in scope.agents:
                return found
        known = await self.sessions(scope)
        names = {each: seen for seen in reversed(known) for each in (seen.label.lower(), seen.id, seen.key) if each}
        if whole in names:
            return names[whole]
        raise self._not_found(scope, name, whole, names)

    async def is_descendant(self, run: ToolRun, key: SessionKey) -> bool:
        """Whether it is a subagent's session, started by this one or by a subagent of it."""
        known = await self._services.sessions.recent(limit=MOST, archived=True)
        return _is_below(str(key), str(run.key), _parents(known))

    def _refuses(self, own: str, other: str) -> str:
        section = self._services.config.section
        return refuses_agent(section(SessionToolSettings), section(AgentToAgentSettings), own, other)

    def _narrower(self, run: ToolRun) -> str:
        if not run.key.is_private:
            return "this session is not private"
        if not run.owner:
            return "the message is not the owner's"
        if self._services.toolsets.environment(run.key).sandboxed == "required":
            return "this session is sandboxed"
        return ""

    def _not_found(self, scope: SessionScope, name: str, whole: str, names: dict[str, Session]) -> PalinurusError:
        """The same whether or not there is a session that may not be seen."""
        listed = "sessions_list shows those that can be seen"
        if not scope.agents:
            only = "only this session and its subagents" if scope.tree else "only this session"
            why = f"{scope.rule}, so {only} can be seen"
            return BadRequest(f"the session {name[:80]!r} is out of reach: {why}", hint=listed)
        agent = SessionKey.parse(whole).agent if is_whole(whole) else scope.agents[0]
        if agent not in scope.agents:
            why = self._refuses(scope.agents[0], agent) or "there is no such agent"
            return BadRequest(f"sessions of the agent {agent!r} are out of reach: {why}", hint=listed)
        known = {each.key.rpartition(":")[2]: each for each in names.values()} | names
        near = nearest(name, known)
        hint = f"did you mean {known[near].key}?" if near else listed
        return NotFound(f"there is no session {name[:80]!r}", hint=hint)


def _parents(known: Sequence[Session]) -> dict[str, str]:
    return {each.key: each.spawned_by for each in reversed(known) if each.spawned_by}


def _is_below(key: str, top: str, parents: dict[str, str]) -> bool:
    passed: set[str] = set()
    while (key := parents.get(key, "")) and key not in passed:
        if key == top:
            return True
        passed.add(key)
    return False


class Quotation(Struct, frozen=True):
    """Messages of one session, oldest first, as a model is shown them."""

    messages: tuple[dict[str, Any], ...] = ()
    sources: tuple[str, ...] = ()  # of the outside text that may be in them
    older: bool = False  # there are more before them
    cut: bool = False  # some are shortened


class QuotedPart(Struct, frozen=True):
    """How much of a session is quoted."""

    limit: int
    tools: bool = False  # calls and results too
    characters: int = MAX_TEXT  # of one message
    size: int = MAX_BYTES  # bytes of all


async def quote_session(services: Services, session: Session, part: QuotedPart) -> Quotation:
    """The end of a session. Long transcripts are read in a thread."""
    rows = await services.sessions.rows(session.id)
    return await asyncio.to_thread(_quoted, session, rows, part)


async def sources_of(services: Services, session_id: str, key: str, entry_ids: Sequence[str]) -> tuple[str, ...]:
    """The sources of the outside text that may be in these entries."""
    rows = await services.sessions.rows(session_id)

    def read() -> tuple[str, ...]:
        wanted = set(entry_ids)
        places = [at for at, row in enumerate(rows) if row.id in wanted]
        return tuple(dict.fromkeys(each for at in places for each in _sources(key, rows, at, at)))

    return await asyncio.to_thread(read)


def _quoted(session: Session, rows: Sequence[Row], part: QuotedPart) -> Quotation:
    shown: list[dict[str, Any]] = []
    left, older, first = part.size, False, ""
    for entry in newest_first(rows):
        line = _line(entry, part)
        if line is None:
            continue
        left -= len(msgspec.json.encode(line))
        if older := len(shown) >= part.limit or left < 0:
            break
        shown.append(line)
        first = entry.id
    if not shown:
        return Quotation(older=older)
    at = next(at for at, row in enumerate(rows) if row.id == first)
    cut = any("cut" in line for line in shown)
    return Quotation(tuple(reversed(shown)), _sources(session.key, rows, at, len(rows) - 1), older, cut)


def _line(entry: MessageEntry, part: QuotedPart) -> dict[str, Any] | None:
    message = entry.message
    line: dict[str, Any] = {"at": entry.timestamp[:19]}
    if isinstance(message, ToolResult):
        if not part.tools:
            return None
        line |= {"role": "tool", "tool": message.tool_name}
    else:
        line |= {"role": "assistant" if isinstance(message, AssistantMessage) else "user"}
    if not isinstance(message, AssistantMessage) and message.origin != Origin.OWNER:
        line["origin"] = str(message.origin)
    text = message.text
    if isinstance(message, AssistantMessage):
        text = text or message.error_message or ""
        if part.tools and message.calls:
            line["calls"] = [_short(f"{each.name} {_json(each.arguments)}", part, line) for each in message.calls]
    if not text.strip() and "calls" not in line:
        return None
    return line | {"text": _short(text, part, line)}


def _short(text: str, part: QuotedPart, line: dict[str, Any]) -> str:
    if len(text) <= part.characters:
        return text
    line["cut"] = True
    return f"{text[: part.characters]} [… {len(text) - part.characters:,} more characters]"


def _sources(key: str, rows: Sequence[Row], first: int, last: int) -> tuple[str, ...]:
    """The sources of all outside text that a model had read since the reset before the first of these rows."""
    begin = next((at for at in range(first, -1, -1) if _is_reset(rows[at])), 0)
    found: dict[str, None] = {}
    for row in rows[begin : last + 1]:
        found |= dict.fromkeys(_row_sources(key, row))
    return tuple(found) if len(found) <= MAX_SOURCES else (*list(found)[:MAX_SOURCES], f"session:{key}")


def _is_reset(row: Row) -> bool:
    return row.payload.startswith(_RESET) and '"firstKeptEntryId"' not in row.payload[:2_000]


def _row_sources(key: str, row: Row) -> Iterator[str]:
    """Most rows are not decoded: what a row of ours says about outside text is found by its marks."""
    if row.speaker is None and '"outside"' not in row.payload and '"sources"' not in row.payload:
        return
    entry = decode_row(row)
    if isinstance(entry, MessageEntry):
        yield from (text.source or f"session:{key}" for text in texts_in(entry.message))
    elif row.speaker is not None:  # a summary of another program; of ours, the rows before it say what is in it
        yield f"session:{key}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def room(run: ToolRun) -> int:
    """How many bytes of JSON a result may have: a longer one would be cut in its middle."""
    return max(min(MAX_BYTES, run.max_characters - _MARKERS), 1_000)


def fitting(rows: Sequence[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """The first rows, as many as have room."""
    sizes = accumulate(len(msgspec.json.encode(row)) + 1 for row in rows)
    return [row for row, used in zip(rows, sizes, strict=True) if used <= size]


def shown(run: ToolRun, answer: dict[str, Any], keys: Sequence[str], sources: Sequence[str]) -> ToolOutput:
    """What a tool answers with words of these sessions."""
    foreign = [f"session:{key}" for key in keys if SessionKey.parse(key).agent != run.key.agent]
    origins = tuple(dict.fromkeys((*foreign, *sources)))
    if not origins:
        return ToolOutput(harmless(_json(answer)))
    text = wrapped(", ".join(dict.fromkeys(keys))[:200], _json(answer))
    return ToolOutput(text, origin=Origin.OUTSIDE, sources=origins)
