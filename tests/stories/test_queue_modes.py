"""Somebody speaks while a run goes on: steer, followup, collect, interrupt, and what happens when too many do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from palinurus.agent.loop import SKIPPED
from palinurus.config.home import Home
from palinurus.context.assemble import violations
from palinurus.dispatch.queue import QueueSettings
from palinurus.dispatch.runs import Run
from palinurus.domain.errors import QueueFull
from palinurus.domain.messages import AssistantMessage, ToolResult, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest, ReplyEvent, TextDelta
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skills import look_around, open_skills
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness


class Dig:
    """A tool that takes as long as the test wants."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.times = 0

        @tool("dig", "Dig a hole.")
        async def dig(run: ToolRun) -> ToolOutput:
            self.times += 1
            self.began.set()
            await asyncio.wait_for(self.may_end.wait(), 60)
            return ToolOutput("a hole")

        self.tool = dig


@pytest.fixture
def dig() -> Dig:
    return Dig()


@pytest.fixture
async def pal(workspace: Path, dig: Dig) -> AsyncIterator[Harness]:
    async with Harness(workspace, tools=[dig.tool]) as whole:
        whole.agents.queueing = QueueSettings(debounce=0.0)
        yield whole


async def digging(pal: Harness, dig: Dig, *replies: str, holes: int = 1) -> Run:
    """A run in the middle of its first tool call."""
    wanted = [call("dig", call_id=f"call_{number}") for number in range(holes)]
    pal.model.says(calls(*wanted), *replies)
    run = await pal.submits("dig")
    await asyncio.wait_for(dig.began.wait(), 60)
    return run


def mode(pal: Harness, **settings: object) -> None:
    pal.agents.queueing = QueueSettings(**{"debounce": 0.0, **settings})  # type: ignore[arg-type]


async def test_steering_is_heard_after_the_tool_call_that_runs_and_the_rest_is_skipped(pal: Harness, dig: Dig) -> None:
    run = await digging(pal, dig, "Then I stop here.", holes=3)
    steering = await pal.submits("one is enough")
    dig.may_end.set()
    result, joined = await run.wait(60), await steering.wait(60)
    assert dig.times == 1
    assert (result.text, joined.text, joined.joined) == ("Then I stop here.", "Then I stop here.", run.id)
    messages = await pal.messages()
    kinds = [type(message) for message in messages]
    assert kinds == [UserMessage, AssistantMessage, *[ToolResult] * 3, UserMessage, AssistantMessage]
    assert [message.text for message in messages[2:6]] == ["a hole", SKIPPED, SKIPPED, "one is enough"]
    assert violations(pal.model.requests[-1].messages) == []
    assert pal.model.requests[-1].messages[-1].text == "one is enough"


async def test_several_who_steer_are_heard_as_one_message_and_all_are_answered(pal: Harness, dig: Dig) -> None:
    run = await digging(pal, dig, "Both heard.")
    others = [await pal.submits(text) for text in ("deeper", "and wider")]
    dig.may_end.set()
    assert [(await other.wait(60)).joined for other in others] == [run.id, run.id]
    steered = (await pal.messages())[3]
    assert isinstance(steered, UserMessage)
    assert (steered.text, steered.also) == ("deeper\n\nand wider", (others[1].id,))
    assert len(pal.model.requests) == 2


async def test_nobody_steers_past_one_who_wanted_a_fresh_start(pal: Harness, dig: Dig) -> None:
    run = await digging(pal, dig, "Dug.", "In the new one.")
    fresh, behind = await pal.submits("/new"), await pal.submits("hello")
    dig.may_end.set()
    results = [await each.wait(60) for each in (run, fresh, behind)]
    assert [result.joined for result in results] == ["", "", ""]
    assert [message.text for message in pal.model.requests[-1].messages] == ["hello"]


async def test_one_who_comes_too_late_to_steer_has_the_next_turn(pal: Harness, dig: Dig) -> None:
    run = await digging(pal, dig, "Dug.", "Hello.")
    dig.may_end.set()
    await run.wait(60)
    late = await pal.hears("hi")
    assert (late.text, late.joined) == ("Hello.", "")


async def test_a_run_that_was_steered_and_then_died_is_answered_once(pal: Harness, dig: Dig) -> None:
    run = await digging(pal, dig)
    await pal.submits("also this")
    await pal.crash()
    dig.may_end.set()
    pal.model.says("Here I am again.", "And for you too.")
    await pal.idle()
    texts = [message.text for message in await pal.messages() if isinstance(message, UserMessage)]
    assert texts == ["dig", "also this"]
    assert (await pal.result(run.id)).status == "ok"


async def test_a_turn_that_was_spoken_into_and_then_died_is_taken_up_as_one(pal: Harness, dig: Dig) -> None:
    """It died while the model answered both: neither is too late, and both have the one answer."""
    run = await digging(pal, dig)
    steering = await pal.submits("one is enough")
    asked, answer = asyncio.Event(), pal.model.stream

    async def hangs(request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        asked.set()
        await asyncio.Event().wait()
        yield TextDelta("never")

    pal.model.stream = hangs
    dig.may_end.set()
    await asyncio.wait_for(asked.wait(), 60)
    pal.model.stream = answer
    pal.model.says("Here I am again.")
    await pal.crash()
    await pal.idle()
    results = [await pal.result(each.id) for each in (run, steering)]
    assert [(result.status, result.text) for result in results] == [("ok", "Here I am again.")] * 2
    assert [m.text for m in await pal.messages() if isinstance(m, UserMessage)] == ["dig", "one is enough"]


async def test_followups_are_turns_of_their_own_in_their_order(pal: Harness, dig: Dig) -> None:
    mode(pal, mode="followup")
    run = await digging(pal, dig, "Dug.", "First.", "Second.")
    others = [await pal.submits(text) for text in ("one", "two")]
    dig.may_end.set()
    assert [(await each.wait(60)).text for each in (run, *others)] == ["Dug.", "First.", "Second."]


async def test_what_is_collected_becomes_one_turn(pal: Harness, dig: Dig) -> None:
    mode(pal, mode="collect")
    run = await digging(pal, dig, "Dug.", "All three heard.")
    others = [await pal.submits(text) for text in ("one", "two", "three")]
    dig.may_end.set()
    assert (await run.wait(60)).text == "Dug."
    assert [(await other.wait(60)).text for other in others] == ["All three heard."] * 3
    assert [(await other.wait(60)).joined for other in others] == ["", others[0].id, others[0].id]
    assert pal.model.requests[-1].messages[-1].text == "one\n\ntwo\n\nthree"


@pytest.mark.parametrize("how", ["steer", "collect"])
async def test_a_message_that_may_call_a_skill_has_a_turn_of_its_own(
    pal: Harness, dig: Dig, home: Home, workspace: Path, how: str
) -> None:
    folder = workspace / "skills" / "tides"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tides\ndescription: Knows the tides.\n---\nLook them up.\n")
    skills = open_skills(home, workspace, SkillsSettings(), look_around(home, {}))
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, skills=skills)
    mode(pal, mode=how)
    run = await digging(pal, dig, "Dug.", "Tides.", "Hello.")
    others = [await pal.submits(text) for text in ("/tides at noon", "hello")]
    dig.may_end.set()
    assert [(await each.wait(60)).joined for each in (run, *others)] == ["", "", ""]
    assert [request.messages[-1].text for request in pal.model.requests[-2:]] == ["/tides at noon", "hello"]


async def test_collected_words_of_different_speakers_are_not_put_into_one_mouth(pal: Harness, dig: Dig) -> None:
    mode(pal, mode="collect")
    await digging(pal, dig, "Dug.", "To the owner.", "To the guest.")
    one = await pal.submits("mine")
    other = await pal.submits("theirs", sender="guest")
    dig.may_end.set()
    assert [(await run.wait(60)).text for run in (one, other)] == ["To the owner.", "To the guest."]


async def test_an_interruption_stops_the_run_and_keeps_what_it_had(pal: Harness, dig: Dig) -> None:
    mode(pal, mode="interrupt")
    run = await digging(pal, dig, "Now you.")
    newest = await pal.submits("leave that")
    assert (await newest.wait(60)).text == "Now you."
    result = await run.wait(60)
    assert (result.status, result.error) == ("aborted", "a newer message came in")
    assert [m.text for m in await pal.messages() if isinstance(m, UserMessage)] == ["dig", "leave that"]


async def test_past_the_cap_the_newest_is_refused_when_config_says_so(pal: Harness, dig: Dig) -> None:
    mode(pal, mode="followup", cap=2, drop="new")
    await digging(pal, dig, "Dug.")
    for text in ("one", "two"):
        await pal.submits(text)
    with pytest.raises(QueueFull, match="2 messages already wait"):
        await pal.submits("three")
    dig.may_end.set()


@pytest.mark.parametrize(("drop", "told"), [("old", False), ("summarize", True)])
async def test_past_the_cap_the_oldest_is_kept_unanswered(pal: Harness, dig: Dig, drop: str, told: bool) -> None:
    mode(pal, mode="followup", cap=2, drop=drop)
    await digging(pal, dig, "Dug.", "Two.", "Three.")
    oldest, *others = [await pal.submits(text) for text in ("one", "two", "three")]
    dig.may_end.set()
    assert (await oldest.wait(60)).error == "left out: more than 2 messages waited"
    assert [(await other.wait(60)).text for other in others] == ["Two.", "Three."]
    said = [message for message in await pal.messages() if isinstance(message, UserMessage)]
    assert [message.text for message in said] == ["dig", "one", "two", "three"]
    notices = [note.text for note in said[2].context if note.kind == "notice"]
    assert any("- one" in notice for notice in notices) is told


async def test_queue_is_kept_for_the_session_and_answered_while_a_run_goes_on(pal: Harness, dig: Dig) -> None:
    await digging(pal, dig, "Dug.", "Both.")
    answer = await pal.hears("/queue collect cap:5 drop:old")
    assert "queue collect" in answer.text
    assert "at most 5" in answer.text
    others = [await pal.submits(text) for text in ("one", "two")]
    dig.may_end.set()
    assert [(await other.wait(60)).text for other in others] == ["Both.", "Both."]
    assert "queue steer" in (await pal.hears("/queue default")).text


async def test_stop_stops_the_host_of_those_who_joined_it(pal: Harness, dig: Dig) -> None:
    run = await digging(pal, dig)
    guest = await pal.submits("hurry")
    assert (await pal.hears("/stop")).text == "Stopped 2 runs."
    assert [(await each.wait(60)).status for each in (run, guest)] == ["aborted", "aborted"]
    assert [m.text for m in await pal.messages() if isinstance(m, UserMessage)] == ["dig", "hurry"]
