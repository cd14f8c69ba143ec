"""A home that somebody else made names folders and variables of this machine: they do not come by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile_model import HostileHome

from support.wire import WireServer

pytestmark = pytest.mark.slow


async def migrated(folder: Path, config: dict[str, Any]) -> tuple[HostileHome, dict[str, Any]]:
    theirs = folder / "theirs"
    (theirs / "agents" / "main" / "sessions").mkdir(parents=True)
    (theirs / "openclaw.json").write_text(json.dumps(config))
    async with WireServer() as server:
        home = HostileHome(folder, server)
        done = await home.pal("migrate", "openclaw", str(theirs), "--apply", "--json")
    return home, json.loads(done.stdout)


@pytest.mark.parametrize("written", ["{private}", "../private", "agents/../../private"])
async def test_a_folder_of_this_machine_is_not_copied_because_they_call_it_a_workspace(
    tmp_path: Path, written: str
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "id_rsa").write_text("mine")
    place = written.format(private=private)
    home, report = await migrated(
        tmp_path, {"agents": {"defaults": {"workspace": place}, "list": [{"id": "main", "workspace": place}]}}
    )
    assert not list(home.root.rglob("id_rsa"))
    assert any("outside this home" in each["reason"] for each in report["skipped"])


async def test_a_workspace_elsewhere_that_an_agent_lives_in_still_comes(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "SOUL.md").write_text("calm")
    (place / "plan.md").write_text("sail")
    home, _ = await migrated(tmp_path, {"agents": {"defaults": {"workspace": str(place)}}})
    assert (home.workspace / "plan.md").read_text() == "sail"


async def test_their_skill_is_not_given_a_variable_of_this_machine(tmp_path: Path) -> None:
    """A skill's key becomes a variable of its commands: named by `${…}` it would be a key of this machine."""
    home, report = await migrated(tmp_path, {"skills": {"entries": {"theirs": {"apiKey": "${OPENAI_API_KEY}"}}}})
    outcomes = {each["path"]: each["outcome"] for each in report["config"]}
    assert outcomes["skills.entries.theirs.apiKey"] == "held"
    assert "OPENAI_API_KEY" not in (home.root / "palinurus.json").read_text()
