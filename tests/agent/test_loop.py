"""The model-and-tools loop: what it yields, how it fails, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from palinurus.agent import loop as loop_module
from palinurus.agent.loop import STOPPED, Loop
from palinurus.agent.reply import Stop, Stopped
from palinurus.context.assemble import violations
from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.events import (
    AssistantDelta,
    ModelAnswered,
    ModelCalled,
    RunEvent,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text, ToolResult, Usage, UserMessage
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, tool
from palinurus.providers.provider import (
    Head,
    ModelRequest,
    ReplyDone,
    ReplyEvent,
    ReplyNotice,
    TextDelta,
    ThinkingTextDelta,
)
from palinurus.testing.fakes import FakeClock, Reply, ScriptedProvider, call, calls, fails
from palinurus.tools.registry import ToolRegistry

REQUEST = ModelRequest("m", Head("be kind"), (UserMessage("hi"),))
RUN = ToolRun(SessionKey.main(), "run-1", private=True)
ran: list[str] = []


@tool("sail", "Set sail.")
async def sail(run: ToolRun, to: str) -> ToolOutput:
    ran.append(to)
    return ToolOutput(f"sailed to {to}")


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


class PlainPen:
    def __init__(self, clean: Callable[[Any], Any]) -> None:
        self.clean = clean

    def redact(self, text: str) -> str:
        return text


class Nobody:
    """Nobody speaks while the turn goes on."""

    def waiting(self) -> bool:
        return False

    def take(self) -> None:
        return None


class Scene:
    """A loop with everything that it told."""

    def __init__(self, provider: Any, *tools: Tool, clean: Callable[[Any], Any] = lambda message: message) -> None:
        pen = PlainPen(clean)
        self.events: list[RunEvent] = []
        self.stop = Stop()
        self.provider = provider
        self.clock = FakeClock()
        self.loop = Loop(provider, ToolRegistry(tools), RUN, self.stop, self.events.append, self.clock, pen, Nobody())
        self.heard: list[AssistantMessage | ToolResult] = []

    async def play(self) -> list[AssistantMessage | ToolResult]:
        async with asyncio.timeout(60):
            async for message in self.loop.messages(REQUEST):
                self.heard.append(message)
        return self.heard

    @property
    def last(self) -> AssistantMessage:
        assert isinstance(self.heard[-1], AssistantMessage)
        return self.heard[-1]


async def test_a_reply_without_calls_ends_the_loop() -> None:
    scene = Scene(ScriptedProvider("Hello there."))
    await scene.play()
    assert [message.text for message in scene.heard] == ["Hello there."]
    assert scene.events[1:-1] == [AssistantDelta("Hello "), AssistantDelta("there.")]


async def test_a_model_call_is_told_with_who_answered_how_soon_and_for_how_much() -> None:
    class Other(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
            scene.clock.advance(seconds=1)
            yield TextDelta("I beg")
            yield ReplyNotice("overloaded; going on with local/small", discard=True)
            scene.clock.advance(seconds=2)
            yield ThinkingTextDelta("hm")
            scene.clock.advance(seconds=4)
            yield ReplyDone(AssistantMessage((Text("yes"),), "local", "small", usage=Usage(7, 3), stop_reason="length"))

    scene = Scene(Other())
    await scene.play()
    assert scene.events[0] == ModelCalled("scripted", "m")
    assert scene.events[-1] == ModelAnswered("local", "small", 7.0, 3.0, Usage(7, 3), "length")


async def test_a_model_call_that_failed_is_told_with_its_kind() -> None:
    scene = Scene(ScriptedProvider(fails(Failure.BILLING)))
    await scene.play()
    assert scene.events[-1] == ModelAnswered("scripted", "m", 0.0, stop_reason="error", error="billing")


async def test_calls_are_run_in_their_order_and_the_model_reads_the_results() -> None:
    provider = ScriptedProvider(calls(call("sail", "a", to="Crete"), call("sail", "b", to="Sicily")), "Done.")
    scene = Scene(provider, sail)
    reply, first, second, last = await scene.play()
    assert ran == ["Crete", "Sicily"]
    assert [first.text, second.text, last.text] == ["sailed to Crete", "sailed to Sicily", "Done."]
    assert provider.requests[1].messages == (*REQUEST.messages, reply, first, second)
    assert [type(event) for event in scene.events[2:6]] == [ToolStarted, ToolFinished, ToolStarted, ToolFinished]


async def test_the_consumer_has_stored_each_message_before_the_next_thing_happens() -> None:
    provider = ScriptedProvider(calls(call("sail", to="Crete")), "Done.")
    scene = Scene(provider, sail)
    seen = [(len(provider.requests), list(ran)) async for _ in scene.loop.messages(REQUEST)]
    assert seen == [(1, []), (1, ["Crete"]), (2, ["Crete"])]


async def test_a_tool_that_does_not_exist_or_breaks_is_a_result_that_says_so() -> None:
    @tool("leak", "Break.")
    async def leak(run: ToolRun) -> ToolOutput:
        raise ZeroDivisionError("a hole")

    scene = Scene(ScriptedProvider(calls(call("fly", "a"), call("leak", "b")), "Sorry."), leak)
    await scene.play()
    results = [message for message in scene.heard if isinstance(message, ToolResult)]
    assert all(result.is_error for result in results)
    assert "no tool called 'fly'" in results[0].text
    assert "a hole" in results[1].text
    assert scene.last.text == "Sorry."


async def test_a_failure_of_the_model_is_a_reply_with_its_kind_and_what_had_arrived() -> None:
    error = ProviderError("too many", kind=Failure.RATE_LIMIT, hint="wait")
    scene = Scene(ScriptedProvider(Reply("half a sen", error=error)))
    await scene.play()
    assert scene.last.stop_reason == "error"
    assert scene.last.error_message == "rate_limit: too many (wait)"
    assert scene.last.text == "half a sen"


async def test_a_stream_that_ends_without_a_reply_is_an_error() -> None:
    class Silent(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
            yield TextDelta("well")

    scene = Scene(Silent())
    await scene.play()
    assert scene.last.stop_reason == "error"
    assert "without a reply" in (scene.last.error_message or "")


async def test_thinking_is_told_apart_from_words() -> None:
    class Thoughtful(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
            yield ThinkingTextDelta("hm")
            yield ReplyDone(AssistantMessage((Text("yes"),)))

    scene = Scene(Thoughtful())
    await scene.play()
    assert scene.events[1:-1] == [ThinkingDelta("hm")]


async def test_a_model_that_goes_round_in_circles_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MAX_STEPS", 3)
    provider = ScriptedProvider(otherwise=lambda request: calls(call("sail", f"c{len(request.messages)}", to="Crete")))
    scene = Scene(provider, sail)
    await scene.play()
    assert len(provider.requests) == 3
    assert scene.last.stop_reason == "error"
    assert "gave up after 3" in (scene.last.error_message or "")


async def test_two_calls_with_one_id_leave_the_next_request_valid() -> None:
    provider = ScriptedProvider(calls(call("sail", "same", to="Crete"), call("sail", "same", to="Sicily")), "Done.")
    await Scene(provider, sail).play()
    assert violations(provider.requests[1].messages) == []


async def test_an_error_between_two_calls_of_the_model_keeps_the_results() -> None:
    scene = Scene(ScriptedProvider(calls(call("sail", to="Crete")), fails(Failure.NETWORK)), sail)
    await scene.play()
    assert [type(message) for message in scene.heard] == [AssistantMessage, ToolResult, AssistantMessage]
    assert scene.last.error_message == "network: no"


async def test_what_the_model_is_sent_is_what_will_be_stored() -> None:
    def clean(message: Any) -> Any:
        return ToolResult("c", "sail", "cleaned") if isinstance(message, ToolResult) else message

    provider = ScriptedProvider(calls(call("sail", "c", to="Crete")), "Done.")
    scene = Scene(provider, sail, clean=clean)
    await scene.play()
    assert provider.requests[1].messages[-1].text == "cleaned"
    assert [event.text for event in scene.events if isinstance(event, ToolFinished)] == ["cleaned"]


class Endless(ScriptedProvider):
    """Says one word and then waits until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.speaking = asyncio.Event()
        self.let_go = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self.requests.append(request)
        try:
            yield TextDelta("Once ")
            self.speaking.set()
            await asyncio.Event().wait()
        finally:
            self.let_go = True


async def test_stop_while_the_model_speaks_keeps_what_was_said_and_lets_the_model_go() -> None:
    scene = Scene(Endless())
    playing = asyncio.create_task(scene.play())
    await asyncio.wait_for(scene.provider.speaking.wait(), 60)
    scene.stop.request("enough")
    await playing
    assert (scene.last.stop_reason, scene.last.text, scene.last.error_message) == ("aborted", "Once ", "enough")
    assert scene.provider.let_go


async def test_stop_while_a_tool_runs_ends_it_and_starts_no_other() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @tool("row", "Row for a long time.")
    async def row(run: ToolRun) -> ToolOutput:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ToolOutput("never")

    provider = ScriptedProvider(calls(call("row", "a"), call("sail", "b", to="Crete")), "never said")
    scene = Scene(provider, row, sail)
    playing = asyncio.create_task(scene.play())
    await asyncio.wait_for(started.wait(), 60)
    scene.stop.request()
    await playing
    assert ended.is_set()
    assert ran == []
    assert [message.text for message in scene.heard[1:3]] == [STOPPED, STOPPED]
    assert scene.last.stop_reason == "aborted"
    assert len(provider.requests) == 1


async def test_stop_before_the_start_calls_no_model() -> None:
    provider = ScriptedProvider("never said")
    scene = Scene(provider)
    scene.stop.request()
    await scene.play()
    assert provider.requests == []
    assert scene.last.stop_reason == "aborted"


async def test_cancelling_the_task_is_not_taken_for_a_stop() -> None:
    scene = Scene(Endless())
    playing = asyncio.create_task(scene.play())
    await asyncio.wait_for(scene.provider.speaking.wait(), 60)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing


async def test_a_stop_together_with_a_cancellation_cancels() -> None:
    scene = Scene(Endless())
    playing = asyncio.create_task(scene.play())
    await asyncio.wait_for(scene.provider.speaking.wait(), 60)
    playing.cancel()
    scene.stop.request()
    with pytest.raises(asyncio.CancelledError):
        await playing


async def test_a_second_stop_changes_nothing() -> None:
    stop = Stop()
    stop.request("first")
    stop.request("second")
    assert stop.reason == "first"
    with pytest.raises(Stopped), stop.interruptible():
        pass


async def test_a_stop_that_a_tool_swallows_leaves_the_task_as_it_was() -> None:
    stop = Stop()

    async def deaf() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            stop.request()
            await asyncio.sleep(5)
        return "done all the same"

    with stop.interruptible():
        assert await deaf() == "done all the same"
    task = asyncio.current_task()
    assert task
    assert task.cancelling() == 0
    with pytest.raises(Stopped), stop.interruptible():
        pass


async def test_somebody_elses_cancellation_is_not_taken_for_a_stop() -> None:
    stop, began = Stop(), asyncio.Event()

    async def work() -> None:
        with stop.interruptible():
            began.set()
            await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await asyncio.wait_for(began.wait(), 60)
    stop.request()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
