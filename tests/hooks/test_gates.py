"""A hook at `before_tool_call` forbids, asks or narrows. It never allows, and when it fails the call is not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from listeners import SHORT, Listeners

from palinurus.domain.events import ApprovalAsked
from palinurus.domain.hooks import HookDecision, HookEvent
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import WAIT, Harness
from palinurus.tools.policy import Policy, Rules


@pytest.fixture
def listeners() -> Listeners:
    return Listeners()


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
async def pal(workspace: Path, listeners: Listeners, done: list[str]) -> AsyncIterator[Harness]:
    @tool("open_url", "Opens an address.")
    async def open_url(run: ToolRun, url: str) -> ToolOutput:
        done.append(url)
        return ToolOutput("opened")

    async with Harness(workspace, tools=[open_url], hooks=listeners.service) as whole:
        yield whole


async def refused(pal: Harness, url: str = "https://example.org/") -> str:
    """What the model is told; empty if the call was run."""
    pal.model.says(calls(call("open_url", url=url)), "done")
    assert (await pal.hears("go")).text == "done"
    result = (await pal.tool_results())[-1]
    return result.text if result.is_error else ""


async def test_a_gate_that_blocks_says_why_and_those_after_it_are_not_asked(
    pal: Harness, listeners: Listeners, done: list[str]
) -> None:
    listeners.add("no-urls", "before_tool_call", call=lambda _: {"block": True, "blockReason": "not on Sundays"})
    listeners.add("later", "before_tool_call", priority=-1)
    assert "hook:no-urls: not on Sundays" in await refused(pal)
    assert (done, listeners.told) == ([], [])


@pytest.mark.parametrize("answer", [None, {}, {"block": False}, HookDecision()])
async def test_a_gate_that_has_nothing_against_it_lets_the_call_pass(
    pal: Harness, listeners: Listeners, done: list[str], answer: Any
) -> None:
    listeners.add("mild", "before_tool_call", call=lambda _: answer)
    assert not await refused(pal)
    assert done == ["https://example.org/"]


async def test_a_gate_is_told_what_will_be_called_and_by_whom(pal: Harness, listeners: Listeners) -> None:
    listeners.add("looker", "before_tool_call")
    await refused(pal)
    (event,) = listeners.told
    assert event.context["toolName"] == "open_url"
    assert event.context["params"] == {"url": "https://example.org/"}
    assert (event.context["senderId"], event.context["untrusted"]) == ("owner", False)


async def hang(_: HookEvent) -> None:
    await asyncio.Event().wait()


def fail(_: HookEvent) -> None:
    raise RuntimeError("no list")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (hang, "not done within 0.2 s"),
        (fail, "no list"),
        (lambda _: {"allow": True}, "unknown field `allow`"),
        (lambda _: True, "Expected `object`"),
        (lambda _: {"params": {"url": "https://elsewhere.example"}}, "unknown field `params`"),
        (lambda _: {"restrict": {"tools": ["*"]}}, "unknown field `tools`"),
        (lambda _: {"blockReason": "x"}, "without block"),
    ],
)
async def test_a_gate_that_fails_blocks_says_so_and_goes_on_blocking(
    pal: Harness, listeners: Listeners, done: list[str], bad: Callable[[HookEvent], Any], why: str
) -> None:
    pal.hooks.limits = SHORT
    listeners.add("strict", "before_tool_call", call=bad)
    for _ in range(4):
        told = await refused(pal)
        assert why in told
        assert "hook:strict: a hook that fails blocks every tool" in told
        assert "`pal hooks disable strict` turns it off" in told
    assert "it failed 3 times in a row and is disabled" in told
    assert done == []
    (warning,) = pal.hooks.warnings()
    assert "as a gate it blocks every tool" in warning


async def test_a_gate_can_have_a_person_asked(pal: Harness, listeners: Listeners, done: list[str]) -> None:
    listeners.add("careful", "before_tool_call", call=lambda _: {"requireApproval": "it leaves the house"})
    for answer, ran in (("deny", 0), ("allow-once", 1)):
        pal.model.says(calls(call("open_url", url="https://example.org/")), "done")
        run = await pal.submits("go")
        async with asyncio.timeout(WAIT):
            async for event in run.events():
                if isinstance(event, ApprovalAsked):
                    assert "hook:careful" in event.reason
                    assert "it leaves the house" in event.reason
                    await pal.approvals.answer(event.id, answer, by="owner", where="test")  # type: ignore[arg-type]
        assert len(done) == ran


async def test_a_gate_narrows_what_a_call_may_reach(pal: Harness, listeners: Listeners, done: list[str]) -> None:
    listeners.add("near", "before_tool_call", call=lambda _: {"restrict": {"hosts": ["example.org"]}})
    assert not await refused(pal)
    assert "of hosts only example.org" in await refused(pal, "https://elsewhere.example/")
    assert done == ["https://example.org/"]


async def test_a_gate_is_not_asked_about_what_the_policy_denies_and_cannot_allow_it(
    workspace: Path, listeners: Listeners
) -> None:
    listeners.add("generous", "before_tool_call")
    policy = Policy(everybody=Rules(profile="full", deny=("read",)))
    async with Harness(workspace, policy=policy, hooks=listeners.service) as pal:
        pal.model.says(calls(call("read", path="SOUL.md")), "done")
        await pal.hears("go")
        assert "may not be used here" in (await pal.tool_results())[-1].text
    assert listeners.told == []


async def test_every_call_of_many_at_once_is_judged(pal: Harness, listeners: Listeners, workspace: Path) -> None:
    def judge(event: HookEvent) -> dict[str, Any] | None:
        secret = "USER" in event.context["params"]["path"]
        return {"block": True, "blockReason": "private"} if secret else None

    listeners.add("files", "before_tool_call", call=judge)
    names = ("AGENTS.md", "USER.md", "SOUL.md", "USER.md")
    pal.model.says(calls(*(call("read", f"c{at}", path=name) for at, name in enumerate(names))), "done")
    await pal.hears("read them")
    assert [result.is_error for result in await pal.tool_results()] == [False, True, False, True]


async def test_stopping_a_run_does_not_wait_for_its_gate(pal: Harness, listeners: Listeners, done: list[str]) -> None:
    asked = asyncio.Event()

    async def wait(_: HookEvent) -> None:
        asked.set()
        await asyncio.Event().wait()

    listeners.add("slow", "before_tool_call", call=wait)
    pal.model.says(calls(call("open_url", url="https://example.org/")))
    run = await pal.submits("go")
    await asyncio.wait_for(asked.wait(), WAIT)
    await pal.hears("stop")
    assert (await run.wait(WAIT)).status == "aborted"
    assert done == []
    assert pal.hooks.health["slow"].failures == 0
