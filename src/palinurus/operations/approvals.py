"""Approvals and grants from every surface: what waits, deciding, and what a rule would allow before it is given.

Who decides is not a parameter: whoever may call these operations acts for the owner.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Literal

from msgspec import Meta, Struct

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import Invocation, render_plan, visible
from palinurus.domain.keys import SessionKey
from palinurus.ledger.audit import PastCommand
from palinurus.operations.operation import Days, OptionNames, operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.operations.table import mcp_tool
from palinurus.tools.approval import Answer, Approval
from palinurus.tools.commands.hazards import covers_by_name, runs_other_programs
from palinurus.tools.commands.judge import config_grants, config_line_id, is_safe
from palinurus.tools.grant_issuer import GrantIssuer, GrantTerms, must_be_confirmed, rules_for
from palinurus.tools.grants import EXEC, Grant, GrantDraft, Scope, rule_text
from palinurus.tools.rule_proposals import (
    Proposal,
    Replay,
    narrowest_rules,
    replay_rules,
    similar_invocations,
    warnings,
)
from palinurus.tools.settings import ExecSettings

OWNER = "owner"
MOST_OF_A_COMMAND = 500  # characters of the last one that a line of the config let through
MOST_LISTED = 1_000
EXAMPLES = 50  # of the past, that a proposal is made from


class ApprovalList(Struct, frozen=True):
    pending: tuple[Approval, ...]  # oldest first
    settled: tuple[Approval, ...]  # newest first


class ProposedRule(Struct, frozen=True, omit_defaults=True):
    """A rule as it is written."""

    rule: str
    examples: int
    remark: str = ""


class ShownApproval(Struct, frozen=True, rename="camel"):
    approval: Approval
    lines: tuple[str, ...]  # the plan for a person
    why_not_always: str
    always: Trial | None  # what allow-always would let through from now on
    proposals: tuple[ProposedRule, ...]  # wider rules, from commands like this one that were allowed before


class AnsweredApproval(Struct, frozen=True):
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


class RulePreview(Struct, frozen=True):
    rules: tuple[ProposedRule, ...]
    trial: Trial


APPROVALS_LIST = mcp_tool(
    "approvals_list",
    "List what agents want to do and wait to be allowed, the oldest first.",
    ("session_key", Annotated[str, "only those of this conversation"], ""),
    approving=True,
)


@operation("approvals.list", scope="read", mcp=APPROVALS_LIST)
async def list_approvals(
    services: Services,
    session: Annotated[str, "Only those of this session."] = "",
    limit: Annotated[int, Meta(ge=0, le=MOST_LISTED), "How many decided ones."] = 10,
) -> ApprovalList:
    """List waiting approvals and the last decided ones.

    Example:
      pal approvals list
    """
    pending = await services.approvals.pending(session)
    recent = await services.approvals.recent(limit=limit + len(pending))
    settled = [each for each in recent if each.status != "pending" and session in ("", each.session_key)]
    return ApprovalList(tuple(pending), tuple(settled[:limit]))


@operation("approvals.show", scope="read")
async def show_approval(services: Services, id: str) -> ShownApproval:  # noqa: A002  as it is called on the wire
    """Show the exact call, and what "always" would allow.

    Example:
      pal approvals show k3m9xz
    """
    approval = await services.approvals.find(id)
    plan = approval.plan
    why = services.approvals.why_not_always(approval)
    lines = tuple(render_plan(plan))
    if why or plan.tool != EXEC:
        return ShownApproval(approval, lines, why, None, ())
    exact = rules_for(plan)
    trial = await try_rules(services, exact, SessionKey.parse(approval.session_key))
    return ShownApproval(
        approval, lines, "", trial, tuple(map(_describe_rule, await _wider(services, approval, exact)))
    )


async def _wider(services: Services, approval: Approval, exact: Sequence[GrantDraft]) -> list[Proposal]:
    past = await services.audit.commands(agent=SessionKey.parse(approval.session_key).agent)
    found: list[Proposal] = []
    for each in approval.plan.invocations:
        found += narrowest_rules((each, *similar_invocations(each, past)[:EXAMPLES]))
    return [proposal for proposal in found if proposal.examples > 1 and proposal.draft not in exact]


APPROVALS_ANSWER = mcp_tool(  # an answer for good is not among them: what holds from now on is for the owner to say
    "approvals_answer",
    "Allow once, or deny, what an agent waits for. Only what the owner of this home wants.",
    ("id", Annotated[str, "the approval, as approvals_list tells it"]),
    ("digest", Annotated[str, Meta(min_length=1), "of the plan that was looked at"]),
    ("answer", Literal["allow-once", "deny"]),
    destructive=True,
    approving=True,
)


class AnswerApproval(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    id: str
    answer: Answer
    where: Annotated[str, Meta(description="Which program of this machine; for other callers it is known.")] = "cli"
    digest: Annotated[str, Meta(description="Of the plan that was shown.")] = ""
    rule: Annotated[str, Meta(description="With allow-always: a wider one.")] = ""
    scope: Scope = "agent"
    days: Days | None = None
    confirmed: Annotated[bool, Meta(description="A second yes, after NotConfirmed.")] = False


@operation("approvals.answer", scope="approvals", mcp=APPROVALS_ANSWER)
async def answer_approval(services: Services, params: AnswerApproval, caller: Caller = LOCAL) -> AnsweredApproval:
    """Decide about an approval, if need be for good and by a wider rule."""
    approval = await services.approvals.find(params.id)
    agent = SessionKey.parse(approval.session_key).agent
    drafts = [await asyncio.to_thread(services.approvals.issuer.read, params.rule, agent)] if params.rule else []
    if drafts and not params.confirmed:
        must_be_confirmed(
            await _past(services, rules_for(approval.plan, drafts), SessionKey.parse(approval.session_key))
        )
    settled = await services.approvals.answer(
        approval.id,
        params.answer,
        by=OWNER,
        where=params.where if caller.is_local else caller.surface,
        digest=params.digest,
        always=GrantTerms(drafts, params.scope, params.days, params.confirmed),
    )
    given = settled.grant_id.split(",")
    return AnsweredApproval(settled, tuple(grant for grant in await services.grants.all() if grant.id in given))


async def _past(services: Services, rules: Sequence[GrantDraft], key: SessionKey) -> list[str]:
    """What stands out among past commands that a wider rule would have let through."""
    trial = await try_rules(services, rules, key)
    if not trial.sensitive:
        return []
    first = trial.sensitive[0]
    such = f"{visible(first.command)} ({', '.join(first.reasons)})"
    return [f"{trial.sensitive_count:,} commands that stand out, such as {such}"]


@operation("approvals.grants", scope="read")
async def list_grants(
    services: Services,
    ended: Annotated[bool, OptionNames("--all"), "Also show revoked and expired grants."] = False,
) -> GrantList:
    """List grants.

    Example:
      pal approvals grants
    """
    now = services.clock.now_ms()
    known = await services.grants.all()
    held = [each for each in known if each.revoked_at is None and (each.expires_at is None or each.expires_at > now)]
    return GrantList(tuple(known if ended else held), tuple(await _allowed_lines(services)))


async def _allowed_lines(services: Services) -> list[AllowedLine]:
    found = []
    for agent in services.agents.ids:
        lines = services.toolsets.settings(agent).exec.allowlist
        used: dict[str, PastCommand] = {}
        for past in await services.audit.commands(agent=agent) if lines else ():
            for granted in past.granted:
                used.setdefault(granted, past)  # the newest comes first
        for line in lines:
            last = used.get(config_line_id(line))
            told = (last.at, last.plan.summary[:MOST_OF_A_COMMAND]) if last else (None, "")
            found.append(AllowedLine(agent, line, *told))
    return found


@operation("approvals.preview", scope="read")
async def preview_rule(
    services: Services, rule: str = "", examples: tuple[str, ...] = (), agent: str = ""
) -> RulePreview:
    """What a rule would have let through, or the narrowest one that is made of examples of commands."""
    key = SessionKey.main(agent or services.agents.default)
    rules = await _rules(services, rule, examples, key)
    trial = await try_rules(services, [each.draft for each in rules], key)
    return RulePreview(tuple(map(_describe_rule, rules)), trial)


class MakeGrant(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    rule: str = ""
    examples: tuple[str, ...] = ()
    agent: str = ""
    session: Annotated[str, Meta(description="For scope session.")] = ""
    scope: Scope = "agent"
    days: Days | None = None
    confirmed: bool = False


@operation("approvals.grant", scope="approvals")
async def make_grant(services: Services, params: MakeGrant) -> GrantList:
    """Allow commands for longer, by a rule or by examples of them."""
    key = SessionKey.main(params.agent or services.agents.default)
    if params.session:
        key = await services.dispatcher.place(Inbound("", "", session_key=params.session, agent=params.agent))
    elif params.scope == "session":
        raise BadRequest("a grant for a session needs its key", hint="--session agent:main:main")
    services.agents.get(key.agent)  # raises NotFound
    rules = await _rules(services, params.rule, params.examples, key)
    drafts = [each.draft for each in rules]
    if not params.confirmed:
        must_be_confirmed((*warnings(drafts, programs=False), *await _past(services, drafts, key)))
    terms = GrantTerms(drafts, params.scope, params.days)
    return GrantList(tuple(await services.approvals.issuer.issue(terms, session_key=str(key), by=OWNER)))


async def _rules(services: Services, rule: str, examples: Sequence[str], key: SessionKey) -> Sequence[Proposal]:
    if bool(rule) == bool(examples):
        raise BadRequest("give a rule, or examples with --like", hint="for example the rule `git diff *`")
    if examples:
        return await asyncio.to_thread(read_examples, services.approvals.issuer, examples, key.agent)
    return [Proposal(await asyncio.to_thread(services.approvals.issuer.read, rule, key.agent), 0)]


@operation("approvals.revoke", scope="approvals")
async def revoke_grant(services: Services, id: str) -> Grant:  # noqa: A002
    """Revoke a grant. The calls it covered need approval again.

    Example:
      pal approvals revoke t7wq2c
    """
    return await services.approvals.issuer.revoke(id)


def _describe_rule(proposal: Proposal) -> ProposedRule:
    return ProposedRule(rule_text(proposal.draft), proposal.examples, proposal.remark)


SHOWN = 20  # commands that are listed, newest first; all are counted


class PastCommandLine(Struct, frozen=True, omit_defaults=True):
    at: int
    command: str
    reasons: tuple[str, ...] = ()


class Trial(Struct, frozen=True, rename="camel"):
    """What rules would have let through of all commands that were asked for."""

    rules: tuple[str, ...]
    remarks: tuple[str, ...]
    total: int
    allowed: int
    examples: tuple[PastCommandLine, ...]
    sensitive_count: int
    sensitive: tuple[PastCommandLine, ...]


async def try_rules(services: Services, drafts: Sequence[GrantDraft], key: SessionKey) -> Trial:
    """Beside the rules counts what holds already in this session: grants, the config's allowlist, safe filters."""
    past = await services.audit.commands(agent=key.agent)
    held = await services.grants.active(agent=key.agent, session_key=str(key), now=services.clock.now_ms())
    settings = services.toolsets.settings(key.agent).exec
    path = services.approvals.issuer.path
    tried = await asyncio.to_thread(_replay_rules, drafts, past, held, settings, path)
    names = dict.fromkeys(draft.binary.rpartition("/")[2] for draft in drafts)
    return Trial(
        tuple(map(rule_text, drafts)),
        tuple(f"{name}: {remark}" for name in names if (remark := runs_other_programs(name))),
        tried.total,
        len(tried.covered),
        tuple(_describe_command(each) for each in tried.covered[:SHOWN]),
        len(tried.sensitive),
        tuple(_describe_command(each.command, each.reasons) for each in tried.sensitive[:SHOWN]),
    )


def read_examples(issuer: GrantIssuer, examples: Sequence[str], agent: str) -> tuple[Proposal, ...]:
    """The narrowest rules for commands as a person writes them, one program each. Raises BadRequest."""
    found = []
    for example in examples:
        try:
            argv = shlex.split(example)
        except ValueError as error:
            raise BadRequest(f"not a command: {example} ({error})") from None
        if not argv:
            raise BadRequest("an example is empty")
        program = issuer.read(shlex.quote(argv[0]), agent)
        found.append(Invocation(argv[0], program.binary, program.resolved, tuple(argv[1:])))
    return narrowest_rules(found)


def _replay_rules(
    drafts: Sequence[GrantDraft], past: Sequence[PastCommand], held: Sequence[Grant], settings: ExecSettings, path: str
) -> Replay:
    @cache
    def known(each: Invocation) -> bool:
        if is_safe(each, settings.safe_bins) or any(covers_by_name(grant, each) for grant in held):
            return True
        return any(covers_by_name(line, each) for line in config_grants(settings.allowlist, each, cwd="/", path=path))

    return replay_rules(drafts, past, known)


def _describe_command(command: PastCommand, reasons: tuple[str, ...] = ()) -> PastCommandLine:
    return PastCommandLine(command.at, command.plan.summary, reasons)
