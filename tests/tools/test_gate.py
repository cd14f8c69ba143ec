"""Every call goes through the gate: policy, a person where one must be asked, the audit log, and only then the tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from palinurus.domain.errors import StorageFull
from palinurus.domain.events import ApprovalAsked, Plan, RunEvent
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import PreparedCall, Restriction, Tool, ToolOutput, ToolRun, ToolSpec, tool
from palinurus.ledger.audit_log import AuditLog
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds
from palinurus.testing.harness import audit_rows
from palinurus.tools.approval import Answer, Approvals, ApprovalStore
from palinurus.tools.gate import Gate, GateServices
from palinurus.tools.grant_issuer import GrantIssuer
from palinurus.tools.grants import GrantStore
from palinurus.tools.policy import Policy, Rules
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.settings import ExecSettings

MAIN = SessionKey.main()
FULL = Policy(everybody=Rules(profile="full"))
SECRET = "hunter2-hunter2"


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": {}, "required": []})


class Bench:
    """A gate with real approvals and a log in memory; `answers` says what the person does when asked."""

    def __init__(self, policy: Policy = FULL, **gate: Any) -> None:
        self.done: list[str] = []
        self.asked: list[ApprovalAsked] = []
        self.answers: Callable[[ApprovalAsked], Answer | None] = lambda _: "deny"
        self.clock = FakeClock()
        self.database = MemoryDatabase()
        self.audit = AuditLog(self.database, self.clock, SeededIds(1))
        self.grants = GrantStore(MemoryDatabase())
        store = ApprovalStore(MemoryDatabase())
        self.approvals = Approvals(store, GrantIssuer(self.grants, self.clock, SeededIds(), lambda _: ExecSettings()))
        self._tasks: list[asyncio.Task[Any]] = []
        watch = GateServices(
            self.approvals, self.grants, self.audit, self.clock, lambda text: text.replace(SECRET, "***")
        )
        self.gate = Gate(ToolRegistry(self.tools()), policy, watch, **gate)

    def tools(self) -> list[Tool]:
        @tool("read", "")
        async def read(run: ToolRun, path: str = "") -> ToolOutput:
            self.done.append(f"read {path}")
            return ToolOutput(f"read {path} {SECRET}", details={"key": SECRET})

        @tool("look", "")
        async def look(run: ToolRun) -> ToolOutput:
            return ToolOutput("a page")

        @tool("config", "")
        async def config(run: ToolRun) -> ToolOutput:
            self.done.append("config")
            return ToolOutput("changed")

        async def risky(run: ToolRun, sent: Any) -> PreparedCall:
            async def work() -> ToolOutput:
                self.done.append(f"risky {sent['what']}")
                return ToolOutput("done")

            plan = Plan("risky", f"do {sent['what']}", arguments=dict(sent))
            return PreparedCall(plan, work, ask="it is risky", refusal="never that" if sent["what"] == "evil" else "")

        return [
            read,
            msgspec.structs.replace(look, outside=True),
            msgspec.structs.replace(config, when_untrusted="the config would change", owner_only=True),
            Tool(spec("risky"), read.run, prepare=risky),
        ]

    def hear(self, event: RunEvent) -> None:
        if isinstance(event, ApprovalAsked):
            self.asked.append(event)
            if said := self.answers(event):
                answering = self.approvals.answer(event.id, said, by="owner", where="test", digest=event.digest)
                self._tasks.append(asyncio.ensure_future(answering))

    async def call(self, name: str, run: ToolRun | None = None, **arguments: Any) -> ToolOutput:
        run = msgspec.structs.replace(run or ToolRun(MAIN, "run", private=True), emit=self.hear)
        return await asyncio.wait_for(self.gate.run(run, ToolCall("c1", name, arguments)), 60)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(row.kind, row.outcome) for row in audit_rows(self.database)]


async def test_a_call_is_written_down_before_it_runs_and_its_result_behind_it() -> None:
    bench = Bench()
    output = await bench.call("read", path="a")
    assert (output.is_error, bench.done) == (False, ["read a"])
    assert bench.outcomes == [("call", "allowed: profile"), ("result", "ok")]
    assert (await bench.audit.verify()).ok


async def test_what_cannot_be_written_down_is_not_done() -> None:
    bench = Bench()
    bench.database.failure = StorageFull("the disk is full")
    output = await bench.call("read", path="a")
    assert output.is_error
    assert "could not be recorded" in str(output.content)
    assert bench.done == []


async def test_what_the_policy_denies_is_told_with_its_layer_and_never_runs() -> None:
    bench = Bench(Policy(everybody=Rules(profile="full", deny=("read",))))
    output = await bench.call("read")
    assert output.is_error
    assert "deny" in str(output.content)
    assert (bench.done, bench.outcomes) == ([], [("decision", "denied: deny")])


async def test_an_unknown_tool_is_told_what_there_is() -> None:
    bench = Bench()
    output = await bench.call("rm")
    assert "there is no tool called 'rm'" in str(output.content)
    assert bench.outcomes == [("decision", "unknown")]


async def test_a_stranger_may_not_use_what_is_for_the_owner_alone() -> None:
    bench = Bench()
    output = await bench.call("config", ToolRun(MAIN, "run", private=True, owner=False))
    assert output.is_error
    assert bench.done == []


async def test_a_person_who_says_no_is_obeyed_and_the_model_is_told() -> None:
    bench = Bench()
    output = await bench.call("risky", what="x")
    assert output.is_error
    assert "the owner said no" in str(output.content)
    assert (bench.done, bench.outcomes) == ([], [("decision", "denied")])


async def test_a_person_who_says_yes_releases_the_very_plan_that_was_shown() -> None:
    bench = Bench()
    bench.answers = lambda _: "allow-once"
    output = await bench.call("risky", what="x")
    assert not output.is_error
    assert bench.asked[0].plan.arguments == {"what": "x"}
    assert bench.done == ["risky x"]
    assert [kind for kind, _ in bench.outcomes] == ["decision", "call", "result"]


async def test_an_answer_for_one_plan_releases_no_other() -> None:
    bench = Bench()
    bench.answers = lambda _: None
    first = asyncio.ensure_future(bench.call("risky", what="x"))
    second = asyncio.ensure_future(bench.call("risky", what="y"))
    while len(bench.asked) < 2:
        await asyncio.sleep(0)
    await bench.approvals.answer(bench.asked[0].id, "allow-once", by="owner", where="test")
    assert not (await first).is_error
    await bench.approvals.answer(bench.asked[1].id, "deny", by="owner", where="test")
    assert (await second).is_error
    assert bench.done == [f"risky {bench.asked[0].plan.arguments['what']}"]


async def test_what_was_allowed_always_asks_no_more_and_other_arguments_do() -> None:
    bench = Bench()
    bench.answers = lambda _: "allow-always"
    await bench.call("risky", what="x")
    bench.answers = lambda _: "deny"
    assert not (await bench.call("risky", what="x")).is_error
    assert (await bench.call("risky", what="y")).is_error
    assert len(bench.asked) == 2


async def test_a_plan_that_may_not_be_done_at_all_asks_nobody() -> None:
    bench = Bench()
    output = await bench.call("risky", what="evil")
    assert str(output.content) == "never that"
    assert (bench.asked, bench.done) == ([], [])


async def test_nobody_is_waited_for_where_nobody_is_there() -> None:
    bench = Bench()
    output = await bench.call("risky", ToolRun(MAIN, "run", private=True, attended=False), what="x")
    assert "no person could be asked" in str(output.content)
    assert (bench.asked, bench.done) == ([], [])


async def test_results_of_outside_tools_are_marked_so() -> None:
    assert (await Bench().call("look")).origin is Origin.OUTSIDE


@pytest.mark.parametrize(("setting", "asked", "done"), [("ask", 1, 0), ("deny", 0, 0), ("allow", 0, 1)])
async def test_a_turn_that_read_text_from_outside_needs_a_person_for_what_is_delicate(
    setting: Any, asked: int, done: int
) -> None:
    bench = Bench(untrusted=setting)
    await bench.call("config", ToolRun(MAIN, "run", private=True, origin=Origin.OUTSIDE))
    assert (len(bench.asked), len(bench.done)) == (asked, done)
    await bench.call("read", ToolRun(MAIN, "run", private=True, origin=Origin.OUTSIDE))
    assert len(bench.asked) == asked


async def test_deny_in_an_untrusted_turn_is_a_no_although_the_tool_would_ask_a_person() -> None:
    async def prepare(run: ToolRun, sent: Any) -> PreparedCall:
        return PreparedCall(
            Plan("leave", "leave"), lambda: look.run(run, {}), ask="not allowed yet", when_untrusted="it leaves"
        )

    bench = Bench(untrusted="deny")
    bench.answers = lambda _: "allow-once"
    look = bench.tools()[1]
    bench.gate = bench.gate.with_tools([Tool(spec("leave"), look.run, prepare=prepare)])
    output = await bench.call("leave", ToolRun(MAIN, "run", private=True, origin=Origin.OUTSIDE))
    assert "it leaves" in str(output.content)
    assert (bench.asked, bench.outcomes) == ([], [("decision", "denied: untrusted")])
    assert not (await bench.call("leave")).is_error  # a trusted turn asks


async def test_a_call_that_ran_is_never_said_not_to_have_run_whatever_its_details() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}

    async def run(_: ToolRun, __: Any) -> ToolOutput:
        return ToolOutput("done", details=deep)

    bench = Bench()
    bench.gate = bench.gate.with_tools([Tool(spec("odd"), run)])
    assert (await bench.call("odd")).content == "done"
    assert bench.outcomes == [("call", "allowed: profile"), ("result", "ok")]


async def test_a_trusted_turn_is_not_asked_about_the_same() -> None:
    bench = Bench()
    await bench.call("config")
    assert (bench.asked, bench.done) == ([], ["config"])


async def test_a_restriction_takes_away_and_asks() -> None:
    bench = Bench()
    only = Restriction("skill:x", "the skill needs nothing else", only=("look",))
    assert (await bench.call("read", ToolRun(MAIN, "run", private=True, restrictions=(only,)))).is_error
    ask = Restriction("rule:1", "the owner wants to be asked before reading", ask=("read",))
    assert (await bench.call("read", ToolRun(MAIN, "run", private=True, restrictions=(ask,)))).is_error
    assert ["before reading" in event.reason for event in bench.asked] == [True]
    assert bench.done == []


async def test_no_secret_reaches_the_log() -> None:
    bench = Bench()
    await bench.call("read", path=SECRET)
    assert SECRET not in repr(audit_rows(bench.database))


async def test_a_call_that_is_stopped_leaves_a_row_that_says_so() -> None:
    bench = Bench()
    bench.answers = lambda _: None
    task = asyncio.ensure_future(bench.call("risky", what="x"))
    while not bench.asked:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await bench.approvals.recent())[0].status == "abandoned"
    assert bench.done == []


async def test_arguments_nested_beyond_reason_cost_the_call_only() -> None:
    bench = Bench()
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    output = await bench.call("risky", what="x", deep=deep)
    assert output.is_error
    assert bench.done == []


async def test_the_head_is_the_same_whoever_speaks() -> None:
    bench = Bench(Policy(everybody=Rules(profile="full"), by_sender={"*": Rules(deny=("read",))}))
    assert "read" in [each.name for each in bench.gate.offer(MAIN).specs()]
    assert (await bench.call("read", ToolRun(MAIN, "run", private=True, sender="42", owner=False))).is_error


async def test_a_tool_that_fits_some_sessions_is_offered_in_those_alone() -> None:
    bench = Bench()
    alone = msgspec.structs.replace(bench.tools()[0], spec=spec("steer"), fits=lambda key: key.peer == "alice")
    gate = bench.gate.with_tools([alone])
    offered = {
        peer: "steer" in [each.name for each in gate.offer(SessionKey.parse(f"agent:main:direct:{peer}")).specs()]
        for peer in ("alice", "bob", "alice")
    }
    assert offered == {"alice": True, "bob": False}
