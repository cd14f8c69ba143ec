"""Commands of cron jobs. A person approves exactly one: the approval is a grant that names the words, the folder, the
programs behind them and where they run, and holds in the session of this cron job only. Whatever has changed at the due
time asks again, and until then the due time fails.

The command itself is an unattended call of exec, through the ordinary gate. Outside the sandbox exec wants a grant of
its own for each program, which is given together with the approval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotConfirmed
from palinurus.domain.events import Plan, render_plan
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall, text_of
from palinurus.domain.tool import ToolOutput
from palinurus.extensions.schedule.cron_job import CommandPayload, CronJob, DueOutcome
from palinurus.operations.services import Services
from palinurus.operations.tool_invocation import UnattendedCalls, unattended_calls
from palinurus.tools.grant_issuer import LONGEST_DAYS, GrantTerms, rules_for
from palinurus.tools.grants import EXEC, covers_call, exact_call

APPROVED = "cron"  # in place of a tool's name in the grant
CHANNEL = "cron"
PREPARE_SECONDS = 60.0
LONGER = 30.0  # seconds that the call may take besides the command


class CommandPlan(Struct, frozen=True, rename="camel"):
    """What a command would do, or another text says. `digest` is what a person approves."""

    lines: tuple[str, ...]
    digest: str
    question: str = "Run exactly this at its due times?"


class _CommandInspection(Struct, frozen=True):
    plan: Plan
    asks: bool  # exec wants grants
    identity: dict[str, Any]  # what the approval names

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self.identity, order="sorted")).hexdigest()


async def plan_command(services: Services, agent: str, payload: CommandPayload) -> CommandPlan:
    """Raises BadRequest for a command that cannot be approved."""
    key = SessionKey(agent, "cron", peer="new")
    found = await _inspect(await _calls(services, key, "plan"), payload)
    if isinstance(found, str):
        raise BadRequest(f"this command cannot run: {found}")
    return CommandPlan(tuple(render_plan(found.plan)), found.digest)


async def approve_command(services: Services, cron: CronJob, digest: str) -> None:
    """Gives the grants for a plan that a person was shown. Raises NotConfirmed where they were shown another, or none.

    Grants of an earlier command of this cron job end."""
    assert isinstance(cron.payload, CommandPayload)  # noqa: S101
    found = await _inspect(await _calls(services, cron.own_session, "approve"), cron.payload)
    if isinstance(found, str):
        raise BadRequest(f"this command cannot run: {found}")
    if digest != found.digest:
        raise NotConfirmed(
            "a person must approve exactly this command", hint="`pal cron add --command …` shows it and asks"
        )
    issuer, drafts = services.approvals.issuer, [exact_call(APPROVED, found.identity)]
    if found.asks:
        if why := issuer.why_not(found.plan, cron.agent_id):
            raise BadRequest(f"this command cannot be approved for good: {why}")
        drafts += rules_for(found.plan)
    await withdraw_approval(services, cron)
    terms = GrantTerms(drafts, "session", LONGEST_DAYS, confirmed=True)
    await issuer.issue(terms, session_key=str(cron.own_session), by="owner")


async def withdraw_approval(services: Services, cron: CronJob) -> None:
    for grant in await services.grants.all():
        if grant.session_key == str(cron.own_session) and grant.revoked_at is None:
            await services.grants.revoke(grant.id, services.clock.now_ms())


async def run_command(services: Services, cron: CronJob, run_key: str) -> tuple[DueOutcome, tuple[str, ...]]:
    """The outcome with the whole output, and the sources of outside text in it."""
    assert isinstance(cron.payload, CommandPayload)  # noqa: S101
    calls, payload = await _calls(services, cron.own_session, run_key), cron.payload
    kinds = await calls.recorded()
    if kinds.count("call") > kinds.count("result"):
        return DueOutcome("skipped", "it was started before, its end is unknown, and it is not repeated"), ()
    found = await _inspect(calls, payload)
    if isinstance(found, str):
        return DueOutcome("failed", found), ()
    if not await _is_approved(services, cron, found.identity):
        why = "no person has approved this command as it is now"
        return DueOutcome("failed", f"{why}; `pal cron approve {cron.id}` shows it and asks"), ()
    call = ToolCall(f"{run_key}:{len(kinds)}", EXEC, _arguments(payload))
    result = await calls.make(call, payload.timeout_seconds + LONGER)
    code = (result.details or {}).get("exitCode")
    if result.is_error or code != 0:
        return DueOutcome("failed", result.text.strip()[-1000:]), ()
    output = result.text.rpartition("\n[")[0] if result.text.endswith("]") else result.text
    sources = (f"cron:{cron.id}",) if result.origin == Origin.OUTSIDE else ()
    return DueOutcome("ran", text="" if output == "(no output)" else output), sources


async def _calls(services: Services, key: SessionKey, run_key: str) -> UnattendedCalls:
    calls = await unattended_calls(services, key, EXEC, f"cron-{run_key}", channel=CHANNEL, sender=f"cron:{key.peer}")
    if calls is None:
        raise BadRequest(f"the agent {key.agent} has no tool exec")
    return calls


async def _inspect(calls: UnattendedCalls, payload: CommandPayload) -> _CommandInspection | str:
    """Or why it cannot run."""
    prepared = await calls.prepare(_arguments(payload), PREPARE_SECONDS)
    if prepared is None or isinstance(prepared, ToolOutput):
        return text_of(prepared.content) if prepared else "exec does not say what it would do"
    prepared.release()
    if prepared.refusal:
        return prepared.refusal
    plan = prepared.plan
    programs = [[each.binary, each.resolved] for each in plan.invocations]
    identity = {"argv": list(payload.argv), "cwd": payload.cwd, "programs": programs, "where": plan.where}
    return _CommandInspection(plan, bool(prepared.ask), identity)


async def _is_approved(services: Services, cron: CronJob, identity: Mapping[str, Any]) -> bool:
    key, now = cron.own_session, services.clock.now_ms()
    grants = await services.grants.active(agent=key.agent, session_key=str(key), now=now)
    return any(grant.scope == "session" and covers_call(grant, APPROVED, identity) for grant in grants)


def _arguments(payload: CommandPayload) -> dict[str, Any]:
    seconds = payload.timeout_seconds
    return {
        "argv": list(payload.argv),
        "workdir": payload.cwd,
        "timeout": seconds,
        "yield_ms": round((seconds + LONGER) * 1000),  # it is never left in the background
    }
