"""STOP stops: while the model speaks, while a tool runs, while the message waits. What was said is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.context.assemble import violations
from palinurus.domain.events import Lifecycle
from palinurus.domain.messages import AssistantMessage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest, ReplyEvent, TextDelta
from palinurus.testing.fakes import ScriptedProvider, call, calls
from palinurus.testing.harness import Harness


class Storyteller(ScriptedProvider):
    """Begins a story and never ends it, until it is given replies to say."""

    def __init__(self) -> None:
        super().__init__()
        self.speaking = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        if self.replies:
            async for event in super().stream(request):
                yield event
            return
        self.requests.append(request)
        yield TextDelta("Once upon")
        self.speaking.set()
        await asyncio.Event().wait()


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    async with Harness(workspace, model=Storyteller()) as whole:
        yield whole


async def speaking(pal: Harness) -> None:
    await asyncio.wait_for(pal.model.speaking.wait(), 60)


@pytest.mark.parametrize("word", ["/stop", "stop", "ABORT"])
async def test_stop_while_the_model_speaks_keeps_what_it_had_said(pal: Harness, word: str) -> None:
    run = await pal.submits("tell me a story")
    await speaking(pal)
    assert (await pal.hears(word)).text == "Stopped 1 run."
    result = await run.wait(60)
    assert (result.status, result.text, result.error) == ("aborted", "Once upon", "stopped by the user")
    said, reply = await pal.messages()
    assert said.text == "tell me a story"
    assert isinstance(reply, AssistantMessage)
    assert (reply.text, reply.stop_reason) == ("Once upon", "aborted")
    assert [event async for event in run.events()][-1] == Lifecycle("aborted", "stopped by the user")


async def test_stop_while_messages_wait_keeps_them_and_answers_none(pal: Harness) -> None:
    runs = [await pal.submits(text) for text in ("one", "two", "three")]
    await speaking(pal)
    assert (await pal.hears("/stop")).text == "Stopped 3 runs."
    assert [(await run.wait(60)).status for run in runs] == ["aborted"] * 3
    messages = await pal.messages()
    assert [message.text for message in messages[::2]] == ["one", "two", "three"]
    assert all(isinstance(reply, AssistantMessage) and reply.stop_reason == "aborted" for reply in messages[1::2])
    assert len(pal.model.requests) == 1


async def test_after_a_stop_the_next_message_is_answered_as_usual(pal: Harness) -> None:
    await pal.submits("tell me a story")
    await speaking(pal)
    await pal.hears("/stop")
    pal.model.says("Of course.")
    assert (await pal.hears("something shorter, please")).text == "Of course."
    assert violations(pal.model.requests[-1].messages) == []


async def test_stop_while_a_tool_runs_ends_the_tool_and_the_turn(workspace: Path) -> None:
    rowing, let_go = asyncio.Event(), asyncio.Event()

    @tool("row", "Row.")
    async def row(run: ToolRun) -> ToolOutput:
        rowing.set()
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()
        return ToolOutput("never")

    async with Harness(workspace, tools=[row]) as pal:
        pal.model.says(calls(call("row")), "never said")
        run = await pal.submits("row!")
        await asyncio.wait_for(rowing.wait(), 60)
        await pal.hears("stop")
        assert (await run.wait(60)).status == "aborted"
        assert let_go.is_set()
        assert len(pal.model.requests) == 1
        pal.model.replies.clear()
        pal.model.says("Rested.")
        assert (await pal.hears("and now?")).text == "Rested."
        assert violations(pal.model.requests[-1].messages) == []


async def test_stop_in_one_session_leaves_the_others_alone(pal: Harness) -> None:
    mine = await pal.submits("a story", key="agent:main:direct:alice")
    await speaking(pal)
    pal.model.speaking.clear()
    theirs = await pal.submits("another", key="agent:main:direct:bob")
    await speaking(pal)
    await pal.hears("/stop", key="agent:main:direct:alice")
    assert (await mine.wait(60)).status == "aborted"
    assert theirs.result is None
    assert pal.dispatcher.stop(run_id=theirs.id) == 1
    assert (await theirs.wait(60)).status == "aborted"


async def test_stop_when_nothing_runs_says_so(pal: Harness) -> None:
    assert (await pal.hears("stop")).text == "Nothing was running."
