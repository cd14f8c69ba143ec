"""Approvals and grants from any door: what waits, deciding, and what a rule would let through before it is given.

Who decides is not taken from the parameters: whoever may call these operations acts for the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.ledger.audit import PastCommand
from palinurus.operations.bounds import Count, Days
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.operations.trials import Trial, read_examples, try_rules
from palinurus.tools.approvals.approval import Answer, Approval, must_be_confirmed
from palinurus.tools.approvals.granting import rules_for
from palinurus.tools.approvals.proposals import Proposal, alike, narrowest
from palinurus.tools.approvals.rendering import render_plan, visible
from palinurus.tools.approvals.sensitive import warnings
from palinurus.tools.commands.allowlist import line_id
from palinurus.tools.grants.grants import EXEC, Grant, GrantDraft, Scope, words

OWNER = "owner"
MOST_OF_A_COMMAND = 500  # characters of the last one that a line of the config let through
EXAMPLES = 50  # of the past, that a proposal is made from


class ListApprovals(Struct, frozen=True):
    session: str = ""
    limit: Count = 20  # of those that are settled


class ApprovalList(Struct, frozen=True):
    pending: tuple[Approval, ...]  # oldest first
    settled: tuple[Approval, ...]  # newest first


class ShowApproval(Struct, frozen=True):
    id: str


class Proposed(Struct, frozen=True, omit_defaults=True):
    """A rule as it is written."""

    rule: str
    examples: int
    remark: str = ""


class ShownApproval(Struct, frozen=True, rename="camel"):
    approval: Approval
    lines: tuple[str, ...]  # the plan for a person
    why_not_always: str
    always: Trial | None  # what allow-always would let through from now on
    proposals: tuple[Proposed, ...]  # wider rules, from commands like this one that were allowed before


class AnswerApproval(Struct, frozen=True):
    id: str
    answer: Answer
    where: str = "cli"  # by which door
    digest: str = ""  # of the plan that was shown
    rule: str = ""  # with allow-always: a wider one
    scope: Scope = "agent"
    days: Days | None = None
    confirmed: bool = False  # a second yes, where always stands out: NotConfirmed asks for it


class Answered(Struct, frozen=True):
    approval: Approval
    grants: tuple[Grant, ...] = ()


class ListGrants(Struct, frozen=True):
    ended: bool = False  # those that no longer hold as well


class AllowedLine(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line of tools.exec.allowlist, and when it last let a command through, as far as the audit log tells."""

    agent: str
    pattern: str
    last_used_at: int | None = None
    last_used_command: str = ""


class GrantList(Struct, frozen=True):
    grants: tuple[Grant, ...]
    allowlist: tuple[AllowedLine, ...] = ()  # what the config allows


class PreviewRule(Struct, frozen=True):
    """A rule, or commands from which the narrowest one is made."""

    rule: str = ""
    examples: tuple[str, ...] = ()
    agent: str = ""


class Preview(Struct, frozen=True):
    rules: tuple[Proposed, ...]
    trial: Trial


class MakeGrant(Struct, frozen=True):
    rule: str = ""
    examples: tuple[str, ...] = ()
    agent: str = ""
    session: str = ""  # for scope session
    scope: Scope = "agent"
    days: Days | None = None
    confirmed: bool = False


class RevokeGrant(Struct, frozen=True):
    id: str


async def _list(house: House, params: ListApprovals) -> ApprovalList:
    pending = await house.approvals.pending(params.session)
    recent = await house.approvals.recent(limit=params.limit + len(pending))
    settled = [each for each in recent if each.status != "pending" and params.session in ("", each.session_key)]
    return ApprovalList(tuple(pending), tuple(settled[: params.limit]))


async def _show(house: House, params: ShowApproval) -> ShownApproval:
    approval = await house.approvals.find(params.id)
    plan = approval.plan
    why = house.approvals.why_not_always(approval)
    lines = tuple(render_plan(plan))
    if why or plan.tool != EXEC:
        return ShownApproval(approval, lines, why, None, ())
    exact = rules_for(plan)
    trial = await try_rules(house, exact, SessionKey.parse(approval.session_key))
    return ShownApproval(approval, lines, "", trial, tuple(map(_proposed, await _wider(house, approval, exact))))


async def _wider(house: House, approval: Approval, exact: Sequence[GrantDraft]) -> list[Proposal]:
    past = await house.audit.commands(agent=SessionKey.parse(approval.session_key).agent)
    found: list[Proposal] = []
    for each in approval.plan.invocations:
        found += narrowest((each, *alike(each, past)[:EXAMPLES]))
    return [proposal for proposal in found if proposal.examples > 1 and proposal.draft not in exact]


async def _answer(house: House, params: AnswerApproval) -> Answered:
    approval = await house.approvals.find(params.id)
    agent = SessionKey.parse(approval.session_key).agent
    drafts = [await asyncio.to_thread(house.approvals.granting.read, params.rule, agent)] if params.rule else []
    if drafts and not params.confirmed:
        must_be_confirmed(await _past(house, rules_for(approval.plan, drafts), SessionKey.parse(approval.session_key)))
    settled = await house.approvals.answer(
        approval.id,
        params.answer,
        by=OWNER,
        where=params.where,
        digest=params.digest,
        drafts=drafts,
        scope=params.scope,
        days=params.days,
        confirmed=params.confirmed,
    )
    given = settled.grant_id.split(",")
    return Answered(settled, tuple(grant for grant in await house.grants.all() if grant.id in given))


async def _past(house: House, rules: Sequence[GrantDraft], key: SessionKey) -> list[str]:
    """What stands out among past commands that a wider rule would have let through."""
    trial = await try_rules(house, rules, key)
    if not trial.sensitive:
        return []
    first = trial.sensitive[0]
    such = f"{visible(first.command)} ({', '.join(first.reasons)})"
    return [f"{trial.sensitive_count:,} commands that stand out, such as {such}"]


async def _grants(house: House, params: ListGrants) -> GrantList:
    now = house.clock.now_ms()
    known = await house.grants.all()
    held = [each for each in known if each.revoked_at is None and (each.expires_at is None or each.expires_at > now)]
    return GrantList(tuple(known if params.ended else held), tuple(await _allowed_lines(house)))


async def _allowed_lines(house: House) -> list[AllowedLine]:
    found = []
    for agent in house.agents.ids:
        lines = house.hands.settings(agent).exec.allowlist
        used: dict[str, PastCommand] = {}
        for past in await house.audit.commands(agent=agent) if lines else ():
            for granted in past.granted:
                used.setdefault(granted, past)  # the newest comes first
        for line in lines:
            last = used.get(line_id(line))
            told = (last.at, last.plan.summary[:MOST_OF_A_COMMAND]) if last else (None, "")
            found.append(AllowedLine(agent, line, *told))
    return found


async def _preview(house: House, params: PreviewRule) -> Preview:
    key = SessionKey.main(params.agent or house.agents.default)
    return await _previewed(house, await _rules(house, params.rule, params.examples, key), key)


async def _grant(house: House, params: MakeGrant) -> GrantList:
    key = SessionKey.main(params.agent or house.agents.default)
    if params.session:
        key = await house.dispatcher.place(Inbound("", "", session_key=params.session, agent=params.agent))
    elif params.scope == "session":
        raise BadRequest("a grant for a session needs its key", hint="--session agent:main:main")
    house.agents.get(key.agent)  # raises NotFound
    rules = await _rules(house, params.rule, params.examples, key)
    granting = house.approvals.granting
    drafts = [each.draft for each in rules]
    if not params.confirmed:
        must_be_confirmed((*warnings(drafts, programs=False), *await _past(house, drafts, key)))
    grants = await granting.drawn_up(drafts, session_key=str(key), by=OWNER, scope=params.scope, days=params.days)
    await granting.give(grants)
    return GrantList(tuple(grants))


async def _rules(house: House, rule: str, examples: Sequence[str], key: SessionKey) -> Sequence[Proposal]:
    if bool(rule) == bool(examples):
        raise BadRequest("either a rule or examples of commands", hint="for example the rule `git diff *`")
    if examples:
        return await asyncio.to_thread(read_examples, house.approvals.granting, examples, key.agent)
    return [Proposal(await asyncio.to_thread(house.approvals.granting.read, rule, key.agent), 0)]


async def _previewed(house: House, rules: Sequence[Proposal], key: SessionKey) -> Preview:
    trial = await try_rules(house, [each.draft for each in rules], key)
    return Preview(tuple(map(_proposed, rules)), trial)


async def _revoke(house: House, params: RevokeGrant) -> Grant:
    return await house.approvals.granting.revoke(params.id)


def _proposed(proposal: Proposal) -> Proposed:
    return Proposed(words(proposal.draft), proposal.examples, proposal.remark)


LIST = Operation("approvals.list", ListApprovals, ApprovalList, "read", _list)
SHOW = Operation("approvals.show", ShowApproval, ShownApproval, "read", _show)
ANSWER = Operation("approvals.answer", AnswerApproval, Answered, "approvals", _answer)
GRANTS = Operation("approvals.grants", ListGrants, GrantList, "read", _grants)
PREVIEW = Operation("approvals.preview", PreviewRule, Preview, "read", _preview)
GRANT = Operation("approvals.grant", MakeGrant, GrantList, "approvals", _grant)
REVOKE = Operation("approvals.revoke", RevokeGrant, Grant, "approvals", _revoke)
OPERATIONS = (LIST, SHOW, ANSWER, GRANTS, PREVIEW, GRANT, REVOKE)
