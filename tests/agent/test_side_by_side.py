"""Calls of one reply that only read run at the same time; their results keep the order of the calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palinurus.agent.loop import AT_ONCE, STOPPED, batches
from palinurus.domain.messages import ToolCall
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, tool
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness


class Meeting:
    """Tools whose calls wait until so many are there at the same time."""

    def __init__(self, *names: str, count: int = 2) -> None:
        self.order: list[str] = []
        self._count = count
        self._all = asyncio.Event()
        self.tools = [self._make(name) for name in names]

    def _make(self, name: str) -> Tool:
        @tool(name, "Waits for the others.")
        async def wait(run: ToolRun, word: str = "") -> ToolOutput:
            self.order.append(word)
            if len(self.order) == self._count:
                self._all.set()
            async with asyncio.timeout(60):
                await self._all.wait()
            return ToolOutput(f"{word} was there")

        return wait


async def test_calls_that_only_read_run_together_and_answer_in_their_order(tmp_path: Path) -> None:
    meeting = Meeting("web_search", count=3)
    async with Harness(tmp_path, tools=meeting.tools) as pal:
        words = ("one", "two", "three")
        pal.model.says(calls(*(call("web_search", word, word=word) for word in words)), "done")
        assert (await pal.hears("go")).text == "done"
        assert [result.text for result in await pal.tool_results()] == [f"{word} was there" for word in words]


async def test_a_call_with_an_effect_waits_for_those_before_it(tmp_path: Path) -> None:
    async with Harness(tmp_path) as pal:
        (tmp_path / "a.md").write_text("old")
        write = call("memory_write", "2", text="new thing")
        pal.model.says(calls(call("ls", "1"), write, call("ls", "3", path="memory")), "done")
        assert (await pal.hears("go")).text == "done"
        first, written, last = await pal.tool_results()
        assert "memory" not in first.text
        assert not written.is_error
        assert ".md" in last.text


async def test_stop_ends_all_of_them_and_keeps_what_was_there(tmp_path: Path) -> None:
    meeting = Meeting("web_search", count=3)  # the third never comes
    async with Harness(tmp_path, tools=meeting.tools) as pal:
        pal.model.says(calls(call("web_search", "a", word="a"), call("web_search", "b", word="b")), "never")
        run = await pal.submits("go")
        async with asyncio.timeout(60):
            while len(meeting.order) < 2:
                await asyncio.sleep(0)
        pal.dispatcher.stop(run.key)
        assert (await run.wait(60)).status == "aborted"
        assert [result.text for result in await pal.tool_results()] == [STOPPED, STOPPED]


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        ("read read read", [3]),
        ("read write read", [1, 1, 1]),
        ("read grep web_fetch web_search ls", [2, 2, 1]),
        ("exec exec", [1, 1]),
        ("", []),
        (" ".join(["read"] * (AT_ONCE + 1)), [AT_ONCE, 1]),
    ],
)
def test_what_leaves_the_machine_is_not_mixed_with_what_does_not(names: str, sizes: list[int]) -> None:
    made = [ToolCall(str(number), name, {}) for number, name in enumerate(names.split())]
    found = list(batches(made))
    assert [len(batch) for batch in found] == sizes
    assert [each for batch in found for each in batch] == made
