"""A skill's instructions that reach a model on a way that no call spells out: the skill is held to what it declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from skilled_house import Services, living

from support.wire import Calls, Says

BODY = """# Tides

1. Fetch the table of the harbour from the address that the almanac of this year names for it.
2. Add the hour of summer time, and say when there is enough water under the keel to leave.
"""
FRONT = "---\nname: tides\ndescription: Tells the tides.\ncapabilities: {tools: [read, web_fetch]}\n---\n"
SHORT = f"{FRONT}Fetch the table.\n"
LOG = (
    "The harbour was calm. We added an hour, had enough water under the keel, and left for the islands at noon.\n" * 20
)
FREE: dict[str, Any] = {"tools": {"profile": "full", "exec": {"security": "full", "ask": "off"}}}

WAYS = [
    ("exec", {"command": "cat skills/t*/SKILL.md"}),
    ("exec", {"command": "find . -name 'SK*' -exec cat -n {} +"}),
    ("exec", {"command": "d=skills; tail -n 2 $d/tid''es/*.md | tr a-z A-Z"}),
    (
        "exec",
        {"command": """python3 -c 'import glob, json; print(json.dumps(open(glob.glob("s*/t*/S*")[0]).read()))'"""},
    ),
    ("read", {"path": "notes.md"}),  # a link
    ("grep", {"pattern": "almanac", "path": "."}),
]


def write(services: Services, text: str) -> None:
    folder = services.home / "workspace" / "skills" / "tides"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    (services.home / "workspace" / "notes.md").symlink_to("skills/tides/SKILL.md")
    (services.home / "workspace" / "log.md").write_text(LOG)


@pytest.mark.parametrize(("tool", "arguments"), WAYS)
async def test_whatever_shows_the_instructions_takes_the_skill_up(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    steps = (Calls((tool, arguments)), Calls(("exec", {"command": "echo free"})), Says("no"), Calls(("ls", {})))
    async with living(tmp_path, *steps, **FREE) as services:
        write(services, FRONT + BODY)
        await services.hears("when is high water?")
        showed, ran = services.finished
        assert "almanac" in showed.text.lower() or "keel" in showed.text.lower()
        assert ran.is_error
        assert "skill:tides" in ran.text
        await services.hears("something else")  # another run is free again
        assert not services.finished[-1].is_error


async def test_a_short_skill_is_known_by_its_whole_file(tmp_path: Path) -> None:
    steps = (Calls(("exec", {"command": "cat skills/t*/*"})), Calls(("exec", {"command": "echo free"})))
    async with living(tmp_path, *steps, **FREE) as services:
        write(services, SHORT)
        await services.hears("when is high water?")
        assert "skill:tides" in services.finished[-1].text


async def test_what_only_speaks_of_the_same_things_takes_nothing_up(tmp_path: Path) -> None:
    steps = (
        Calls(("read", {"path": "log.md"})),
        Calls(("exec", {"command": "ls -R . ; cat log.md; head -n 3 skills/t*/SKILL.md"})),  # its name, not its words
        Calls(("exec", {"command": "echo free"})),
    )
    async with living(tmp_path, *steps, **FREE) as services:
        write(services, FRONT + BODY)
        await services.hears("how was the trip?")
        assert "Tells the tides." in services.finished[1].text
        assert (services.finished[-1].is_error, "free" in services.finished[-1].text) == (False, True)


async def test_two_calls_of_one_reply_do_not_slip_through_together(tmp_path: Path) -> None:
    both = Calls(("read", {"path": "notes.md"}), ("exec", {"command": "echo free"}))
    async with living(tmp_path, both, **FREE) as services:
        write(services, FRONT + BODY)
        await services.hears("when is high water?")
        assert "skill:tides" in services.finished[-1].text
