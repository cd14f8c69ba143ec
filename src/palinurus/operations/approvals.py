"""Approvals and grants from any door: what waits, deciding, and what a rule would let through before it is given.

Who decides is not taken from the parameters: whoever may call these operations acts for the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.ledger.audit import PastCommand
from palinurus.operations.bounds import Days
from palinurus.operations.house import House
from palinurus.operations.operation import Spelling, operation
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
MOST_LISTED = 1_000
EXAMPLES = 50  # of the past, that a proposal is made from


class ApprovalList(Struct, frozen=True):
    pending: tuple[Approval, ...]  # oldest first
    settled: tuple[Approval, ...]  # newest first


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


class Answered(Struct, frozen=True):
    approval: Approval
    grants: tuple[Grant, ...] = ()


class AllowedLine(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line of tools.exec.allowlist, and when it last let a command through, as far as the audit log tells."""

    agent: str
    pattern: str
    last_used_at: int | None = None
    last_used_command: str = ""


class GrantList(Struct, frozen=True):
    grants: tuple[Grant, ...]
    allowlist: tuple[AllowedLine, ...] = ()  # what the config allows


class Preview(Struct, frozen=True):
    rules: tuple[Proposed, ...]
    trial: Trial


@operation("approvals.list", scope="read")
async def list_approvals(
    house: House,
    session: Annotated[str, "Only those of this session."] = "",
    limit: Annotated[int, Meta(ge=0, le=MOST_LISTED), "How many that are settled."] = 10,
) -> ApprovalList:
    """List what waits for an answer, and what became of the last ones.

    Example:
      pal approvals list
    """
    pending = await house.approvals.pending(session)
    recent = await house.approvals.recent(limit=limit + len(pending))
    settled = [each for each in recent if each.status != "pending" and session in ("", each.session_key)]
    return ApprovalList(tuple(pending), tuple(settled[:limit]))


@operation("approvals.show", scope="read")
async def show_approval(house: House, id: str) -> ShownApproval:  # noqa: A002  as it is called on the wire
    """Show the exact plan, and what allowing it always would let through.

    Example:
      pal approvals show k3m9xz
    """
    approval = await house.approvals.find(id)
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


@operation("approvals.answer", scope="approvals")
async def answer_approval(
    house: House,
    id: str,  # noqa: A002
    answer: Answer,
    where: Annotated[str, "By which door."] = "cli",
    digest: Annotated[str, "Of the plan that was shown."] = "",
    rule: Annotated[str, "With allow-always: a wider one."] = "",
    scope: Scope = "agent",
    days: Days | None = None,
    confirmed: Annotated[bool, "A second yes, where always stands out: NotConfirmed asks for it."] = False,
) -> Answered:
    """Decide about an approval, if need be for good and by a wider rule."""
    approval = await house.approvals.find(id)
    agent = SessionKey.parse(approval.session_key).agent
    drafts = [await asyncio.to_thread(house.approvals.granting.read, rule, agent)] if rule else []
    if drafts and not confirmed:
        must_be_confirmed(await _past(house, rules_for(approval.plan, drafts), SessionKey.parse(approval.session_key)))
    settled = await house.approvals.answer(
        approval.id,
        answer,
        by=OWNER,
        where=where,
        digest=digest,
        drafts=drafts,
        scope=scope,
        days=days,
        confirmed=confirmed,
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


@operation("approvals.grants", scope="read")
async def list_grants(
    house: House, ended: Annotated[bool, Spelling("--all"), "Those that were revoked or have expired as well."] = False
) -> GrantList:
    """List what is allowed for longer.

    Example:
      pal approvals grants
    """
    now = house.clock.now_ms()
    known = await house.grants.all()
    held = [each for each in known if each.revoked_at is None and (each.expires_at is None or each.expires_at > now)]
    return GrantList(tuple(known if ended else held), tuple(await _allowed_lines(house)))


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


@operation("approvals.preview", scope="read")
async def preview_rule(house: House, rule: str = "", examples: tuple[str, ...] = (), agent: str = "") -> Preview:
    """What a rule would have let through, or the narrowest one that is made of examples of commands."""
    key = SessionKey.main(agent or house.agents.default)
    rules = await _rules(house, rule, examples, key)
    trial = await try_rules(house, [each.draft for each in rules], key)
    return Preview(tuple(map(_proposed, rules)), trial)


@operation("approvals.grant", scope="approvals")
async def make_grant(
    house: House,
    rule: str = "",
    examples: tuple[str, ...] = (),
    agent: str = "",
    session: Annotated[str, "For scope session."] = "",
    scope: Scope = "agent",
    days: Days | None = None,
    confirmed: bool = False,
) -> GrantList:
    """Allow commands for longer, by a rule or by examples of them."""
    key = SessionKey.main(agent or house.agents.default)
    if session:
        key = await house.dispatcher.place(Inbound("", "", session_key=session, agent=agent))
    elif scope == "session":
        raise BadRequest("a grant for a session needs its key", hint="--session agent:main:main")
    house.agents.get(key.agent)  # raises NotFound
    rules = await _rules(house, rule, examples, key)
    granting = house.approvals.granting
    drafts = [each.draft for each in rules]
    if not confirmed:
        must_be_confirmed((*warnings(drafts, programs=False), *await _past(house, drafts, key)))
    grants = await granting.drawn_up(drafts, session_key=str(key), by=OWNER, scope=scope, days=days)
    await granting.give(grants)
    return GrantList(tuple(grants))


async def _rules(house: House, rule: str, examples: Sequence[str], key: SessionKey) -> Sequence[Proposal]:
    if bool(rule) == bool(examples):
        raise BadRequest("either a rule or examples of commands", hint="for example the rule `git diff *`")
    if examples:
        return await asyncio.to_thread(read_examples, house.approvals.granting, examples, key.agent)
    return [Proposal(await asyncio.to_thread(house.approvals.granting.read, rule, key.agent), 0)]


@operation("approvals.revoke", scope="approvals")
async def revoke_grant(house: House, id: str) -> Grant:  # noqa: A002
    """Take a grant back. What it covered asks again.

    Example:
      pal approvals revoke t7wq2c
    """
    return await house.approvals.granting.revoke(id)


def _proposed(proposal: Proposal) -> Proposed:
    return Proposed(words(proposal.draft), proposal.examples, proposal.remark)


OPERATIONS = (
    list_approvals,
    show_approval,
    answer_approval,
    list_grants,
    preview_rule,
    make_grant,
    revoke_grant,
)
