"""`from palinurus import Pal`: a home in somebody's program, alone in it or beside the process that holds it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from palinurus import Pal, PalinurusError
from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotFound, RunFailed
from palinurus.domain.events import AssistantDelta, RunResult, ToolFinished
from palinurus.domain.messages import AssistantMessage, ToolResult, UserMessage
from support.wire import Answers, Calls, Hangs, Says, WireServer

LIMIT = 60.0


def opened(home: Home) -> Pal:
    return Pal.open(home.root, env={"HOME": str(home.user_home)})


async def test_a_message_is_answered_in_the_session_that_is_named(home: Home, server: WireServer) -> None:
    server.script += [Says("Green."), Says("Since May.")]
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        reply = await pal.ask("what colour is my bicycle?", session="garage")
        assert (reply.text, reply.session_key, reply.model) == ("Green.", "agent:main:explicit:garage", "mock/m")
        await pal.ask("since when?", session="garage")
        messages = await pal.messages("garage")
        assert [type(each) for each in messages] == [UserMessage, AssistantMessage] * 2
        assert messages[-1].text == "Since May."
        assert [str(each.key) for each in await pal.sessions()] == ["agent:main:explicit:garage"]
        with pytest.raises(NotFound):
            await pal.messages("cellar")


async def test_commands_are_plain_text(home: Home, server: WireServer) -> None:
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        await pal.ask("/new")
        assert len(server.requests) == 1


async def test_a_stream_has_the_text_as_it_comes_and_the_result_last(home: Home, server: WireServer) -> None:
    server.script.append(Says("one two three", chunks=3))
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        events = [event async for event in pal.stream("count")]
    assert "".join(each.text for each in events if isinstance(each, AssistantDelta)) == "one two three"
    assert isinstance(events[-1], RunResult)
    assert events[-1].text == "one two three"


async def test_a_failed_run_is_raised_with_its_kind(home: Home, server: WireServer) -> None:
    server.script.append(Answers(401, {"error": {"message": "no"}}))
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        with pytest.raises(RunFailed) as failed:
            await pal.ask("hi")
    assert failed.value.kind == "auth"


async def test_functions_are_called_and_the_model_reads_what_they_return(home: Home, server: WireServer) -> None:
    called: list[Any] = []

    def tide(day: str, metres: bool = True) -> dict[str, float]:
        """The tide."""
        called.append((day, metres))
        return {"height": 6.4}

    async def moon(day: str) -> str:
        """The moon."""
        raise PalinurusError("there is no moon", hint="look down")

    server.script += [Calls(("tide", {"day": "monday"}), ("moon", {"day": "monday"})), Says("6.4 m.")]
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        reply = await pal.ask("how high?", session="harbour", tools=[tide, moon])
        assert reply.text == "6.4 m."
        assert called == [("monday", True)]
        results = [each for each in await pal.messages("harbour") if isinstance(each, ToolResult)]
    offered = {each["function"]["name"]: each["function"] for each in server.requests[0]["tools"]}
    assert offered["tide"]["description"] == "The tide."
    assert offered["tide"]["parameters"]["required"] == ["day"]
    assert [(each.tool_name, each.is_error) for each in results] == [("tide", False), ("moon", True)]
    assert '{"height":6.4}' in results[0].text
    assert "there is no moon (look down)" in results[1].text


async def test_wrong_arguments_are_told_to_the_model_and_not_to_the_function(home: Home, server: WireServer) -> None:
    def tide(day: str) -> str:
        """The tide."""
        raise AssertionError(day)

    server.script += [Calls(("tide", {"night": "monday"})), Says("Sorry.")]
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        events = [event async for event in pal.stream("how high?", tools=[tide])]
    (finished,) = [each for each in events if isinstance(each, ToolFinished)]
    assert finished.is_error
    assert "tide has no argument 'night'" in finished.text


async def test_an_exception_of_a_function_is_the_callers_and_the_session_goes_on(
    home: Home, server: WireServer
) -> None:
    def tide() -> str:
        """The tide."""
        raise ZeroDivisionError

    server.script += [Calls(("tide", {})), Says("Still here.")]
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        with pytest.raises(ZeroDivisionError):
            await pal.ask("how high?", tools=[tide])
        assert (await pal.ask("are you there?")).text == "Still here."


async def test_a_function_that_cannot_be_described_is_refused_before_anything_is_sent(
    home: Home, server: WireServer
) -> None:
    def untyped(day) -> str:  # type: ignore[no-untyped-def]
        return str(day)

    def starred(*days: str) -> str:
        return str(days)

    async with asyncio.timeout(LIMIT), opened(home) as pal:
        for function in (untyped, starred):
            with pytest.raises(BadRequest):
                await pal.ask("hi", tools=[function])
    assert server.requests == []


async def test_a_run_that_nobody_waits_for_is_stopped(home: Home, server: WireServer) -> None:
    server.script += [Hangs("I thi"), Says("Here.")]
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        async for event in (stream := pal.stream("think")):
            if isinstance(event, AssistantDelta):
                break
        await stream.aclose()
        await server.until(lambda each: each.departed == 1)
        assert (await pal.ask("are you there?")).text == "Here."


async def test_two_programs_share_a_home_and_functions_run_where_they_were_given(
    home: Home, server: WireServer
) -> None:
    here: list[str] = []

    def tide(day: str) -> str:
        """The tide."""
        here.append(day)
        return "6.4 m"

    server.script += [Says("First."), Calls(("tide", {"day": "monday"})), Says("6.4 m.")]
    async with asyncio.timeout(LIMIT), opened(home) as holder, opened(home) as guest:
        assert (await holder.ask("hi")).text == "First."
        assert (await guest.ask("how high?", tools=[tide])).text == "6.4 m."
        assert here == ["monday"]
        assert len(await holder.messages()) == len(await guest.messages()) == 6


async def test_memory_is_searched(home: Home) -> None:
    async with asyncio.timeout(LIMIT), opened(home) as pal:
        found = await pal.search("what is the boat called", limit=1)
    assert "Aster" in found.results[0].snippet


async def test_a_home_that_does_not_exist_is_made(tmp_path: Path) -> None:
    root = tmp_path / "new"
    async with asyncio.timeout(LIMIT), Pal.open(root, env={"HOME": str(tmp_path)}) as pal:
        assert await pal.sessions() == ()
    assert (root / "workspace" / "AGENTS.md").exists()


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import palinurus; print(sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == "['palinurus']"
