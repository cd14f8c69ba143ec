"""Approvals and questions as `openclaw approvals` and the TUI want them, over our own approvals.

OpenClaw has other kinds: of plugins, of its system agent, and questions of agents. There are none here, and their lists
are empty.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct
from msgspec.structs import replace

from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations.approvals import AnswerApproval, answer_approval
from palinurus.operations.exec_approvals import DECISIONS, Decision, get_approval
from palinurus.tools.approval import Approval, Status

STATES: dict[Status, Literal["pending", "allowed", "denied", "expired", "cancelled"]] = {
    "pending": "pending",
    "allowed-once": "allowed",
    "allowed-always": "allowed",
    "denied": "denied",
    "expired": "expired",
    "unattended": "cancelled",
    "abandoned": "cancelled",
}
REASONS: dict[Status, str] = {"expired": "timeout", "unattended": "no-route", "abandoned": "run-ended"}


class ApprovalText(Struct, frozen=True, rename="camel"):
    """What a person is shown."""

    command_text: str
    command_preview: str
    allowed_decisions: tuple[Decision, ...]
    host: str
    agent_id: str
    session_key: str
    warning_text: str
    kind: str = "exec"


class ApprovalResolver(Struct, frozen=True):
    kind: str  # on which surface
    id: str


class ApprovalState(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    status: str
    presentation: ApprovalText
    url_path: str
    created_at_ms: int
    expires_at_ms: int
    digest: str
    resolved_at_ms: int | None = None
    reason: str = ""
    decision: Decision | None = None
    resolver: ApprovalResolver | None = None


class ApprovalAnswer(Struct, frozen=True):
    approval: ApprovalState


class ResolvedApproval(Struct, frozen=True):
    applied: bool  # False: it was decided before
    approval: ApprovalState


class Questions(Struct, frozen=True):
    questions: tuple[str, ...] = ()


async def _state(client: ClientSession, found: Approval) -> ApprovalState:
    shown = await get_approval(client.services, id=found.id)
    key, where = found.session_key, shown.host or "gateway"
    text = (shown.command_text, shown.command_preview, shown.allowed_decisions, where, shown.agent_id, key)
    state = ApprovalState(
        found.id,
        STATES[found.status],
        ApprovalText(*text, found.reason),
        f"/approvals#{found.id}",
        found.asked_at,
        found.deadline,
        found.digest,
    )
    if found.status == "pending":
        return state
    told = {"resolved_at_ms": found.decided_at, "reason": REASONS.get(found.status, "user")}
    decided = {"decision": DECISIONS.get(found.status), **told}
    return replace(state, resolver=ApprovalResolver(found.decided_where, found.decided_by), **decided)


@method("approval.get", scope="approvals")
async def find_approval(client: ClientSession, id: str) -> ApprovalAnswer:  # noqa: A002  as it is called on the wire
    """One approval, waiting or decided."""
    return ApprovalAnswer(await _state(client, await client.services.approvals.find(id)))


@method("approval.resolve", scope="approvals")
async def resolve_approval(
    client: ClientSession,
    id: str,  # noqa: A002
    decision: Decision,
    kind: Annotated[str, "exec; there is no other."] = "exec",
    grant_expires_in_days: int | None = None,
) -> ResolvedApproval:
    """Answer an approval. One that is decided already stays as it is."""
    approvals = client.services.approvals
    found = await approvals.find(id)
    if pending := found.status == "pending":
        answer = AnswerApproval(found.id, decision, digest=found.digest, days=grant_expires_in_days)
        await answer_approval.run(client.services, answer, client.principal.caller)
    return ResolvedApproval(pending, await _state(client, await approvals.find(found.id)))


@method("plugin.approval.list", scope="approvals")
async def list_plugin_approvals(client: ClientSession) -> tuple[str, ...]:
    """Nothing: plugins do not ask here."""
    return ()


@method("openclaw.approval.list", scope="approvals")
async def list_system_approvals(client: ClientSession) -> tuple[str, ...]:
    """Nothing: there is no system agent here."""
    return ()


@method("question.list", scope="read")
async def list_questions(client: ClientSession) -> Questions:
    """Nothing: agents ask in the conversation here."""
    return Questions()
