"""What `pal agent` and `pal chat` leave in the daily note: with a model, without one, in processes that end at once."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.context.flush import QUESTION
from support.behaviours import Behaviour, Json, Says
from support.wire import WireServer

sys.path[:0] = [str(Path(__file__).parent.parent / "faults")]
from homes import PalHome  # noqa: E402

ADA = "My sister Ada lives in Oslo."
NOTES = (
    '[{"text": "Ada, the sister of the user, lives in Oslo", "quote": "Ada lives in Oslo", "who": "Ada"},'
    ' {"text": "The user owns a castle in Spain", "quote": "Ada lives in Oslo"}]'
)
NEARLY_FULL = {"prompt_tokens": 23_500, "completion_tokens": 100, "total_tokens": 23_600}  # of 32,000


def asks_for_notes(body: Json) -> bool:
    return QUESTION.splitlines()[0] in str(body["messages"][-1]["content"])


def daily(workspace: Path) -> str:
    return "\n".join(file.read_text() for file in (workspace / "memory").glob("2*.md"))


def test_without_a_model_a_greeting_leaves_nothing_that_is_quoted_as_memory(pal_command: Pal, workspace: Path) -> None:
    ended = pal_command("chat", stdin="hello\n/new\nwhat colour is my bicycle?\n")
    assert "I find nothing about colour, bicycle in my notes." in ended.out
    assert "From my notes" not in ended.out
    assert not (workspace / "memory").exists()


def test_what_was_told_before_a_fresh_start_is_found_after_it(pal_command: Pal, workspace: Path, home: Home) -> None:
    said = "hello\nmy bicycle is green\nlist files\nthanks\n/new\nwhat colour is my bicycle?\n"
    ended = pal_command("chat", stdin=said)
    assert "> my bicycle is green (memory/" in ended.out.partition("The session was reset")[2]
    notes = [line for line in daily(workspace).splitlines() if line.startswith("- ")]
    assert notes == ["- W: my bicycle is green"]


def model(body: Json) -> Behaviour:
    return Says(NOTES) if asks_for_notes(body) else Says("I see.", usage=NEARLY_FULL)


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=model) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, wire: WireServer) -> PalHome:
    services = PalHome(tmp_path / "home")
    services.set_up(wire.base_url)
    return services


@pytest.mark.slow
async def test_one_message_that_nearly_fills_the_window_has_the_model_take_notes_before_the_process_ends(
    place: PalHome, wire: WireServer
) -> None:
    ended = await place.pal("agent", "--message", ADA)
    assert (ended.code, ended.out) == (0, "I see.\n")
    assert [asks_for_notes(body) for body in wire.requests] == [False, True]
    assert "- W @Ada: Ada, the sister of the user, lives in Oslo\n" in daily(place.workspace)
    assert "castle" not in daily(place.workspace)


@pytest.mark.slow
async def test_a_short_message_costs_one_call_and_a_fresh_start_one_more_for_its_notes(
    place: PalHome, wire: WireServer
) -> None:
    wire.script += [Says("I see."), Says("Hello.")]
    await place.pal("agent", "--message", ADA)
    await place.pal("agent", "--message", "hello")
    assert [asks_for_notes(body) for body in wire.requests] == [False, False]
    await place.pal("agent", "--message", "/new")
    assert [asks_for_notes(body) for body in wire.requests] == [False, False, True]
    assert "- W @Ada: Ada, the sister of the user, lives in Oslo\n" in daily(place.workspace)
    await place.pal("agent", "--message", "/new")  # nothing was said since
    assert len(wire.requests) == 3
