"""Approvals in OpenClaw's shape: what waits for a person, deciding, waiting for the decision, and what may run unasked.

The operations approvals.* say more, and are what our own doors use: plans, wider rules, grants. What may run unasked is
not set by a call (exec.approvals.set): a grant is given for a plan that somebody has seen, or on the machine.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import NotOffered
from palinurus.domain.keys import SessionKey
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.approvals import Answered, answer_approval, list_grants
from palinurus.sessions.names import name_key
from palinurus.tools.approvals.approval import Approval
from palinurus.tools.grants.grants import words

Decision = Literal["allow-once", "allow-always", "deny"]
DECISIONS: Mapping[str, Decision] = {
    "allowed-once": "allow-once",
    "allowed-always": "allow-always",
    "denied": "deny",
}
SLACK_MS = 2_000  # after its deadline somebody still has to write down that nobody answered


class AskPending(Struct, frozen=True, rename="camel"):
    session_key: str = ""


class ShownRequest(Struct, frozen=True, rename="camel", omit_defaults=True):
    command: str
    command_argv: tuple[str, ...]
    cwd: str
    host: str
    agent_id: str
    session_key: str
    run_id: str
    tool: str
    warning_text: str = ""
    env_keys: tuple[str, ...] = ()


class PendingApproval(Struct, frozen=True, rename="camel"):
    id: str
    request: ShownRequest
    created_at_ms: int
    expires_at_ms: int
    digest: str
    approval_kind: str


class AskApproval(Struct, frozen=True):
    id: str


class OneApproval(Struct, frozen=True, rename="camel"):
    id: str
    command_text: str
    command_preview: str
    allowed_decisions: tuple[Decision, ...]
    host: str
    agent_id: str
    expires_at_ms: int
    digest: str
    status: str


class Resolve(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`digest` is that of the plan that was shown: with it, nothing else can be released by the decision."""

    id: str
    decision: Decision
    digest: str = ""
    grant_expires_in_days: Annotated[float, Meta(gt=0, le=3650)] | None = None
    confirmed: bool = False  # a second yes: an allow-always that stands out is refused as NOT_CONFIRMED without it
    idempotency_key: str = ""


class Resolved(Struct, frozen=True):
    ok: bool = True


class Awaited(Struct, frozen=True, rename="camel"):
    id: str
    decision: Decision | None  # None: nobody has decided in time
    created_at_ms: int
    expires_at_ms: int


class AskPolicy(Struct, frozen=True):
    pass


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


class SetPolicy(Struct, frozen=True, rename="camel"):
    file: Any = None
    base_hash: str = ""
    idempotency_key: str = ""


async def _list(talk: Talk, params: AskPending) -> tuple[PendingApproval, ...]:
    house, name = talk.desk.house, params.session_key
    wanted = name and await name_key(house.sessions, name, agent=house.agents.default)
    return tuple(map(_pending, await talk.desk.house.approvals.pending(wanted)))


async def _get(talk: Talk, params: AskApproval) -> OneApproval:
    found = await talk.desk.house.approvals.find(params.id)
    once: tuple[Decision, ...] = ("allow-once", "deny")
    lasting = not talk.desk.house.approvals.why_not_always(found)
    return OneApproval(
        id=found.id,
        command_text=found.plan.summary,
        command_preview=found.plan.summary[:200],
        allowed_decisions=("allow-once", "allow-always", "deny") if lasting else once,
        host=found.plan.where,
        agent_id=SessionKey.parse(found.session_key).agent,
        expires_at_ms=found.deadline,
        digest=found.digest,
        status=found.status,
    )


async def _answer(talk: Talk, params: Struct) -> Answered:
    """By which door it came is not for the caller to say."""
    return await answer_approval.handler(talk.desk.house, msgspec.structs.replace(params, where="gateway"))


async def _resolve(talk: Talk, params: Resolve) -> Resolved:
    await answer_approval(
        talk.desk.house,
        id=params.id,
        answer=params.decision,
        where="gateway",
        digest=params.digest,
        days=params.grant_expires_in_days,
        confirmed=params.confirmed,
    )
    return Resolved()


async def _wait(talk: Talk, params: AskApproval) -> Awaited:
    house = talk.desk.house
    ear = _Ear(params.id)
    found = await house.approvals.find(params.id)
    ear.id = found.id
    talk.desk.hub.listen(ear, found.session_key)
    try:
        found = await house.approvals.find(found.id)  # it may have been settled while nobody listened
        if found.status == "pending":
            left = max(0, found.deadline - house.clock.now_ms()) + SLACK_MS
            async with asyncio.timeout(left / 1000):
                await ear.settled.wait()
    except TimeoutError:
        pass  # nobody has decided
    finally:
        talk.desk.hub.leave(ear)
    status = ear.status or found.status
    return Awaited(found.id, DECISIONS.get(status), found.asked_at, found.deadline)


class _Ear:
    """Implements frames.hub.Listener: hears how one approval is settled."""

    def __init__(self, approval_id: str) -> None:
        self.id = approval_id
        self.status = ""
        self.settled = asyncio.Event()

    def hear(self, event: str, payload: msgspec.Raw) -> None:
        if event != "approval":
            return
        told = msgspec.json.decode(payload)
        if told.get("id") == self.id and told.get("status"):
            self.status = str(told["status"])
            self.settled.set()


async def _policy(talk: Talk, _: AskPolicy) -> PolicySnapshot:
    house = talk.desk.house
    known = await list_grants(house)
    agents: dict[str, AgentPolicy] = {}
    for agent in house.agents.ids:
        settings = house.hands.settings(agent).exec
        rules = [
            AllowedRule(each.pattern, last_used_at=each.last_used_at, last_used_command=each.last_used_command)
            for each in known.allowlist
            if each.agent == agent
        ]
        rules += [
            AllowedRule(words(each), each.id, "grant", each.expires_at, each.last_used_at, each.last_used_command)
            for each in known.grants
            if each.agent in ("", agent)
        ]
        agents[agent] = AgentPolicy(settings.security, settings.ask, settings.ask_fallback, tuple(rules))
    file = PolicyFile(agents)
    digest = hashlib.sha256(msgspec.json.encode(file, order="sorted")).hexdigest()
    return PolicySnapshot("", True, digest, file)


async def _set_policy(_: Talk, __: SetPolicy) -> Any:
    raise NotOffered(
        "what may run unasked is not set by a call",
        hint="allow-always an approval, approvals.grant for one rule, or `pal config set` on the machine",
    )


def _pending(approval: Approval) -> PendingApproval:
    plan = approval.plan
    request = ShownRequest(
        command=plan.summary,
        command_argv=plan.argv,
        cwd=plan.cwd,
        host=plan.where,
        agent_id=SessionKey.parse(approval.session_key).agent,
        session_key=approval.session_key,
        run_id=approval.run_id,
        tool=approval.tool,
        warning_text=approval.reason,
        env_keys=plan.env,
    )
    kind = "exec" if approval.tool == "exec" else "tool"
    return PendingApproval(approval.id, request, approval.asked_at, approval.deadline, approval.digest, kind)


METHODS = (
    Method(
        "exec.approval.list",
        AskPending,
        tuple[PendingApproval, ...],
        "approvals",
        _list,
        about="What waits for a yes, the oldest first.",
    ),
    Method("exec.approval.get", AskApproval, OneApproval, "approvals", _get, about="One approval, by its id."),
    Method(
        "approvals.answer",
        answer_approval.params,
        Answered,
        "approvals",
        _answer,
        about="Decide about an approval, if need be for good and by a wider rule.",
    ),
    Method("exec.approval.resolve", Resolve, Resolved, "approvals", _resolve, about="Decide about an approval."),
    Method(
        "exec.approval.waitDecision",
        AskApproval,
        Awaited,
        "approvals",
        _wait,
        about="Answered when somebody has decided, or nobody in time.",
        repeatable=True,
    ),
    Method("exec.approvals.get", AskPolicy, PolicySnapshot, "admin", _policy, about="What may run unasked."),
    Method("exec.approvals.set", SetPolicy, dict[str, Any], "admin", _set_policy, about="Not offered."),
)
