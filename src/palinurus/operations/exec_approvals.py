"""Approvals under OpenClaw's names: what waits for a person, waiting for the decision, and what may run unasked.

The operations approvals.* say more, and are what our own surfaces use: plans, wider rules, grants. What may run unasked
is not set by a call (exec.approvals.set): a grant is given for a plan that somebody has seen, or on the machine.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from palinurus.domain.errors import NotFound, NotOffered
from palinurus.domain.events import ApprovalSettled
from palinurus.domain.keys import SessionKey
from palinurus.operations.approvals import list_grants
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.operations.shapes import From, made_of
from palinurus.sessions.names import name_key
from palinurus.tools.approval import Approval
from palinurus.tools.grants import rule_text

Decision = Literal["allow-once", "allow-always", "deny"]
DECISIONS: Mapping[str, Decision] = {
    "allowed-once": "allow-once",
    "allowed-always": "allow-always",
    "denied": "deny",
}
SLACK_MS = 2_000  # after its deadline somebody still has to write down that nobody answered


class ExecRequest(Struct, frozen=True, rename="camel", omit_defaults=True):
    command: Annotated[str, From("plan.summary")]
    command_argv: Annotated[tuple[str, ...], From("plan.argv")]
    cwd: Annotated[str, From("plan.cwd")]
    host: Annotated[str, From("plan.where")]
    agent_id: str
    session_key: str
    run_id: str
    tool: str
    warning_text: Annotated[str, From("reason")] = ""
    env_keys: Annotated[tuple[str, ...], From("plan.env")] = ()


class PendingApproval(Struct, frozen=True, rename="camel"):
    id: str
    request: ExecRequest
    created_at_ms: Annotated[int, From("asked_at")]
    expires_at_ms: Annotated[int, From("deadline")]
    digest: str
    approval_kind: str


class OneApproval(Struct, frozen=True, rename="camel"):
    id: str
    command_text: Annotated[str, From("plan.summary")]
    command_preview: str
    allowed_decisions: tuple[Decision, ...]
    host: Annotated[str, From("plan.where")]
    agent_id: str
    expires_at_ms: Annotated[int, From("deadline")]
    digest: str
    status: str


class AwaitedDecision(Struct, frozen=True, rename="camel"):
    id: str
    decision: Decision | None  # None: nobody has decided in time
    created_at_ms: int
    expires_at_ms: int


class AllowedRule(Struct, frozen=True, rename="camel", omit_defaults=True):
    pattern: str
    id: str = ""
    source: str = "config"
    expires_at: int | None = None
    last_used_at: int | None = None
    last_used_command: str = ""


class AgentPolicy(Struct, frozen=True, rename="camel"):
    security: str
    ask: str
    ask_fallback: str
    allowlist: tuple[AllowedRule, ...]


class PolicyFile(Struct, frozen=True):
    agents: dict[str, AgentPolicy]
    version: int = 1


class PolicySnapshot(Struct, frozen=True):
    """What may run unasked, as the config and the grants say it. It is no file."""

    path: str
    exists: bool
    hash: str
    file: PolicyFile


@operation("exec.approval.list", scope="approvals", strict=False)
async def list_pending(services: Services, session_key: str = "") -> tuple[PendingApproval, ...]:
    """What waits for a yes, the oldest first."""
    wanted = session_key and await name_key(services.sessions, session_key, agent=services.agents.default)
    return tuple(map(pending_approval, await services.approvals.pending(wanted)))


def pending_approval(approval: Approval) -> PendingApproval:
    request = made_of(ExecRequest, approval, agent_id=SessionKey.parse(approval.session_key).agent)
    kind = "exec" if approval.tool == "exec" else "tool"
    return made_of(PendingApproval, approval, request=request, approval_kind=kind)


@operation("exec.approval.get", scope="approvals", strict=False)
async def get_approval(services: Services, id: str) -> OneApproval:  # noqa: A002  as it is called on the wire
    """One approval, by its id."""
    found = await services.approvals.find(id)
    lasting = not services.approvals.why_not_always(found)
    return made_of(
        OneApproval,
        found,
        command_preview=found.plan.summary[:200],
        allowed_decisions=("allow-once", "allow-always", "deny") if lasting else ("allow-once", "deny"),
        agent_id=SessionKey.parse(found.session_key).agent,
    )


@operation("exec.approval.waitDecision", scope="approvals", strict=False, repeatable=True)
async def wait_for_decision(services: Services, id: str) -> AwaitedDecision:  # noqa: A002
    """Wait until somebody has decided, or the time is over."""
    found = await services.approvals.find(id)
    if found.status == "pending":
        left = max(0, found.deadline - services.clock.now_ms()) + SLACK_MS
        with suppress(TimeoutError, NotFound):  # nobody has decided, or its run has gone
            async with asyncio.timeout(left / 1000):
                await _settled(services, found)
        found = await services.approvals.find(found.id)
    return AwaitedDecision(found.id, DECISIONS.get(found.status), found.asked_at, found.deadline)


async def _settled(services: Services, approval: Approval) -> None:
    """Returns when the run that asks has been answered, or is over. Raises NotFound when it is none."""
    run = await services.dispatcher.find(approval.run_id)
    async for event in run.events():
        if isinstance(event, ApprovalSettled) and event.id == approval.id:
            return


@operation("exec.approvals.get", scope="admin", strict=False)
async def get_policy(services: Services) -> PolicySnapshot:
    """What may run unasked."""
    known = await list_grants(services)
    agents: dict[str, AgentPolicy] = {}
    for agent in services.agents.ids:
        settings = services.toolsets.settings(agent).exec
        rules = [made_of(AllowedRule, each) for each in known.allowlist if each.agent == agent]
        rules += [
            made_of(AllowedRule, each, pattern=rule_text(each), source="grant")
            for each in known.grants
            if each.agent in ("", agent)
        ]
        agents[agent] = AgentPolicy(settings.security, settings.ask, settings.ask_fallback, tuple(rules))
    file = PolicyFile(agents)
    digest = hashlib.sha256(msgspec.json.encode(file, order="sorted")).hexdigest()
    return PolicySnapshot("", True, digest, file)


@operation("exec.approvals.set", scope="admin", strict=False)
async def set_policy(services: Services, file: Any = None, base_hash: str = "") -> dict[str, Any]:
    """Not offered."""
    raise NotOffered(
        "what may run without approval cannot be set by a call",
        hint="allow-always an approval, approvals.grant for one rule, or `pal config set` on the machine",
    )
