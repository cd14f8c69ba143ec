"""Asking a person and hearing the answer: one plan, one decision, from any door, before a deadline."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, StorageError
from palinurus.domain.events import ApprovalAsked, ApprovalSettled, Invocation, Plan, RunEvent, render_plan, visible
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun
from palinurus.operations.approve import answer_command
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds
from palinurus.tools.approval import Approval, Approvals, ApprovalStore
from palinurus.tools.grant_issuer import GrantIssuer, GrantTerms
from palinurus.tools.grants import GrantDraft, GrantStore, rule_text
from palinurus.tools.settings import ExecSettings
from support.virtual import VirtualClock, run_virtually

WAIT = 60.0
GROUP = "agent:main:telegram:group:7"
RM = Invocation("rm", "/usr/bin/rm", "/usr/bin/rm", ("-rf", "build"))
WC = Invocation("wc", "/usr/bin/wc", "/usr/bin/wc", ("-l",))
CAT = Invocation("cat", "/usr/bin/cat", "/usr/bin/cat", ("notes/*.md",))


def plan_of(*programs: Invocation, where: str = "host", **others: object) -> Plan:
    argv = (programs[0].name, *programs[0].args) if programs else ("/bin/sh", "-c", "rm -rf $(ls)")
    plan = Plan("exec", shlex.join(argv), "host", argv, "/srv/work", network=True, invocations=programs)
    return msgspec.structs.replace(plan, where=where, **others)


def prepared(plan: Plan) -> PreparedCall:
    async def run() -> ToolOutput:
        return ToolOutput("done")

    return PreparedCall(plan, run, ask="it is not on the allowlist")


class Desk:
    """Approvals over stores in memory, and what the doors of one run have heard."""

    def __init__(self, clock: Clock | None = None, **options: Any) -> None:
        self.clock = clock or FakeClock()
        self.store: ApprovalStore = ApprovalStore(MemoryDatabase())
        self.grants = GrantStore(MemoryDatabase())
        self.events: list[RunEvent] = []
        self.settings = ExecSettings(approval_timeout_sec=60)
        self.options: dict[str, Any] = options
        self.start()

    def start(self) -> None:
        writable = (Path("/srv/work"),)
        issuer = GrantIssuer(self.grants, self.clock, SeededIds(), lambda _: self.settings, lambda _: writable)
        self.approvals = Approvals(self.store, issuer, **self.options)

    def asks(self, plan: Plan, *, attended: bool = True, key: str = "agent:main:main") -> asyncio.Task[Approval]:
        run = ToolRun(SessionKey.parse(key), "run-1", True, attended=attended, emit=self.events.append)
        return asyncio.create_task(self.approvals.ask(run, prepared(plan), "it is not on the allowlist"))

    async def asked(self, plan: Plan, *, key: str = "agent:main:main") -> tuple[asyncio.Task[Approval], ApprovalAsked]:
        """Ask, and wait until the person is told."""
        told = len(self.events)
        task = self.asks(plan, key=key)
        await until(lambda: len(self.events) > told)
        event = self.events[-1]
        assert isinstance(event, ApprovalAsked)
        return task, event

    async def allows(self, plan: Plan, **more: Any) -> Approval:
        """Ask and have it allowed always."""
        task, event = await self.asked(plan)
        try:
            await self.approvals.answer(event.id, "allow-always", by="owner", where="chat", always=GrantTerms(**more))
        except BadRequest:
            task.cancel()
            raise
        return await within(task)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():
            await asyncio.sleep(0)


async def within(task: Awaitable[Approval]) -> Approval:
    return await asyncio.wait_for(task, WAIT)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_the_row_is_kept_before_anybody_is_told_and_the_answer_is_kept_with_who_and_where(desk: Desk) -> None:
    plan = plan_of(RM)
    task, event = await desk.asked(plan)
    (row,) = await desk.approvals.pending()
    assert (row.id, row.plan, row.digest) == (event.id, plan, plan.digest)
    await desk.approvals.answer(event.id, "deny", by="telegram:42", where="telegram", digest=event.digest)
    settled = await within(task)
    assert (settled.status, settled.decided_by, settled.decided_where) == ("denied", "telegram:42", "telegram")
    assert await desk.store.get(event.id) == settled
    assert desk.events[-1] == ApprovalSettled(event.id, "denied", "telegram:42")


async def test_an_answer_releases_its_own_question_and_no_other(desk: Desk) -> None:
    first, one = await desk.asked(plan_of(RM))
    second, two = await desk.asked(plan_of(CAT))
    await desk.approvals.answer(two.id, "allow-once", by="owner", where="cli")
    assert (await within(second)).id == two.id
    assert not first.done()
    with pytest.raises(BadRequest, match="different plan"):
        await desk.approvals.answer(one.id, "allow-once", by="owner", where="cli", digest=two.digest)
    assert not first.done()
    await desk.approvals.answer(one.id, "deny", by="owner", where="cli")
    assert (await within(first)).status == "denied"


async def test_what_was_decided_is_not_decided_again_and_one_is_told_by_whom_it_was(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(RM))
    await desk.approvals.answer(event.id, "deny", by="owner", where="chat")
    with pytest.raises(BadRequest, match=r"denied by owner \(chat\)"):
        await desk.approvals.answer(event.id, "allow-once", by="ann", where="page")
    assert (await within(task)).status == "denied"


async def test_of_two_answers_at_the_same_time_one_counts_and_the_other_leaves_no_grant(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(CAT))
    answers = await asyncio.gather(
        desk.approvals.answer(event.id, "deny", by="ann", where="page"),
        desk.approvals.answer(event.id, "allow-always", by="bob", where="cli"),
        return_exceptions=True,
    )
    settled = await within(task)
    assert [answer for answer in answers if isinstance(answer, Approval)] == [settled]
    assert bool(await desk.grants.all()) == (settled.status == "allowed-always")


async def test_a_door_that_closes_while_it_hands_the_answer_in_does_not_take_it_back(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(CAT))
    door = asyncio.create_task(desk.approvals.answer(event.id, "allow-once", by="owner", where="cli"))
    async with asyncio.timeout(WAIT):
        while await desk.approvals.pending():
            await asyncio.sleep(0)
    door.cancel()
    await asyncio.gather(door, return_exceptions=True)
    assert (await within(task)).status == "allowed-once"


async def test_the_beginning_of_an_id_is_enough_when_only_one_has_it(desk: Desk) -> None:
    tasks = [await desk.asked(plan_of(RM)) for _ in range(2)]
    (_, one), (_, two) = tasks
    assert one.id[0] != two.id[0]
    await desk.approvals.answer(one.id[:2].upper(), "deny", by="owner", where="chat")
    assert (await within(tasks[0][0])).status == "denied"
    with pytest.raises(NotFound, match="no approval 'aeiou'"):
        await desk.approvals.answer("aeiou", "deny", by="owner", where="chat")
    with pytest.raises(NotFound):
        await desk.approvals.answer("", "deny", by="owner", where="chat")
    await desk.approvals.release()
    await within(tasks[1][0])


async def test_nobody_is_waited_for_where_nobody_is(desk: Desk) -> None:
    settled = await within(desk.asks(plan_of(RM), attended=False))
    assert (settled.status, await desk.approvals.pending()) == ("unattended", [])
    with pytest.raises(BadRequest, match="no person could be asked"):
        await desk.approvals.answer(settled.id, "allow-once", by="owner", where="chat")


def test_a_question_without_an_answer_expires_at_its_deadline() -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()
        desk = Desk(VirtualClock(loop))
        begun = desk.clock.now_ms()
        settled = await desk.asks(plan_of(RM))
        assert settled.status == "expired"
        assert desk.clock.now_ms() - begun == pytest.approx(60_000, abs=5)
        assert desk.events[-1] == ApprovalSettled(settled.id, "expired")

    run_virtually(live)


async def test_an_answer_after_the_deadline_does_not_count_even_if_the_timer_slept(desk: Desk) -> None:
    assert isinstance(desk.clock, FakeClock)
    task, event = await desk.asked(plan_of(RM))
    desk.clock.advance(seconds=61)  # a laptop was closed
    with pytest.raises(BadRequest, match="not answered in time"):
        await desk.approvals.answer(event.id, "allow-once", by="owner", where="chat")
    assert (await within(task)).status == "expired"


async def test_a_run_that_is_stopped_abandons_its_question_at_once(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(RM))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    row = await desk.store.get(event.id)
    assert row is not None
    assert row.status == "abandoned"
    assert desk.events[-1] == ApprovalSettled(event.id, "abandoned")


async def test_a_second_stop_does_not_leave_the_question_open(desk: Desk) -> None:
    task, _ = await desk.asked(plan_of(RM))
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    async with asyncio.timeout(WAIT):
        while await desk.approvals.pending():
            await asyncio.sleep(0)


async def test_what_a_dead_process_asked_is_abandoned_at_the_next_start(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(RM))
    desk.start()
    assert await desk.approvals.recover() == 1
    with pytest.raises(BadRequest, match="its run ended before a decision"):
        await desk.approvals.answer(event.id, "allow-once", by="owner", where="chat")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_those_who_wait_go_on_when_the_process_leaves(desk: Desk) -> None:
    task, _ = await desk.asked(plan_of(RM))
    assert await desk.approvals.release() == 1
    assert (await within(task)).status == "abandoned"
    assert (await within(desk.asks(plan_of(RM)))).status == "unattended"  # one that still goes on to ask


async def test_only_so_many_wait_at_the_same_time(desk: Desk) -> None:
    crowded = Desk(most=2)
    waiting = [(await crowded.asked(plan_of(RM)))[0] for _ in range(2)]
    third = await within(crowded.asks(plan_of(RM)))
    assert third.status == "expired"
    assert "2 approvals are pending already" in third.reason
    await crowded.approvals.release()
    await asyncio.gather(*waiting)


async def test_nobody_is_asked_when_the_question_cannot_be_kept() -> None:
    class Full(ApprovalStore):
        async def add(self, approval: Approval) -> None:
            raise StorageError("the disk is full")

    desk = Desk()
    desk.store = Full(MemoryDatabase())
    desk.start()
    with pytest.raises(StorageError):
        await within(desk.asks(plan_of(RM)))
    assert desk.events == []


async def test_always_grants_these_very_words_for_this_agent_until_it_ends(desk: Desk) -> None:
    settled = await desk.allows(plan_of(CAT))
    (grant,) = await desk.grants.all()
    assert settled.status == "allowed-always"
    assert settled.grant_id == grant.id
    assert (grant.scope, grant.agent, grant.created_by) == ("agent", "main", "owner")
    assert (grant.binary, grant.resolved, rule_text(grant)) == (CAT.binary, CAT.resolved, "cat 'notes/*.md'")
    assert grant.expires_at == desk.clock.now_ms() + 90 * 24 * 3600 * 1000


async def test_always_for_a_pipeline_grants_each_program(desk: Desk) -> None:
    settled = await desk.allows(plan_of(CAT, WC), scope="session", days=1)
    made = {grant.id: grant for grant in await desk.grants.all()}
    assert [rule_text(made[each]) for each in settled.grant_id.split(",")] == ["cat 'notes/*.md'", "wc -l"]
    assert {grant.session_key for grant in made.values()} == {"agent:main:main"}


async def test_a_wider_rule_must_fit_what_was_asked_and_the_rest_is_granted_exactly(desk: Desk) -> None:
    wider = GrantDraft("exec", CAT.binary, CAT.resolved, ("notes/*",))
    await desk.allows(plan_of(CAT, WC), drafts=[wider])
    assert sorted(rule_text(grant) for grant in await desk.grants.all()) == ["cat notes/*", "wc -l"]
    with pytest.raises(BadRequest, match="does not match the requested command"):
        await desk.allows(plan_of(WC), drafts=[wider])


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (plan_of(), "was not understood"),
        (plan_of(RM, where="sandbox"), "runs in the sandbox"),
        (plan_of(Invocation("x", "", "")), "x was not found"),
        (plan_of(Invocation("x", "/srv/work/x", "/srv/work/x")), "is in a directory that the agent can write"),
        (plan_of(Invocation("x", "/usr/bin/x", "/srv/work/x")), "is in a directory that the agent can write"),
        (plan_of(Invocation("x", "/tmp/x", "/tmp/x")), "is in a directory that the agent can write"),
        (plan_of(RM, env=("GIT_PAGER",)), "sets variables"),
        (plan_of(RM, cwd="/home/me"), "outside the workspace"),
        (
            plan_of(Invocation("python3", "/usr/bin/python3", "/usr/bin/python3.12", ("x.py",))),
            "runs files that the agent",
        ),
        (plan_of(Invocation("sh", "/usr/bin/sh", "/usr/bin/dash", ("build.sh",))), "runs files that the agent"),
    ],
)
async def test_what_cannot_be_allowed_always_says_why_and_can_be_allowed_once(desk: Desk, plan: Plan, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as refused:
        await desk.allows(plan)
    assert "once" in refused.value.hint
    assert await desk.grants.all() == []


async def test_a_secret_in_a_command_is_neither_kept_nor_shown_nor_granted() -> None:
    desk = Desk(redact=lambda text: text.replace("hunter22", "[redacted]"))
    plan = plan_of(Invocation("login", "/usr/bin/login", "/usr/bin/login", ("hunter22",)))
    task, event = await desk.asked(plan)
    row = await desk.store.get(event.id)
    assert b"hunter22" not in msgspec.json.encode([event, row])
    assert event.digest == plan.digest  # of what will be run
    with pytest.raises(BadRequest, match="contains a secret"):
        await desk.approvals.answer(event.id, "allow-always", by="owner", where="chat")
    await desk.approvals.answer(event.id, "allow-once", by="owner", where="chat", digest=event.digest)
    assert (await within(task)).digest == plan.digest


async def test_approve_decides_by_id_and_takes_short_words(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(CAT))
    shown = await approve(desk, "")
    assert event.id in shown
    assert "command   cat 'notes/*.md'" in shown
    said = await approve(desk, f"{event.id} always")
    assert "allowed always by owner (chat)" in said
    assert "cat 'notes/*.md'" in said
    assert (await within(task)).status == "allowed-always"


async def test_approve_without_an_id_can_only_say_no_and_only_to_the_one_of_this_session(desk: Desk) -> None:
    here, event = await desk.asked(plan_of(RM))
    there, other = await desk.asked(plan_of(CAT), key="agent:main:direct:ann")
    assert "Say which one" in await approve(desk, "once")
    assert not here.done()
    assert await approve(desk, "no") == f"{event.id}: denied by owner (chat)."
    assert "Say which one" in await approve(desk, "no")
    assert not there.done()
    assert await approve(desk, f"deny {other.id}") == f"{other.id}: denied by owner (chat)."
    await asyncio.gather(here, there)
    assert await approve(desk, "") == "No approvals are waiting."


async def test_only_the_owner_decides_and_looks(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(RM))
    for said in ("", event.id, f"{event.id} once"):
        assert await approve(desk, said, owner=False) == "Only the owner decides about approvals."
    assert not task.done()
    assert "there is no approval 'nnnnnn'" in await approve(desk, "nnnnnn once")
    assert "Not understood" in await approve(desk, f"{event.id} maybe once")
    await approve(desk, "deny")
    await within(task)


async def test_where_others_listen_no_plan_of_another_conversation_is_shown(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(RM))
    for said in ("", "once", event.id):
        shown = await approve(desk, said, key=GROUP)
        assert "rm" not in shown.replace("another conversation", "").split()
        assert "build" not in shown
    here, own = await desk.asked(plan_of(CAT), key=GROUP)
    assert own.id in await approve(desk, "", key=GROUP)
    assert "cat" in await approve(desk, own.id, key=GROUP)
    assert await approve(desk, f"{event.id} no", key=GROUP) == f"{event.id}: denied by owner (chat)."
    await approve(desk, f"{own.id} no")
    await asyncio.gather(task, here)


async def test_who_allows_a_program_always_that_runs_others_is_told_so(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(Invocation("make", "/usr/bin/make", "/usr/bin/make", ("test",))))
    remark = "make: it runs what the files of the project tell it to"
    said = await approve(desk, f"{event.id} always")
    assert remark in said
    assert f"/approve {event.id} allow-always confirm" in said
    assert not task.done()
    assert f"note: {remark}" in await approve(desk, f"{event.id} always confirm")
    await within(task)


async def test_what_destroys_is_allowed_always_by_a_second_yes_only(desk: Desk) -> None:
    task, event = await desk.asked(plan_of(Invocation("rm", "/usr/bin/rm", "/usr/bin/rm", ("-r", "build"))))
    said = await approve(desk, f"{event.id} always")
    assert "`rm -r build` removes files" in said
    assert not task.done()
    assert await desk.grants.all() == []
    assert "allowed always by owner (chat)" in await approve(desk, f"{event.id} always confirm")
    assert (await within(task)).status == "allowed-always"


async def approve(desk: Desk, said: str, *, owner: bool = True, key: str = "agent:main:main") -> str:
    return await answer_command(desk.approvals, session_key=key, words=said, by="owner", owner=owner)


def test_a_plan_is_shown_in_full() -> None:
    plan = plan_of(
        Invocation("vi", "/usr/bin/vi", "/usr/bin/vim.basic", ("a b",)), Invocation("gone", "", ""), env=("LANG",)
    )
    assert render_plan(msgspec.structs.replace(plan, summary="vi 'a b'")) == [
        "command   vi 'a b'",
        "where     on this machine, outside the sandbox, with the network",
        "folder    /srv/work",
        "program   /usr/bin/vi -> /usr/bin/vim.basic",
        "program   gone (not found)",
        "variables LANG",
    ]


def test_a_summary_that_does_not_say_all_is_shown_with_all_words() -> None:
    lines = render_plan(plan_of(RM, summary="rm …"))
    assert lines[:2] == ["command   rm …", "words     rm -rf build"]


def test_a_shell_string_is_shown_line_by_line_and_nothing_in_it_looks_like_the_plan() -> None:
    plan = Plan("exec", "echo", "host", ("/bin/sh", "-c", "echo a\nwhere     in the sandbox"), "/srv")
    assert render_plan(plan) == [
        "command   2 lines",
        "  | echo a",
        "  | where     in the sandbox",
        "shell     /bin/sh -c",
        "where     on this machine, outside the sandbox",
        "folder    /srv",
        "programs  not understood: it may start any program",
    ]


def test_what_is_not_shown_is_said_first() -> None:
    plan = Plan("exec", "x", "host", ("/bin/sh", "-c", "a" * 30_000))
    assert (
        render_plan(plan)[0] == "command   ATTENTION: 10,000 characters in the middle are not shown; --json shows all"
    )


def test_arguments_of_other_tools_are_shown_each() -> None:
    plan = Plan("message", "message", arguments={"to": "ann", "text": "hi\nthere", "tags": ["x"]})
    assert render_plan(plan) == [
        "call      message",
        'tags      ["x"]',
        "text      2 lines",
        "  | hi",
        "  | there",
        "to        ann",
    ]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain text", "plain text"),
        ("Übermut 水", "Übermut 水"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("a\x1b[2Jb", "a\\u001b[2Jb"),
        ("a\rb\tc\nd", "a\\rb\\tc\\nd"),
        ("a\u00a0b", "a\\u00a0b"),
        ("a\u3164b\ufe0f", "a\\u3164b\\ufe0f"),
        ("a\U000e0041", "a\\U000e0041"),
        ("a" + " " * 40 + "b", "a [40 spaces] b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, seen: str) -> None:
    assert visible(text) == seen
