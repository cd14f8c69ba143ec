"""A long conversation with the sliding window: what the model reads, and what the transcript keeps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from palinurus_window import SlidingWindow, begin_of_window

from palinurus.context.assemble import violations
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.testing.fakes import call, calls, says
from palinurus.testing.harness import Harness

pytestmark = pytest.mark.real
WORDS = "the tide turns and the harbour lights come on one after the other " * 10


async def talk(pal: Harness, turns: int) -> None:
    for turn in range(turns):
        pal.model.replies += [calls(call("ls", path=".")), says(f"answer {turn}")]
        assert (await pal.hears(f"question {turn}. {WORDS}")).status == "ok"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "AGENTS.md").write_text("Be kind.")
    return tmp_path


async def test_the_first_message_and_the_newest_are_read_and_nothing_is_lost(workspace: Path) -> None:
    async with Harness(workspace, engine=SlidingWindow(1_500, 700)) as pal:
        await talk(pal, 30)
        sent = [request.messages for request in pal.model.requests]
        stored = await pal.messages()
        assert pal.turns.maintenance.engines.name == "window"
    assert [violations(each) for each in sent if violations(each)] == []
    last = sent[-1]
    assert "question 0." in last[0].text
    assert "messages between the first one" in last[1].text
    assert "question 29." in last[-3].text
    assert len(last) < 25
    assert [each.text for each in stored if isinstance(each, UserMessage)] == [f"question {n}. {WORDS}" for n in range(30)]
    assert len(stored) == 4 * 30


async def test_it_slides_seldom_so_that_caches_hit(workspace: Path) -> None:
    async with Harness(workspace, engine=SlidingWindow(3_000, 1_000)) as pal:
        await talk(pal, 30)
        sent = [request.messages for request in pal.model.requests]
    slid = [new[: len(old)] != old for old, new in pairwise(sent)]
    assert 2 <= sum(slid) <= 8


async def test_after_a_restart_the_model_reads_the_same(workspace: Path) -> None:
    async with Harness(workspace, engine=SlidingWindow(1_500, 700)) as pal:
        await talk(pal, 20)
        before = pal.model.requests[-1].messages
        await pal.crash()
        await talk(pal, 1)
        after = pal.model.requests[-2].messages
    assert after[: len(before)] == before or after[1].text != before[1].text


@pytest.mark.parametrize("size", [1, 40, 4_000])
def test_any_conversation_stays_valid(size: int) -> None:
    messages: list[Message] = []
    for turn in range(12):
        calls = tuple(ToolCall(f"c{turn}.{n}", "ls", {}) for n in range(turn % 4))
        messages += [UserMessage(f"{turn} " + "word " * size)]
        if calls:
            messages += [AssistantMessage(calls), *(ToolResult(each.id, "ls", "x" * size) for each in calls)]
        messages += [AssistantMessage((Text("done"),))]
        start = begin_of_window([*messages, UserMessage("next")], 2_000, 500)
        assert start == len(messages) or isinstance(messages[start], UserMessage)
