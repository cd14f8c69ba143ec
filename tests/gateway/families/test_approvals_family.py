"""Approvals through the gateway: seen, decided once, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from family_asking import WAIT, Asking, Line

from palinurus.config.home import Home
from palinurus.dispatch.runs import Run
from palinurus.domain.errors import BadRequest, NotFound, NotOffered
from palinurus.domain.events import ApprovalAsked, Invocation, Plan
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun, prepared_tool
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness

MAIN = "agent:main:main"


@prepared_tool("launch", "Launches the boat.")
async def launch(run: ToolRun) -> PreparedCall | ToolOutput:
    plan = Plan("launch", "launch the boat", where="host", cwd="/harbour")

    async def work() -> ToolOutput:
        return ToolOutput("afloat")

    return PreparedCall(plan, work, ask="it is a boat")


@pytest.fixture
async def asks(workspace: Path, home: Home) -> AsyncIterator[Asking]:
    async with Harness(workspace, tools=[launch]) as pal:
        yield Asking(pal, home)


async def waiting(ask: Asking, tool: str = "launch") -> tuple[Run, str]:
    """A run that waits for a yes, and the id of its approval."""
    ask.pal.model.says(calls(call(tool)), "Done.")
    run = await ask.pal.submits("launch it")
    async with asyncio.timeout(WAIT):
        async for event in run.events():
            if isinstance(event, ApprovalAsked):
                return run, event.id
    raise AssertionError("nobody asked")


async def test_what_waits_is_listed_and_shown_in_openclaw_s_shape(asks: Asking) -> None:
    run, approval = await waiting(asks)
    (listed,) = await asks("exec.approval.list", ("approvals",))
    assert (listed["id"], listed["approvalKind"]) == (approval, "tool")
    assert listed["request"]["command"] == "launch the boat"
    assert (listed["request"]["cwd"], listed["request"]["sessionKey"]) == ("/harbour", MAIN)
    assert listed["expiresAtMs"] > listed["createdAtMs"]
    shown = await asks("exec.approval.get", id=approval[:3])
    assert (shown["id"], shown["commandText"], shown["status"]) == (approval, "launch the boat", "pending")
    assert "deny" in shown["allowedDecisions"]
    assert await asks("exec.approval.list", sessionKey="agent:main:direct:x") == []
    await asks("exec.approval.resolve", id=approval, decision="deny")
    assert (await run.wait(WAIT)).text == "Done."


@pytest.mark.parametrize(("decision", "error"), [("allow-once", False), ("deny", True)])
async def test_a_decision_is_heard_by_the_run_and_by_who_waits_for_it(asks: Asking, decision: str, error: bool) -> None:
    run, approval = await waiting(asks)
    wait = asyncio.create_task(asks("exec.approval.waitDecision", id=approval))
    await asyncio.sleep(0)
    assert await asks("exec.approval.resolve", id=approval, decision=decision) == {"ok": True}
    told = await asyncio.wait_for(wait, WAIT)
    assert (told["id"], told["decision"]) == (approval, decision)
    await run.wait(WAIT)
    (result,) = await asks.pal.tool_results()
    assert result.is_error is error
    assert (await asks("exec.approval.waitDecision", id=approval))["decision"] == decision
    with pytest.raises(BadRequest, match="settled"):
        await asks("exec.approval.resolve", id=approval, decision="allow-once")


async def test_a_run_that_is_stopped_ends_the_wait_without_a_decision(asks: Asking) -> None:
    run, approval = await waiting(asks)
    wait = asyncio.create_task(asks("exec.approval.waitDecision", id=approval))
    await asyncio.sleep(0)
    await asks("chat.abort", sessionKey=MAIN)
    assert (await asyncio.wait_for(wait, WAIT))["decision"] is None
    await run.wait(WAIT)
    assert asks.hub.listeners == 0


async def test_a_decision_for_another_plan_releases_nothing(asks: Asking) -> None:
    run, approval = await waiting(asks)
    with pytest.raises(BadRequest, match="different plan"):
        await asks("exec.approval.resolve", id=approval, decision="allow-once", digest="0" * 64)
    with pytest.raises(BadRequest):
        await asks("exec.approval.resolve", id=approval, decision="perhaps")
    with pytest.raises(NotFound):
        await asks("exec.approval.resolve", id="zzzzzz", decision="deny")
    (listed,) = await asks("exec.approval.list")
    await asks("exec.approval.resolve", id=approval, decision="allow-once", digest=listed["digest"])
    await run.wait(WAIT)


async def test_more_than_a_thousand_settled_ones_are_not_listed_at_once(asks: Asking) -> None:
    assert (await asks("approvals.list", limit=1_000))["settled"] == []
    with pytest.raises(BadRequest, match=r"limit"):
        await asks("approvals.list", limit=1_001)


async def test_what_may_run_unasked_is_shown_and_not_set(asks: Asking) -> None:
    told = await asks("exec.approvals.get")
    main = told["file"]["agents"]["main"]
    assert (main["security"], main["ask"], main["askFallback"]) == ("allowlist", "on-miss", "deny")
    with pytest.raises(NotOffered, match="cannot be set by a call"):
        await asks("exec.approvals.set", file={"version": 1}, baseHash=told["hash"])


async def test_what_may_run_unasked_tells_when_it_last_did(asks: Asking) -> None:
    run, approval = await waiting(asks)
    await asks("exec.approval.resolve", id=approval, decision="allow-always")
    await run.wait(WAIT)
    (before,) = (await asks("exec.approvals.get"))["file"]["agents"]["main"]["allowlist"]
    assert "lastUsedAt" not in before
    asks.pal.model.says(calls(call("launch")), "Done again.")
    assert (await asks.pal.hears("launch it again")).text == "Done again."
    (after,) = (await asks("exec.approvals.get"))["file"]["agents"]["main"]["allowlist"]
    assert (after["id"], after["source"]) == (before["id"], "grant")
    assert (after["lastUsedAt"], after["lastUsedCommand"]) == (asks.pal.clock.now_ms(), "launch the boat")


@prepared_tool("exec", "Removes the build.")
async def sweep(run: ToolRun) -> PreparedCall | ToolOutput:
    programs = (Invocation("rm", "/usr/bin/rm", "/usr/bin/rm", ("-r", "build")),)
    plan = Plan("exec", "rm -r build", "host", ("rm", "-r", "build"), "/srv", invocations=programs)

    async def work() -> ToolOutput:
        return ToolOutput("gone")

    return PreparedCall(plan, work, ask="not on the allowlist")


@pytest.mark.parametrize("method", ["exec.approval.resolve", "approvals.answer"])
async def test_always_for_what_destroys_is_refused_until_it_is_confirmed(
    workspace: Path, home: Home, method: str
) -> None:
    word = {"exec.approval.resolve": "decision", "approvals.answer": "answer"}[method]
    async with Harness(workspace, tools=[sweep]) as pal:
        ask = Asking(pal, home)
        run, approval = await waiting(ask, "exec")
        async with Line(ask) as line:
            client = await line.connect()
            asked = {"id": approval, word: "allow-always"}
            refused = (await line.call(client, method, **asked, idempotencyKey="1"))["error"]
            assert (refused["code"], refused["details"]["code"]) == ("INVALID_REQUEST", "NOT_CONFIRMED")
            assert "removes files" in refused["message"]
            assert (await ask("exec.approval.get", id=approval))["status"] == "pending"
            assert (await line.call(client, method, **asked, confirmed=True, idempotencyKey="2"))["ok"]
            assert (await run.wait(WAIT)).text == "Done."
        assert len(await pal.approvals.issuer.grants.all()) == 1
