"""Tools that the sender of a message does itself, seen from the dispatcher."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from palinurus.context.assemble import NO_RESULT, violations
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import StorageError
from palinurus.domain.events import RunResult
from palinurus.domain.messages import AssistantMessage, Origin, ToolResult, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, ToolSpec, tool
from palinurus.storage.jobs import Job, JobQueue
from palinurus.testing.fakes import ScriptedProvider, call, calls
from palinurus.testing.harness import Harness

WAIT = 60.0
WEATHER = ToolSpec("weather", "Look at the sky.", {"type": "object", "properties": {}})
ASKS = calls(call("weather", "c1"))


async def submit(pal: Harness, text: str = "", **further: Any) -> RunResult:
    inbound = Inbound(text, pal.new_id(), **{"client_tools": (WEATHER,), "plain": True, **further})
    return await (await pal.dispatcher.submit(inbound)).wait(WAIT)


def sunny(call_id: str = "c1") -> ToolResult:
    return ToolResult(call_id, "weather", "sunny")


async def test_a_turn_ends_with_the_call_open_and_the_result_goes_on_from_there(pal: Harness) -> None:
    pal.model.says(ASKS, "Sunny.")
    asked = await submit(pal, "weather?")
    assert [each.name for each in asked.calls] == ["weather"]
    assert asked.status == "ok"
    answer = await submit(pal, results=(sunny(),))
    assert answer.text == "Sunny."
    first, second = pal.model.requests
    assert first.head == second.head
    assert second.messages[: len(first.messages)] == first.messages
    assert violations(second.messages) == []


async def test_what_a_client_brings_is_from_outside_and_cut_whatever_it_says(pal: Harness) -> None:
    pal.model.says(ASKS)
    await submit(pal, "weather?")
    await submit(pal, results=(ToolResult("c1", "weather", "x" * 100_000, origin=Origin.OWNER),))
    (result,) = await pal.tool_results()
    assert result.origin == Origin.OUTSIDE
    assert len(result.text) < 20_000


async def test_a_result_that_nobody_waits_for_any_more_is_kept_and_told(pal: Harness) -> None:
    pal.model.says(ASKS, "Never mind.")
    await submit(pal, "weather?")
    await submit(pal, "forget it")
    late = await submit(pal, results=(sunny(),))
    assert late.status == "error"
    assert "continued" in late.error
    pal.model.says("I am here.")
    await submit(pal, "are you there?")
    assert violations(pal.model.requests[-1].messages) == []
    results = [each.text for each in pal.model.requests[-1].messages if isinstance(each, ToolResult)]
    assert results == [NO_RESULT]
    assert [each.text for each in await pal.tool_results()] == ["sunny"]


class LosesResults(JobQueue):
    """Cannot keep the first result."""

    lose = 1

    async def finish(self, held: Job, outcome: Any, *further: Any) -> Any:
        if self.lose:
            self.lose -= 1
            raise StorageError("the disk is full")
        return await super().finish(held, outcome, *further)


@pytest.mark.parametrize("ours", [(), (call("read", "r1", path="SOUL.md"),)], ids=["alone", "beside-ours"])
async def test_a_turn_that_asked_and_was_cut_off_asks_the_same_again(workspace: Path, ours: Any) -> None:
    async with Harness(workspace, model=ScriptedProvider(), queue=LosesResults) as pal:
        pal.model.says(calls(*ours, call("weather", "c1")))
        lost = await submit(pal, "weather?")
        assert lost.status == "error"
        await pal.crash()
        await pal.idle()
        result = await pal.result(lost.run_id)
        assert result is not None
        assert [each.id for each in result.calls] == ["c1"]
        assert len(pal.model.requests) == 1


@pytest.mark.parametrize("ours", [(), (call("read", "r1", path="SOUL.md"),)], ids=["alone", "beside-ours"])
async def test_a_lost_question_is_not_answered_with_what_came_later(workspace: Path, ours: Any) -> None:
    """Its client has brought the result, or somebody else has spoken; the first run still only asked."""
    for later in ({"results": (sunny(),)}, {"text": "something else"}):
        async with Harness(workspace, model=ScriptedProvider(), queue=LosesResults) as pal:
            pal.model.says(calls(*ours, call("weather", "c1")), "A later answer.")
            lost = await submit(pal, "weather?")
            assert (await submit(pal, **later)).text == "A later answer."
            await pal.crash()
            await pal.idle()
            first = await pal.result(lost.run_id)
            assert first is not None
            assert first.text == ""
            assert [each.id for each in first.calls] == ["c1"]


async def test_a_stop_while_our_tool_runs_leaves_no_call_open(workspace: Path) -> None:
    going = asyncio.Event()

    @tool("slow", "Take long.")
    async def slow(run: ToolRun) -> ToolOutput:
        going.set()
        await asyncio.Event().wait()
        return ToolOutput("never")

    async with Harness(workspace, tools=[slow]) as pal:
        pal.model.says(calls(call("weather", "c1"), call("slow", "s1")))
        run = await pal.dispatcher.submit(Inbound("go", "k", client_tools=(WEATHER,), plain=True))
        await asyncio.wait_for(going.wait(), WAIT)
        pal.dispatcher.stop(run_id=run.id)
        result = await run.wait(WAIT)
        assert result.status == "aborted"
        assert result.calls == ()
        said = await pal.messages()
        assert [type(each) for each in said] == [
            UserMessage,
            AssistantMessage,
            ToolResult,
            ToolResult,
            AssistantMessage,
        ]


async def test_who_steers_takes_the_place_of_the_clients_call(workspace: Path) -> None:
    going, go_on = asyncio.Event(), asyncio.Event()

    @tool("slow", "Take long.")
    async def slow(run: ToolRun) -> ToolOutput:
        going.set()
        await go_on.wait()
        return ToolOutput("done")

    async with Harness(workspace, tools=[slow]) as pal:
        pal.agents.queueing = type(pal.agents.queueing)("steer")
        pal.model.says(calls(call("slow", "s1"), call("weather", "c1")), "Heard.")
        run = await pal.dispatcher.submit(Inbound("go", "k1", client_tools=(WEATHER,)))
        await asyncio.wait_for(going.wait(), WAIT)
        other = await pal.submits("wait, no")
        go_on.set()
        assert (await run.wait(WAIT)).text == "Heard."
        assert (await other.wait(WAIT)).joined == run.id
        assert violations(pal.model.requests[-1].messages) == []


async def test_a_tool_with_the_name_of_one_of_ours_is_the_clients_for_that_message(pal: Harness) -> None:
    mine = ToolSpec("memory_write", "Something else.", {"type": "object"})
    pal.model.says(calls(call("memory_write", "c1", text="theirs")), "Written.", "And on.")
    asked = await submit(pal, "go", client_tools=(mine,))
    assert [each.name for each in asked.calls] == ["memory_write"]
    assert [spec for spec in pal.model.requests[0].head.tools if spec.name == mine.name] == [mine]
    result = ToolResult("c1", "memory_write", "done")
    assert (await submit(pal, client_tools=(mine,), results=(result,))).text == "Written."
    assert not pal.files.boundary.root.joinpath("memory").exists()
    await submit(pal, "and on", client_tools=())
    (ours,) = [spec for spec in pal.model.requests[-1].head.tools if spec.name == mine.name]
    assert ours.description != mine.description


async def test_two_calls_of_one_id_are_asked_once(pal: Harness) -> None:
    pal.model.says(calls(call("weather", "c1"), call("weather", "c1", twice=True)), "Sunny.")
    asked = await submit(pal, "weather?")
    assert len(asked.calls) == 1
    assert (await submit(pal, results=(sunny(),))).text == "Sunny."
    assert violations(pal.model.requests[-1].messages) == []


async def test_a_session_is_not_reset_between_a_call_and_its_result(workspace: Path) -> None:
    async with Harness(workspace) as pal:
        pal.model.says(ASKS, "Sunny.")
        await submit(pal, "weather?")
        pal.resets = type(pal.resets)("daily", 4)
        pal.clock.advance(days=2)
        assert (await submit(pal, results=(sunny(),))).text == "Sunny."
