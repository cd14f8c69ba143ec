"""Old tool results shrink: which, how far, when; and what was said stays as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noted import NOON, model, result, user

from palinurus.context.assemble import violations
from palinurus.context.budget import is_cold, prune
from palinurus.context.epoch import EPOCH, PRUNED, PrunedForm, project, pruning, read_pruning
from palinurus.context.settings import PruneSettings
from palinurus.context.view import Line, View, fold
from palinurus.domain.messages import Image, Text, ToolResult
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.sessions.transcript import CustomEntry, MessageEntry, timestamp
from palinurus.testing.fakes import Reply, call, calls
from palinurus.testing.harness import Harness
from support.windowed import WindowedProvider

SETTINGS = PruneSettings()
WINDOW = 20_000  # tokens: 80,000 characters, trimmed from 24,000 on, cleared from 40,000 on


def story(sizes: list[int], assistants: int = 3) -> list[Line]:
    """A user, results of these sizes, and the last turns of the assistant."""
    lines = [user("look", "u")]
    for number, size in enumerate(sizes):
        lines += [model("", entry_id=f"a{number}"), result("x" * size, f"r{number}")]
    return [*lines, *(model("done", entry_id=f"z{number}") for number in range(assistants))]


def decide(lines: list[Line], pruned: dict[str, PrunedForm] | None = None, **changed: object) -> dict[str, str]:
    return dict(prune(lines, pruned or {}, WINDOW, msgspec.structs.replace(SETTINGS, **changed)))


def test_nothing_is_pruned_while_there_is_room() -> None:
    assert decide(story([5_000] * 4)) == {}


def test_long_results_are_trimmed_from_a_third_of_the_window_on() -> None:
    assert decide(story([5_000, 3_900, 9_000, 8_000])) == {"r0": "soft", "r2": "soft", "r3": "soft"}


def test_from_half_of_the_window_on_the_oldest_are_cleared_until_there_is_room() -> None:
    decided = decide(story([3_900] * 12))  # 46,800 characters, none of which is long enough to be trimmed
    assert decided == {"r0": "hard", "r1": "hard"}


def test_clearing_that_would_gain_little_is_left_to_compaction() -> None:
    talk = [user("y" * 60_000, "big"), *story([3_900, 3_900])]
    assert decide(talk) == {}


def test_the_last_three_turns_of_the_assistant_are_spared_and_so_is_what_stands_before_the_first_user() -> None:
    lines = [result("x" * 9_000, "before"), *story([9_000] * 5, assistants=0)]
    assert set(decide(lines)) == {"r0", "r1"}  # r2 to r4 stand behind the third assistant from the end
    assert decide(story([30_000], assistants=0)) == {}  # fewer than three turns


def test_pictures_and_tools_that_config_names_are_left_alone() -> None:
    picture = (Text("x" * 9_000), Image("aGk=", "image/png"))
    lines = [user("look"), result(picture, "p"), result("x" * 9_000, "e", tool="exec"), *story([9_000, 9_000])]
    assert "p" not in decide(lines)
    assert "e" not in decide(lines, never=("exec",))
    assert set(decide(lines, only=("exec",))) >= {"e"}
    assert decide(lines, mode="off") == {}
    assert "hard" not in decide(story([3_900] * 12), clears=False).values()


def test_a_trimmed_result_keeps_both_ends_and_says_how_long_it_was() -> None:
    text = "A" * 1_500 + "-" * 4_000 + "Z" * 1_500
    shown = project(result(text).message, PrunedForm("soft", 1_500, 1_500, "")).text
    assert shown.startswith("A" * 1_500 + "\n...\n")
    assert "Z" * 1_500 in shown
    assert "-" not in shown.split("[Tool")[0]
    assert "7,000 characters" in shown
    assert project(result(text).message, PrunedForm("hard", 0, 0, "[gone]")).text == "[gone]"


def test_a_cache_is_cold_when_nobody_was_answered_for_longer_than_it_lives() -> None:
    view = View(lines=(user("hi"), model("hello"), user("more")), answered=timestamp(NOON))
    assert not is_cold(view, NOON + 300_000, SETTINGS)
    assert is_cold(view, NOON + 300_001, SETTINGS)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 12_000), max_size=14), st.integers(500, 60_000))
def test_deciding_again_finds_less_and_less_and_ends(sizes: list[int], window: int) -> None:
    whole, pruned = story(sizes), dict[str, PrunedForm]()
    lines = whole
    before = sum(len(line.message.text) for line in lines)
    for _ in range(4):
        decided = prune(lines, pruned, window, SETTINGS)
        entry = CustomEntry(id="e", timestamp="", custom_type=PRUNED, data=pruning(decided, SETTINGS))
        pruned |= read_pruning(entry)
        lines = [Line(line.id, project(line.message, pruned.get(line.id))) for line in whole]
        after = sum(len(line.message.text) for line in lines)
        assert after < before if decided else after == before
        before = after
    assert prune(lines, pruned, window, SETTINGS) == {}


def test_decisions_that_cannot_be_read_are_none() -> None:
    for data in (None, [], {"results": {"a": "gone"}}, {"results": {}}):
        assert read_pruning(CustomEntry(id="e", timestamp="", custom_type=PRUNED, data=data)) == {}


# -- in whole conversations --------------------------------------------------------------------------------------------


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    @tool("look", "Look at something large.")
    async def look(run: ToolRun, at: str) -> ToolOutput:
        return ToolOutput(f"{at}: " + "harbour lights " * 400)  # 6,000 characters

    async with Harness(workspace, model=WindowedProvider(window=WINDOW), tools=[look]) as whole:
        yield whole


async def talk(pal: Harness, turns: int, first: int = 0) -> None:
    for turn in range(first, first + turns):
        pal.model.says(calls(call("look", f"c{turn}", at=f"pier {turn}")), Reply(f"seen {turn}"))
        assert (await pal.hears(f"look at pier {turn}")).status == "ok"
        await pal.idle()


async def prunings(pal: Harness) -> list[CustomEntry]:
    entries = await pal.transcript()
    return [entry for entry in entries if isinstance(entry, CustomEntry) and entry.custom_type == PRUNED]


async def epochs(pal: Harness) -> list[str]:
    entries = await pal.transcript()
    custom = [entry for entry in entries if isinstance(entry, CustomEntry)]
    return [entry.data["reason"] for entry in custom if entry.custom_type == EPOCH]


async def test_results_are_pruned_after_a_pause_and_never_while_the_cache_is_warm(pal: Harness) -> None:
    await talk(pal, 7)
    assert await prunings(pal) == []
    pal.clock.advance(minutes=6)
    await talk(pal, 1, first=7)
    assert len(await prunings(pal)) == 1
    assert await epochs(pal) == ["new", "pruning"]
    shown = [message for message in pal.model.requests[-1].messages if isinstance(message, ToolResult)]
    assert "trimmed" in shown[0].text
    assert len(shown[-2].text) > 5_000
    said = [message for message in await pal.messages() if isinstance(message, ToolResult)]
    assert all(len(message.text) > 5_000 for message in said)  # and so does what was said


async def test_between_two_prunings_the_prompt_only_grows(pal: Harness) -> None:
    await talk(pal, 7)
    for round_ in range(1, 4):
        pal.clock.advance(minutes=6)
        await talk(pal, 2, first=7 * round_)
    assert len(await prunings(pal)) >= 3
    breaks = 0
    for earlier, later in zip(pal.model.requests, pal.model.requests[1:], strict=False):
        assert violations(later.messages) == []
        grew = later.messages[: len(earlier.messages)] == earlier.messages and later.head == earlier.head
        breaks += not grew
    assert breaks == len(await epochs(pal)) - 1


async def test_a_changed_config_does_not_change_what_was_already_pruned(pal: Harness) -> None:
    await talk(pal, 7)
    pal.clock.advance(minutes=6)
    await talk(pal, 1, first=7)
    before = pal.model.requests[-1].messages
    pruning_ = msgspec.structs.replace(SETTINGS, head=10, tail=10, placeholder="[other]")
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, pruning=pruning_)
    await talk(pal, 1, first=8)
    assert pal.model.requests[-1].messages[: len(before)] == before


async def test_after_a_crash_the_same_is_read(pal: Harness) -> None:
    await talk(pal, 7)
    pal.clock.advance(minutes=6)
    await talk(pal, 1, first=7)
    before = pal.model.requests[-1].messages
    await pal.crash()
    await talk(pal, 1, first=8)
    assert pal.model.requests[-1].messages[: len(before)] == before


async def test_a_compaction_prunes_what_stays(pal: Harness) -> None:
    short = msgspec.structs.replace(SETTINGS, soft_ratio=0.1)
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, pruning=short)
    await talk(pal, 24)
    reasons = await epochs(pal)
    assert "compaction" in reasons
    assert "pruning" not in reasons
    assert await prunings(pal)
    view = fold(await pal.transcript())
    kept = {line.id for line in view.lines}
    assert set(view.pruned) <= kept
    whole = {entry.id: entry.message for entry in await pal.transcript() if isinstance(entry, MessageEntry)}
    assert all(len(whole[entry_id].text) > 5_000 for entry_id in view.pruned)
