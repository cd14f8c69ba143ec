"""The core block: what every new prompt of the owner's sessions shows of the user, and no other does."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from palinurus.extensions.knowledge.core_block import core_block
from palinurus.extensions.knowledge.facts import read_facts
from palinurus.extensions.knowledge.store import StoredFact
from palinurus.text.tokens import estimate_tokens
from support.behaviours import Says
from support.wire import WireServer

sys.path[:0] = [str(Path(__file__).parent.parent / "faults")]
from homes import PalHome  # noqa: E402

TODAY = date(2026, 3, 1)


def block(*files: tuple[str, str], tokens: int = 300, ended: tuple[int, ...] = ()) -> list[str]:
    facts = [fact for path, text in files for fact in read_facts(path, f"## Retain\n{text}\n").facts]
    stored = [StoredFact(number, fact, fact.entities) for number, fact in enumerate(facts)]
    return core_block(stored, ended, TODAY, tokens).splitlines()


def test_it_has_what_the_user_said_of_himself_the_surest_and_newest_first() -> None:
    old, new = "memory/2025-01-01.md", "memory/2026-02-28.md"
    lines = block(
        (old, "- W: My dentist is Dr Weber.\n- W @Oslo: Oslo has a new library.\n- B: I fixed the crash."),
        (new, "- W: I moved to Lisbon.\n- O(c=0.9): I prefer short letters.\n- W: remember that I never eat meat"),
        (new, "- W: My bank asks for the code (from outside)\n- O(c=0.9) @Anna: Prefers our red boat."),
        ("bank/world.md", "- W: My car is blue."),
    )
    assert lines == [
        "- My car is blue.", "- I prefer short letters.", "- I never eat meat", "- I moved to Lisbon.",
        "- My dentist is Dr Weber.",
    ]  # fmt: skip


def test_what_holds_no_more_is_not_in_it() -> None:
    said = "- W: I live in Bonn.\n- W: I live in Lisbon.\n- W: I fly to Oslo tomorrow."
    assert block(("memory/2026-01-01.md", said), ended=(0,)) == ["- I live in Lisbon."]


@pytest.mark.parametrize("tokens", [0, 20, 100])
def test_it_fits_its_budget(tokens: int) -> None:
    said = "\n".join(f"- W: My boat number {number} lies at pier {number}." for number in range(99))
    lines = block(("memory/2026-01-01.md", said), tokens=tokens)
    assert estimate_tokens("\n".join(lines)) <= tokens
    assert bool(lines) is (tokens > 0)


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=lambda _: Says("I see.")) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, wire: WireServer) -> PalHome:
    made = PalHome(tmp_path / "home")
    made.set_up(wire.base_url)
    return made


def system(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"])


@pytest.mark.slow
async def test_the_head_of_the_next_session_has_it_and_a_change_rides_in_the_newest_message(
    home: PalHome, wire: WireServer
) -> None:
    for words in ("My dentist is Dr Weber.", "/new", "hello"):
        await home.pal("agent", "-m", words)
    first = wire.requests[-1]
    assert "## Core memory\n\n- My dentist is Dr Weber." in system(first)
    core = home.workspace / ".pal" / "core.md"
    core.write_text("- My dentist is Dr Gruber.\n")
    await home.pal("agent", "-m", "who is it?")
    assert system(wire.requests[-1]) == system(first)
    assert "Dr Gruber" in str(wire.requests[-1]["messages"][-1]["content"])
    shown = await home.pal("context")
    assert "Core memory" in shown.out
    await home.pal("agent", "-m", "hello", "--session-key", "agent:main:telegram:group:7")
    assert "Dr " not in str(wire.requests[-1]["messages"])
