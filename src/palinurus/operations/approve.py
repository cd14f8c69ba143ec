"""`/approve`: decide in the chat about what waits, or look at it. The owner only."""

from __future__ import annotations

from palinurus.domain.errors import NotConfirmed, PalinurusError
from palinurus.domain.events import render_plan, visible
from palinurus.domain.keys import SessionKey
from palinurus.tools.approval import Answer, Approval, Approvals, outcome
from palinurus.tools.commands.hazards import runs_other_programs
from palinurus.tools.grant_issuer import GrantTerms
from palinurus.tools.grants import rule_text

USAGE = "/approve ID allow-once|allow-always|deny"
CONFIRMED = ("confirm", "confirmed")
ANSWERS: dict[str, Answer] = {
    "allow-once": "allow-once",
    "once": "allow-once",
    "allow": "allow-once",
    "yes": "allow-once",
    "allow-always": "allow-always",
    "always": "allow-always",
    "deny": "deny",
    "no": "deny",
}


async def answer_command(
    approvals: Approvals, *, session_key: str, words: str, by: str, owner: bool, where: str = "chat"
) -> str:
    """What `/approve` answers. Never raises a PalinurusError: who types gets told."""
    if not owner:
        return "Only the owner decides about approvals."
    try:
        return await _answered(approvals, session_key, words.split(), by, where)
    except PalinurusError as error:
        return str(error)


async def _answered(approvals: Approvals, session_key: str, said: list[str], by: str, where: str) -> str:
    answers = [ANSWERS[word.lower()] for word in said if word.lower() in ANSWERS]
    confirmed = any(word.lower() in CONFIRMED for word in said)
    ids = [word for word in said if word.lower() not in ANSWERS and word.lower() not in CONFIRMED]
    if len(ids) > 1 or len(answers) > 1:
        return f"Not understood. {USAGE}"
    if not answers:
        return await _looked(approvals, session_key, ids)
    if not ids:
        # Saying no to the wrong one costs a question; saying yes to it could cost more, so yes needs the id.
        here = await approvals.pending(session_key)
        if answers[0] != "deny" or len(here) != 1:
            return f"Say which one: {USAGE}\n\n{_listed(here or await _shown_here(approvals, session_key))}"
        ids = [here[0].id]
    try:
        settled = await approvals.answer(ids[0], answers[0], by=by, where=where, always=GrantTerms(confirmed=confirmed))
    except NotConfirmed as error:
        return f"{error.message}\nTo confirm: /approve {ids[0]} allow-always confirm"
    return await _told(approvals, settled)


async def _looked(approvals: Approvals, session_key: str, ids: list[str]) -> str:
    if not ids:
        return _listed(await _shown_here(approvals, session_key))
    found = await approvals.find(ids[0])
    if found.session_key != session_key and not SessionKey.parse(session_key).is_private:
        return f"{found.id} belongs to another session; `pal approvals show {found.id}` shows it."
    return asked(found)


async def _shown_here(approvals: Approvals, session_key: str) -> list[Approval]:
    """Where others listen, plans of other conversations are not shown."""
    return await approvals.pending("" if SessionKey.parse(session_key).is_private else session_key)


async def _told(approvals: Approvals, settled: Approval) -> str:
    text = f"{settled.id}: {outcome(settled)}."
    given = set(filter(None, settled.grant_id.split(",")))
    rules = [
        f"{grant.id}  {visible(rule_text(grant))}" for grant in await approvals.issuer.grants.all() if grant.id in given
    ]
    names = dict.fromkeys(each.binary.rpartition("/")[2] for each in settled.plan.invocations)
    notes = [f"note: {name}: {remark}" for name in names if (remark := runs_other_programs(name))]
    return "\n".join([text, *rules, *notes, "`pal approvals revoke ID` takes it back."]) if rules else text


def asked(approval: Approval) -> str:
    """One approval in full, as a person decides about it."""
    waits = approval.status == "pending"
    head = f"{approval.id}  {visible(approval.reason)}" + ("" if waits else f"  ({outcome(approval)})")
    sources = [f"  read      from outside: {visible(', '.join(approval.sources))} (/trust)"] if approval.sources else []
    return "\n".join([head, *sources, *(f"  {line}" for line in render_plan(approval.plan))])


def _listed(pending: list[Approval]) -> str:
    if not pending:
        return "No approvals are waiting."
    return "\n\n".join([*map(asked, pending), USAGE])
