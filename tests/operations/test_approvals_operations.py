"""Approvals and grants by their operations: what waits, deciding, and trying a rule before it is given."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import msgspec
import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotConfirmed, NotFound
from palinurus.domain.events import Invocation, Plan
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun
from palinurus.ledger.audit import AuditEvent
from palinurus.operations.approvals import (
    answer_approval,
    list_approvals,
    list_grants,
    make_grant,
    preview_rule,
    revoke_grant,
    show_approval,
)
from palinurus.operations.table import LocalCaller, operations_in
from palinurus.testing.harness import Harness
from palinurus.tools.approval import Approval
from palinurus.tools.grants import rule_text
from palinurus.tools.settings import ExecSettings

WAIT = 60.0


def command(line: str) -> Plan:
    """Understood as exec would: programs of the system, pipes between them."""
    programs = []
    for part in line.split(" | "):
        name, *args = part.split()
        binary = os.path.realpath(f"/bin/{name}") if name != "cat" else f"{os.path.realpath('/bin')}/cat"
        programs.append(Invocation(name, binary, os.path.realpath(binary), tuple(args)))
    return Plan("exec", line, "host", tuple(line.split()), "/srv", invocations=tuple(programs))


class Desk:
    """The operations on a house, and a run that asks."""

    def __init__(self, pal: Harness, home: Home) -> None:
        self.pal = pal
        self.call = LocalCaller(pal.services(home)).call
        self.tasks: list[asyncio.Task[Approval]] = []

    async def asks(self, line: str, plan: Plan | None = None) -> str:
        """Have a run ask; gives the approval's id."""

        async def run() -> ToolOutput:
            return ToolOutput("done")

        before = {each.id for each in await self.pal.approvals.pending()}
        asking = ToolRun(SessionKey.main(), "run-1", True)
        prepared = PreparedCall(plan or command(line), run)
        self.tasks.append(asyncio.create_task(self.pal.approvals.ask(asking, prepared, "not on the allowlist")))
        async with asyncio.timeout(WAIT):
            while not (fresh := {each.id for each in await self.pal.approvals.pending()} - before):
                await asyncio.sleep(0)
        return fresh.pop()

    async def did(self, *lines: str, outcome: str = "allowed: profile") -> None:
        """What was done in this home before."""
        for number, line in enumerate(lines):
            details = {"plan": msgspec.to_builtins(command(line))}
            event = AuditEvent("call", 1, "old", "agent:main:main", "exec", f"{number}{line}", outcome, details)
            await self.pal.audit.record(event)

    async def settled(self) -> list[Approval]:
        return await asyncio.wait_for(asyncio.gather(*self.tasks), WAIT)


@pytest.fixture
async def desk(pal: Harness, home: Home) -> AsyncIterator[Desk]:
    desk = Desk(pal, home)
    yield desk
    await pal.approvals.release()
    await desk.settled()


def test_deciding_has_a_scope_of_its_own() -> None:
    assert {each.name for each in operations_in("palinurus.operations.approvals") if each.scope == "approvals"} == {
        "approvals.answer",
        "approvals.grant",
        "approvals.revoke",
    }


async def test_what_waits_is_listed_before_what_is_settled(desk: Desk) -> None:
    first, second = await desk.asks("cat a"), await desk.asks("cat b")
    await desk.call(answer_approval, answer_approval.params(first, "deny"))
    listed = await desk.call(list_approvals, list_approvals.params())
    assert [each.id for each in listed.pending] == [second]
    assert [(each.id, each.status) for each in listed.settled] == [(first, "denied")]
    assert (await desk.call(list_approvals, list_approvals.params("agent:main:direct:ann"))).pending == ()


async def test_one_is_shown_with_its_plan_and_what_always_would_let_through(desk: Desk) -> None:
    await desk.did("cat notes/a.md", "cat notes/b.md", "cat notes/a.md | wc -l", "ls")
    shown = await desk.call(show_approval, show_approval.params(await desk.asks("cat notes/a.md")))
    assert "command   cat notes/a.md" in shown.lines
    assert shown.always is not None
    assert (shown.always.rules, shown.always.total) == (("cat notes/a.md",), 4)
    assert [each.command for each in shown.always.examples] == ["cat notes/a.md | wc -l", "cat notes/a.md"]
    assert [(each.rule, each.examples) for each in shown.proposals] == [("cat notes/*.md", 2)]


async def test_what_can_only_be_allowed_once_says_why(desk: Desk) -> None:
    opaque = Plan("exec", "cat $(ls)", "host", ("/bin/sh", "-c", "cat $(ls)"), "/srv")
    shown = await desk.call(show_approval, show_approval.params(await desk.asks("", opaque)))
    assert "was not understood" in shown.why_not_always
    assert (shown.always, shown.proposals) == (None, ())


async def test_an_answer_reaches_the_run_that_asked(desk: Desk) -> None:
    asked = await desk.asks("cat a")
    answered = await desk.call(
        answer_approval, answer_approval.params(asked, "allow-once", digest=command("cat a").digest)
    )
    assert (answered.approval.status, answered.approval.decided_by, answered.grants) == ("allowed-once", "owner", ())
    assert (await desk.settled())[0].status == "allowed-once"


async def test_always_by_a_wider_rule_gives_that_rule(desk: Desk) -> None:
    asked = await desk.asks("cat notes/a.md")
    answered = await desk.call(
        answer_approval, answer_approval.params(asked, "allow-always", rule="cat notes/*.md", days=7)
    )
    (grant,) = answered.grants
    assert rule_text(grant) == "cat notes/*.md"
    assert grant.expires_at == desk.pal.clock.now_ms() + 7 * 24 * 3600 * 1000
    assert (await desk.call(list_grants, list_grants.params())).grants == (grant,)


@pytest.mark.parametrize("rule", ["", "rm -r *"])
async def test_always_for_what_destroys_needs_a_second_yes_at_every_door(desk: Desk, rule: str) -> None:
    asked = await desk.asks("rm -r build")
    with pytest.raises(NotConfirmed, match="removes files"):
        await desk.call(answer_approval, answer_approval.params(asked, "allow-always", rule=rule))
    assert [each.id for each in (await desk.call(list_approvals, list_approvals.params())).pending] == [asked]
    answered = await desk.call(
        answer_approval, answer_approval.params(asked, "allow-always", rule=rule, confirmed=True)
    )
    assert answered.approval.status == "allowed-always"
    assert len(answered.grants) == 1


async def test_a_wider_rule_that_would_have_let_through_what_stands_out_needs_a_second_yes(desk: Desk) -> None:
    await desk.did("cat .ssh/config")
    asked = await desk.asks("cat notes.md")
    with pytest.raises(NotConfirmed, match=r"1 commands that stand out, such as cat \.ssh/config"):
        await desk.call(answer_approval, answer_approval.params(asked, "allow-always", rule="cat *"))
    with pytest.raises(NotConfirmed, match=r"cat \.ssh/config"):
        await desk.call(make_grant, make_grant.params("cat *"))
    assert (await desk.call(list_grants, list_grants.params())).grants == ()
    assert (
        await desk.call(answer_approval, answer_approval.params(asked, "allow-always"))
    ).approval.status == "allowed-always"


async def test_a_rule_that_destroys_by_itself_needs_a_second_yes(desk: Desk) -> None:
    with pytest.raises(NotConfirmed, match="removes files"):
        await desk.call(make_grant, make_grant.params("rm *"))
    assert len((await desk.call(make_grant, make_grant.params("rm *", confirmed=True))).grants) == 1


async def test_a_rule_that_does_not_fit_decides_nothing(desk: Desk) -> None:
    asked = await desk.asks("cat a")
    with pytest.raises(BadRequest, match="does not match"):
        await desk.call(answer_approval, answer_approval.params(asked, "allow-always", rule="ls *"))
    assert [each.id for each in (await desk.call(list_approvals, list_approvals.params())).pending] == [asked]


async def test_a_preview_counts_what_a_rule_would_have_allowed_and_names_what_stands_out(desk: Desk) -> None:
    await desk.did("cat a", "cat .ssh/config", "cat --version", "ls a", "cat a b")
    trial = (await desk.call(preview_rule, preview_rule.params("cat *"))).trial
    assert (trial.total, trial.allowed, trial.sensitive_count) == (5, 3, 1)
    assert [(each.command, each.reasons) for each in trial.sensitive] == [("cat .ssh/config", ("touches ~/.ssh",))]


async def test_a_preview_counts_the_config_s_allowlist_and_safe_filters_as_allowed(desk: Desk) -> None:
    await desk.did("cat a | wc -l", "cat a | tac", "cat a | shuf")
    desk.pal.exec = ExecSettings(allowlist=("tac",))
    trial = (await desk.call(preview_rule, preview_rule.params("cat *"))).trial
    assert [each.command for each in trial.examples] == ["cat a | tac", "cat a | wc -l"]


async def test_the_narrowest_rule_is_made_of_examples(desk: Desk) -> None:
    preview = await desk.call(preview_rule, preview_rule.params(examples=("cat src/a.py", "cat src/b.py", "ls -l")))
    assert [each.rule for each in preview.rules] == ["cat src/*.py", "ls -l"]


async def test_a_grant_by_words_holds_until_it_is_revoked(desk: Desk) -> None:
    made = await desk.call(make_grant, make_grant.params("cat src/*", scope="home"))
    (grant,) = made.grants
    assert (grant.scope, grant.agent, grant.created_by) == ("home", "", "owner")
    gone = await desk.call(revoke_grant, revoke_grant.params(grant.id[:4]))
    assert gone.revoked_at == desk.pal.clock.now_ms()
    assert (await desk.call(list_grants, list_grants.params())).grants == ()
    assert (await desk.call(list_grants, list_grants.params(ended=True))).grants == (gone,)


async def test_a_grant_that_has_expired_is_no_longer_listed(desk: Desk) -> None:
    await desk.call(make_grant, make_grant.params("cat src/*", days=1))
    desk.pal.clock.advance(days=1)
    assert (await desk.call(list_grants, list_grants.params())).grants == ()


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (make_grant.params(), "give a rule, or examples"),
        (make_grant.params("cat 'a"), "not closed"),
        (make_grant.params("no-such-program-at-all x"), "there is no program"),
        (make_grant.params("cat a | sh"), "one command"),
        (make_grant.params("ca* x"), "first word"),
        (make_grant.params("./cat x"), "first word"),
        (make_grant.params("cat x", days=-1), "not a valid period"),
        (make_grant.params("cat x", scope="session"), "needs its key"),
        (make_grant.params(examples=("cat 'x",)), "not a command"),
    ],
)
async def test_a_rule_that_makes_no_sense_is_refused_in_one_line(desk: Desk, params: msgspec.Struct, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        await desk.call(make_grant, params)
    assert (await desk.call(list_grants, list_grants.params(ended=True))).grants == ()


async def test_what_is_not_there_is_told(desk: Desk) -> None:
    with pytest.raises(NotFound, match="no approval"):
        await desk.call(show_approval, show_approval.params("zzzzzz"))
    with pytest.raises(NotFound, match="no grant"):
        await desk.call(revoke_grant, revoke_grant.params("zzzzzz"))
    with pytest.raises(NotFound, match="no agent"):
        await desk.call(make_grant, make_grant.params("cat x", agent="ghost"))
