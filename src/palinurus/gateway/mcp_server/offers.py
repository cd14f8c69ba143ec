"""What other agents may do here: a table of tools, each of which is an operation of the house under another name.

A row says what the tool is called, what a model is told about it, which arguments it takes, the right that it needs,
and how it is answered. Most rows are one operation between two mappings: arguments to its parameters, its result to
what a model can use. Further rooms add rows to `OFFERS` and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from palinurus.gateway.mcp_server import speaking
from palinurus.gateway.mcp_server.reading import ReadMessages, Said, said
from palinurus.gateway.mcp_server.remembering import GetLines, SearchNotes, lines_shown, remembered
from palinurus.gateway.mcp_server.visit import Arguments, Options, Shown, Visit
from palinurus.memory.asking import SearchMemory
from palinurus.operations import agents, approvals, memory, sessions, status
from palinurus.operations.scopes import Scope
from palinurus.operations.table import Operation
from palinurus.sessions.session import Session
from palinurus.tools.approvals.approval import Approval
from palinurus.tools.approvals.rendering import render_plan

A = TypeVar("A", bound=Arguments)
P = TypeVar("P", bound=Struct)
R = TypeVar("R")


class Offer(Struct, frozen=True):
    """`answer` returns what is shown, and raises a PalinurusError for what the other agent can mend."""

    name: str
    about: str
    scope: Scope
    arguments: type[Arguments]
    answer: Callable[[Visit, Any], Awaitable[Shown]]
    repeatable: bool = True  # whether doing it twice is doing it once
    destructive: bool = False
    approving: bool = False  # only where the owner has said that approvals may be answered here
    private: bool = False  # not for guests


def offered(options: Options) -> tuple[Offer, ...]:
    """The rows that the owner lets others have."""
    return tuple(
        row
        for row in OFFERS
        if (row.scope == "read" or not options.read_only)
        and (options.approvals or not row.approving)
        and not (options.guest and row.private)
    )


def _row(
    name: str,
    about: str,
    arguments: type[A],
    operation: Operation[P, R],
    params: Callable[[A], P],
    shown: Callable[[A, R], Shown],
    **more: bool,
) -> Offer:
    """One operation between two mappings."""

    async def answer(visit: Visit, asked: A) -> Shown:
        return shown(asked, await visit.caller.call(operation, params(asked)))

    return Offer(name, about, operation.scope, arguments, answer, **more)


class ListConversations(Arguments, frozen=True):
    agent: Annotated[str, Meta(description="only those of this agent")] = ""
    limit: Annotated[int, Meta(ge=1, le=200, description="at most so many")] = 50


class Conversation(Shown, frozen=True):
    session_key: str
    agent: str
    updated_at: str
    entries: int
    label: str = ""
    chat_type: str = "direct"
    model: str = ""


class Conversations(Shown, frozen=True):
    conversations: tuple[Conversation, ...]


class SearchMessages(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=2_000, description="words; any of them may match")]
    agent: Annotated[str, Meta(description="only in conversations of this agent")] = ""
    limit: Annotated[int, Meta(ge=1, le=50, description="at most so many")] = 10


class Match(Shown, frozen=True):
    session_key: str
    entry_id: str
    role: str
    at: str
    snippet: str


class Matches(Shown, frozen=True):
    matches: tuple[Match, ...]


class StopRun(Arguments, frozen=True):
    run_id: Annotated[str, Meta(description="the run, as message_send tells it")] = ""
    session_key: Annotated[str, Meta(description="all that goes on in this conversation")] = ""


class Stopped(Shown, frozen=True):
    stopped: int


class AskStatus(Arguments, frozen=True):
    agent: Annotated[str, Meta(description="an agent; the default one when left out")] = ""


class Standing(Shown, frozen=True):
    version: str
    agent: str
    agents: tuple[str, ...]
    model: str
    running: int
    warnings: tuple[str, ...] = ()


class ListApprovals(Arguments, frozen=True):
    session_key: Annotated[str, Meta(description="only those of this conversation")] = ""


class Waiting(Shown, frozen=True):
    id: str
    digest: str
    session_key: str
    tool: str
    reason: str
    plan: tuple[str, ...]
    deadline: str


class WaitingList(Shown, frozen=True):
    waiting: tuple[Waiting, ...]


class AnswerApproval(Arguments, frozen=True):
    """An answer for good is not among them: what holds from now on is for the owner to say."""

    id: Annotated[str, Meta(description="the approval, as approvals_list tells it")]
    digest: Annotated[str, Meta(min_length=1, description="of the plan that was looked at")]
    answer: Literal["allow-once", "deny"]


class Settled(Shown, frozen=True):
    id: str
    status: str


def _conversation(session: Session) -> Conversation:
    return Conversation(
        session.key,
        session.agent,
        _time(session.updated_at),
        session.entry_count,
        session.label,
        session.chat_type,
        f"{session.provider}/{session.model}" if session.provider else "",
    )


def _matches(_: SearchMessages, found: sessions.Found) -> Matches:
    return Matches(
        tuple(Match(hit.session_key, hit.entry_id, hit.role, hit.timestamp, hit.snippet) for hit in found.hits)
    )


def _standing(_: AskStatus, report: status.Status) -> Standing:
    return Standing(report.version, report.agent, report.agents, report.model, report.busy, report.warnings)


def _waiting(approval: Approval) -> Waiting:
    return Waiting(
        approval.id,
        approval.digest,
        approval.session_key,
        approval.plan.tool,
        approval.reason,
        tuple(render_plan(approval.plan)),
        _time(approval.deadline),
    )


def _read(asked: ReadMessages, transcript: sessions.Transcript) -> Said:
    return said(transcript, limit=asked.limit, skip=asked.skip)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _show(sessions_listed: Sequence[Session]) -> Conversations:
    return Conversations(tuple(map(_conversation, sessions_listed)))


OFFERS: tuple[Offer, ...] = (
    _row(
        "conversations_list",
        "List the conversations that the agents of this home have had, the newest first.",
        ListConversations,
        sessions.list_sessions,
        lambda asked: sessions.list_sessions.params(asked.agent, asked.limit),
        lambda _, found: _show(found.sessions),
    ),
    _row(
        "messages_read",
        "Read what was said in a conversation, from its end; `skip` pages back to what is older.",
        ReadMessages,
        sessions.show_session,
        lambda asked: sessions.show_session.params(asked.session_key, asked.limit + asked.skip),
        _read,
    ),
    _row(
        "messages_search",
        "Search all conversations for words. Gives places; messages_read reads around them.",
        SearchMessages,
        sessions.search_sessions,
        lambda asked: sessions.search_sessions.params(asked.query, asked.agent, asked.limit),
        _matches,
    ),
    _row(
        "memory_search",
        "Search what an agent of this home has noted for its owner. Each result says where it stands; memory_get reads "
        "around it.",
        SearchNotes,
        memory.search_memory,
        lambda asked: SearchMemory(asked.query, asked.agent, asked.max_results, asked.min_score),
        lambda _, answer: remembered(answer),
        private=True,
    ),
    _row(
        "memory_get",
        "Read lines of a memory file, by the path that memory_search tells.",
        GetLines,
        memory.get_memory,
        lambda asked: memory.get_memory.params(
            asked.path, asked.agent, asked.from_ or None, asked.lines or None, brief=True
        ),
        lambda _, found: lines_shown(found),
        private=True,
    ),
    Offer(
        "message_send",
        "Say something to an agent of this home and wait for its reply. When the reply takes longer than "
        "`waitSeconds`, the status is `running`, and run_wait waits on. The same `idempotencyKey` and words again are "
        "the same message: nothing is said twice.",
        agents.SUBMIT.scope,
        speaking.SendMessage,
        speaking.send,
        repeatable=False,
    ),
    Offer(
        "run_wait",
        "Wait for the reply of a run that message_send has left running.",
        agents.WAIT.scope,
        speaking.AwaitRun,
        speaking.wait,
    ),
    _row(
        "run_stop",
        "Stop a run, or all that goes on in a conversation.",
        StopRun,
        agents.STOP,
        lambda asked: agents.StopRuns(asked.session_key, asked.run_id),
        lambda _, stopped: Stopped(stopped.count),
        destructive=True,
    ),
    _row(
        "status",
        "How this home stands: its agents, the model, how many runs go on, what is odd.",
        AskStatus,
        status.show_status,
        lambda asked: status.show_status.params(asked.agent),
        _standing,
    ),
    _row(
        "approvals_list",
        "List what agents want to do and wait to be allowed, the oldest first.",
        ListApprovals,
        approvals.list_approvals,
        lambda asked: approvals.list_approvals.params(session=asked.session_key, limit=0),
        lambda _, found: WaitingList(tuple(map(_waiting, found.pending))),
        approving=True,
    ),
    _row(
        "approvals_answer",
        "Allow once, or deny, what an agent waits for. Only what the owner of this home wants.",
        AnswerApproval,
        approvals.answer_approval,
        lambda asked: approvals.answer_approval.params(
            id=asked.id, answer=asked.answer, where="mcp", digest=asked.digest
        ),
        lambda _, settled: Settled(settled.approval.id, settled.approval.status),
        destructive=True,
        approving=True,
    ),
)
