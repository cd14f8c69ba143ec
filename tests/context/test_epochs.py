"""Epochs: which changes start a new head, and which ride in the newest message of the old one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.context.assemble import violations
from palinurus.context.epoch import EPOCH
from palinurus.context.prompt import ContextSettings, PromptSettings
from palinurus.domain.messages import ContextNote, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.transcript import CustomEntry
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness
from palinurus.tools.registry import ToolRegistry


async def epochs(pal: Harness, key: str = "agent:main:main") -> list[str]:
    """The reasons of all epochs, in order."""
    return [
        entry.data["reason"]
        for entry in await pal.transcript(key)
        if isinstance(entry, CustomEntry) and entry.custom_type == EPOCH
    ]


def notes(request: ModelRequest) -> list[ContextNote]:
    newest = request.messages[-1]
    assert isinstance(newest, UserMessage)
    return [note for note in newest.context if note.kind == "file"]


def assert_continues(earlier: ModelRequest, later: ModelRequest) -> None:
    assert later.head == earlier.head
    assert later.messages[: len(earlier.messages)] == earlier.messages
    assert violations(later.messages) == []


async def test_ten_turns_with_tools_are_one_epoch_that_only_grows(pal: Harness) -> None:
    for turn in range(10):
        note = call("memory_write", f"n{turn}", text=f"turn {turn}")
        pal.model.says(calls(call("ls", f"c{turn}"), note), f"reply {turn}")
        await pal.hears(f"turn {turn}")
        pal.clock.advance(minutes=7)
    assert await epochs(pal) == ["new"]
    assert len(pal.model.requests) == 20
    for earlier, later in zip(pal.model.requests, pal.model.requests[1:], strict=False):
        assert_continues(earlier, later)


def edit(root: Path) -> None:
    (root / "SOUL.md").write_text("# Soul\nBold now.\n")


def remove(root: Path) -> None:
    (root / "SOUL.md").unlink()


def empty(root: Path) -> None:
    (root / "SOUL.md").write_text("\n")


def create(root: Path) -> None:
    (root / "BOOTSTRAP.md").write_text("Say hello.\n")


def break_it(root: Path) -> None:
    (root / "SOUL.md").unlink()
    (root / "SOUL.md").mkdir()


@pytest.mark.parametrize(
    ("change", "name", "shown"),
    [
        (edit, "SOUL.md", "Bold now."),
        (remove, "SOUL.md", "[missing: SOUL.md"),
        (empty, "SOUL.md", "[removed from the workspace]"),
        (create, "BOOTSTRAP.md", "Say hello."),
        (break_it, "SOUL.md", "[unreadable:"),
    ],
)
async def test_a_file_that_changes_between_two_turns_rides_in_the_newest_message_once(
    pal: Harness, workspace: Path, change: Callable[[Path], None], name: str, shown: str
) -> None:
    await pal.hears("one")
    change(workspace)
    await pal.hears("two")
    await pal.hears("three")
    first, second, third = pal.model.requests
    assert [note.name for note in notes(second)] == [name]
    assert shown in notes(second)[0].text
    assert notes(third) == []
    assert_continues(first, second)
    assert_continues(second, third)
    assert await epochs(pal) == ["new"]


async def test_a_file_that_comes_back_to_what_the_head_shows_is_told_again(pal: Harness, workspace: Path) -> None:
    old = (workspace / "SOUL.md").read_text()
    await pal.hears("one")
    edit(workspace)
    await pal.hears("two")
    (workspace / "SOUL.md").write_text(old)
    await pal.hears("three")
    assert "Curious and calm." in notes(pal.model.requests[-1])[0].text


async def test_a_new_epoch_shows_the_edited_file_in_its_head_and_drops_the_old_note(
    pal: Harness, workspace: Path
) -> None:
    await pal.hears("one")
    edit(workspace)
    await pal.hears("two")
    pal.model_name = "model-2"
    await pal.hears("three")
    request = pal.model.requests[-1]
    assert "Bold now." in request.head.system
    assert not any(
        note.kind == "file"
        for message in request.messages
        if isinstance(message, UserMessage)
        for note in message.context
    )
    assert [message.text for message in request.messages[::2]] == ["one", "two", "three"]


async def test_continuation_skip_lets_an_edit_wait_for_the_next_epoch(pal: Harness, workspace: Path) -> None:
    pal.change(injection="continuation-skip")
    await pal.hears("one")
    edit(workspace)
    await pal.hears("two")
    assert notes(pal.model.requests[-1]) == []
    assert_continues(*pal.model.requests)
    await pal.hears("/new")
    await pal.hears("three")
    assert "Bold now." in pal.model.requests[-1].head.system


async def test_never_shows_no_file_at_all(workspace: Path) -> None:
    settings = ContextSettings(PromptSettings(workspace=str(workspace), inject=False), "never")
    async with Harness(workspace, context=settings) as pal:
        await pal.hears("one")
        edit(workspace)
        await pal.hears("two")
    assert all("Project context" not in request.head.system for request in pal.model.requests)
    assert all(notes(request) == [] for request in pal.model.requests)


async def test_a_good_first_turn_leaves_the_completion_marker_once(pal: Harness) -> None:
    await pal.hears("one")
    await pal.hears("two")
    marks = [
        entry
        for entry in await pal.transcript()
        if isinstance(entry, CustomEntry) and entry.custom_type == "openclaw:bootstrap-context:full"
    ]
    assert len(marks) == 1


@tool("sail", "Set sail.")
async def sail(run: ToolRun) -> ToolOutput:
    return ToolOutput("sailing")


def another_model(pal: Harness) -> None:
    pal.model_name = "model-2"


def more_thinking(pal: Harness) -> None:
    async def choose(wanted: str) -> Any:
        provider, route = await pal._choose(wanted)
        return provider, msgspec.structs.replace(route, thinking="high")

    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, choose_model=choose)


def another_wire(pal: Harness) -> None:
    pal.model.wire = "other"


def another_tool(pal: Harness) -> None:
    async def hands(*_: object) -> ToolRegistry:
        return ToolRegistry([sail])

    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, tools=hands)


def another_limit(pal: Harness) -> None:
    prompt = msgspec.structs.replace(pal.agents.agent.context.prompt, file_limit=500)
    pal.change(prompt=prompt)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another_model, "model"),
        (more_thinking, "thinking"),
        (another_wire, "wire"),
        (another_tool, "tools"),
        (another_limit, "config"),
    ],
)
async def test_what_the_head_cannot_survive_starts_a_new_epoch_with_its_reason(
    pal: Harness, change: Callable[[Harness], None], reason: str
) -> None:
    await pal.hears("one")
    change(pal)
    await pal.hears("two")
    await pal.hears("three")
    assert await epochs(pal) == ["new", reason]
    assert_continues(*pal.model.requests[1:])
    assert violations(pal.model.requests[1].messages) == []


async def test_a_reset_starts_a_new_epoch_and_sends_nothing_of_before(pal: Harness) -> None:
    await pal.hears("one")
    await pal.hears("/new")
    await pal.hears("two")
    assert await epochs(pal) == ["new", "reset"]
    assert [message.text for message in pal.model.requests[-1].messages] == ["two"]


async def test_time_passing_and_other_sessions_start_no_epoch(pal: Harness) -> None:
    await pal.hears("one")
    pal.clock.advance(days=3)
    await pal.hears("elsewhere", key="agent:main:direct:alice")
    await pal.hears("two")
    assert await epochs(pal) == ["new"]
    assert_continues(pal.model.requests[0], pal.model.requests[2])


async def test_a_process_that_starts_anew_continues_the_epoch(pal: Harness) -> None:
    await pal.hears("one")
    await pal.crash()
    await pal.hears("two")
    assert await epochs(pal) == ["new"]
    assert_continues(*pal.model.requests)


async def test_the_time_rides_in_the_message_and_not_in_the_head(pal: Harness) -> None:
    await pal.hears("one")
    newest = pal.model.requests[0].messages[-1]
    assert [note.text for note in newest.context if note.kind == "time"] == ["Sun 2026-11-15 09:00 UTC"]
    assert "2026" not in pal.model.requests[0].head.system
