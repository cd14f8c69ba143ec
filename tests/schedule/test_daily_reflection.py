"""Reflection by itself, when its time has come."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

from clock_home import ClockHome, open_clock_home

from palinurus.domain.clock import local_time
from palinurus.extensions.knowledge.daily import REFLECT, keep_reflections
from palinurus.testing.fakes import FakeClock
from support.wire import Says

ON: dict[str, Any] = {"search": {"provider": "none"}, "reflect": {"enabled": True, "schedule": "0 3 * * *"}}
OFF: dict[str, Any] = {"search": {"provider": "none"}}


def note(folder: Path, day: str, bullet: str) -> None:
    place = folder / "home" / "workspace" / "memory"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{day}.md").write_text(f"## Retain\n- {bullet}\n")


async def states(home: ClockHome) -> list[str]:
    return sorted(job.state for job in await home.services.jobs.of_lane(REFLECT, "main"))


async def test_each_night_the_pages_are_written_and_the_next_night_is_planned(tmp_path: Path) -> None:
    note(tmp_path, "2026-11-01", "W @Anna: Lives in Graz.")
    page = tmp_path / "home" / "workspace" / "bank" / "world.md"
    async with open_clock_home(tmp_path, memory=ON) as home:
        await keep_reflections(home.services)
        await keep_reflections(home.services)  # the config was read again
        assert await states(home) == ["waiting"]
        await home.rests()
        assert not page.exists()
        await home.passes(days=1)
        assert "Lives in Graz." in page.read_text()
        note(tmp_path, "2026-11-02", "W @Anna: Has a boat.")
        await home.passes(days=1)
        assert "Has a boat." in page.read_text()
        assert await states(home) == ["done", "done", "waiting"]
        assert home.server.requests == []


async def test_a_model_reads_plain_notes_once_and_what_it_cost_is_booked(tmp_path: Path) -> None:
    place = tmp_path / "home" / "workspace" / "memory"
    place.mkdir(parents=True)
    day = local_time(FakeClock()).date().isoformat()
    (place / f"{day}.md").write_text("Lunch with Anna, who has moved to Graz.\n")
    fact = {"line": 1, "quote": "has moved to Graz", "kind": "W", "about": ["Anna"], "text": "Anna has moved to Graz."}
    async with open_clock_home(tmp_path, lambda _: Says(json.dumps({"facts": [fact]})), memory=ON) as home:
        await keep_reflections(home.services)
        await home.passes(days=2)
        await home.passes(days=1)
        assert (place / f"{day}.md").read_text().endswith("## Retain\n- W @Anna: Anna has moved to Graz.\n")
        assert "moved to Graz" in (tmp_path / "home" / "workspace" / "bank" / "entities" / "Anna.md").read_text()
        assert len(home.server.requests) == 1
        [total] = await home.services.usage.totals("model", zone=UTC)
        assert total.calls == 1


async def test_days_without_a_process_are_made_up_once_and_switched_off_is_off(tmp_path: Path) -> None:
    note(tmp_path, "2026-11-01", "W @Anna: Lives in Graz.")
    clock = FakeClock()
    async with open_clock_home(tmp_path, clock=clock, memory=ON) as home:
        await keep_reflections(home.services)
    clock.advance(days=30)
    async with open_clock_home(tmp_path, clock=clock, memory=ON) as home:
        await home.rests()
        await keep_reflections(home.services)
        assert await states(home) == ["done", "waiting"]
    async with open_clock_home(tmp_path, clock=clock, memory=OFF) as home:
        await keep_reflections(home.services)
        assert await states(home) == ["done", "dropped"]
