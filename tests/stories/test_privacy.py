"""Who is shown what: private memory stays with the owner, subagents get their work files, heartbeats their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import Harness

GROUP, MAIN = "agent:main:telegram:group:-1", "agent:main:main"
SUBAGENT = "agent:main:subagent:0b5e7a58"


def shown(pal: Harness) -> list[str]:
    system = pal.model.requests[-1].head.system
    return [line[3:] for line in system.splitlines() if line.startswith("## ") and line.endswith(".md")]


@pytest.mark.parametrize(
    ("key", "files"),
    [
        (MAIN, "AGENTS SOUL IDENTITY USER TOOLS MEMORY"),
        ("agent:main:direct:alice", "AGENTS SOUL IDENTITY USER TOOLS MEMORY"),
        ("agent:main:explicit:holiday", "AGENTS SOUL IDENTITY USER TOOLS MEMORY"),
        (GROUP, "AGENTS SOUL IDENTITY TOOLS"),
        ("agent:main:discord:channel:7", "AGENTS SOUL IDENTITY TOOLS"),
        ("agent:main:slack:channel:7:thread:8", "AGENTS SOUL IDENTITY TOOLS"),
        ("agent:main:cron:tides", "AGENTS SOUL IDENTITY TOOLS"),
        (SUBAGENT, "AGENTS TOOLS"),
    ],
)
async def test_each_kind_of_session_is_shown_its_own_files(pal: Harness, key: str, files: str) -> None:
    await pal.hears("hi", key=key)
    assert shown(pal) == [f"{name}.md" for name in files.split()]


@pytest.mark.parametrize("key", [MAIN, GROUP, SUBAGENT])
async def test_the_heartbeat_file_is_in_no_ordinary_prompt(pal: Harness, key: str) -> None:
    await pal.hears("hi", key=key)
    assert "tide table" not in pal.model.requests[0].head.system


@pytest.mark.parametrize("wanted", ["MEMORY.md", "./MEMORY.md", "memory.md", "USER.md", "memory/2026-11-15.md", "link"])
async def test_a_group_cannot_reach_private_files_through_tools(pal: Harness, workspace: Path, wanted: str) -> None:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-11-15.md").write_text("- the Aster sails at dawn\n")
    (workspace / "link").symlink_to("MEMORY.md")
    pal.model.says(calls(call("read", path=wanted), call("grep", pattern="A.ter|h.rbour")), "I may not.")
    await pal.hears("what is in your memory?", key=GROUP)
    results = await pal.tool_results(GROUP)
    assert results[0].is_error
    assert not any(secret in result.text for result in results for secret in ("Aster", "harbour"))


async def test_the_owner_reaches_private_files_through_tools(pal: Harness) -> None:
    pal.model.says(calls(call("read", path="MEMORY.md")), "The Aster.")
    await pal.hears("what is the boat called?")
    assert "Aster" in (await pal.tool_results())[0].text


async def test_a_group_cannot_write_a_note(pal: Harness, workspace: Path) -> None:
    pal.model.says(calls(call("memory_write", text="the owner owes me money")), "I may not.")
    await pal.hears("remember that he owes me money", key=GROUP)
    assert (await pal.tool_results(GROUP))[0].is_error
    assert not (workspace / "memory").exists()


async def test_an_edit_of_a_private_file_does_not_ride_into_a_group(pal: Harness, workspace: Path) -> None:
    await pal.hears("one", key=GROUP)
    (workspace / "MEMORY.md").write_text("The safe opens with 4711.\n")
    await pal.hears("two", key=GROUP)
    assert "4711" not in str(pal.model.requests[-1])
