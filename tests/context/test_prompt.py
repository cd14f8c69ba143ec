"""The system prompt: which files, in which order, cut where, and what it says of those it cannot show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.context.prompt import PromptSettings, clip, shown_file, system_prompt
from palinurus.domain.tool import ToolSpec
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import BootstrapFile, WorkspaceFiles

NOTE = ToolSpec("note", "Write a line.", {"type": "object", "properties": {}})
SETTINGS = PromptSettings(agent_name="Pilot", workspace="/w")


def present(name: str, text: str) -> BootstrapFile:
    return BootstrapFile(name, "present", text, "digest", len(text))


def headings(text: str) -> list[str]:
    return [line[3:] for line in text.splitlines() if line.startswith("## ") and line.endswith(".md")]


def test_files_stand_in_their_order_and_extra_ones_behind_them_by_name(workspace: Path) -> None:
    (workspace / "BOOTSTRAP.md").write_text("Say hello first.")
    for name in ("zebra.md", "apple.md"):
        (workspace / name).write_text(name)
    files = WorkspaceFiles(Boundary(workspace)).bootstrap_files("full", private=True, extra=["zebra.md", "apple.md"])
    text, parts = system_prompt(SETTINGS, [NOTE], files)
    order = ["AGENTS", "SOUL", "IDENTITY", "USER", "TOOLS", "BOOTSTRAP", "MEMORY", "apple", "zebra"]
    assert headings(text) == [f"{name}.md" for name in order]
    assert [part.name for part in parts if part.name.endswith(".md")] == [f"{name}.md" for name in order]


def test_minimal_says_less_than_full_and_none_is_one_line() -> None:
    files = [present("AGENTS.md", "be brief")]
    full, minimal, none = (
        system_prompt(PromptSettings(mode=mode, workspace="/w"), [NOTE], files)[0]
        for mode in ("full", "minimal", "none")
    )
    assert len(none.splitlines()) == 1
    assert set(minimal.splitlines()) < set(full.splitlines()) | set(minimal.splitlines())
    assert len(none) < len(minimal) < len(full)
    assert "NO_REPLY" in full
    assert "NO_REPLY" not in minimal
    assert "be brief" in minimal
    assert "be brief" not in none


def test_without_tools_nothing_is_said_about_them() -> None:
    text, parts = system_prompt(SETTINGS, [], [])
    assert "Tools" not in [part.name for part in parts]
    assert "note" not in text.lower().split()


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("tools", "settings", "said", "unsaid"),
    [
        ("memory_search memory_write", {}, ["`memory_search` and cite `path#L3`", "`memory_write` it"], []),
        ("memory_search", {"citations": "on"}, ["cite"], ["memory_write"]),
        ("memory_search", {"citations": "off"}, ["`memory_search`; if nothing is there, say so"], ["cite"]),
        ("memory_write", {}, ["`memory_write` it"], ["memory_search"]),
        ("note", {}, ["`note` it"], ["memory_search", "memory_write"]),
        ("read", {}, [], ["## Memory"]),
        ("memory_search memory_write", {"private": False}, [], ["## Memory"]),
        ("memory_search memory_write", {"mode": "minimal"}, [], ["## Memory"]),
    ],
)
def test_memory_is_spoken_of_as_far_as_its_tools_are_there(
    tools: str, settings: dict[str, Any], said: list[str], unsaid: list[str]
) -> None:
    text, _ = system_prompt(PromptSettings(**settings), [spec(name) for name in tools.split()], [])
    assert all(words in text for words in said)
    assert not any(words in text for words in unsaid)


def test_the_recall_instruction_is_short() -> None:
    with_memory, _ = system_prompt(SETTINGS, [spec("memory_search"), spec("memory_write")], [])
    without, _ = system_prompt(SETTINGS, [spec("read")], [])
    assert len(with_memory) - len(without) <= 300


def test_files_are_left_out_when_nothing_is_injected() -> None:
    text, parts = system_prompt(PromptSettings(inject=False), [NOTE], [present("AGENTS.md", "be brief")])
    assert "be brief" not in text
    assert not any(part.name == "AGENTS.md" for part in parts)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        (BootstrapFile("SOUL.md", "missing"), "[missing: SOUL.md is not in the workspace]"),
        (BootstrapFile("SOUL.md", "unreadable", "SOUL.md is a folder"), "[unreadable: SOUL.md is a folder]"),
    ],
)
def test_a_file_that_cannot_be_shown_leaves_one_line(file: BootstrapFile, line: str) -> None:
    text, _ = system_prompt(SETTINGS, [], [file])
    assert text.endswith(f"## SOUL.md\n\n{line}")


def test_blank_files_are_skipped_memory_may_lack_and_front_matter_is_stripped(workspace: Path) -> None:
    (workspace / "MEMORY.md").unlink()
    (workspace / "SOUL.md").write_text(" \n\n")
    (workspace / "TOOLS.md").unlink()
    (workspace / "AGENTS.md").write_text("---\nsecret: x\n---\nBe brief.\n")
    files = WorkspaceFiles(Boundary(workspace)).bootstrap_files("full", private=True)
    text, _ = system_prompt(SETTINGS, [], files)
    assert headings(text) == ["AGENTS.md", "IDENTITY.md", "USER.md", "TOOLS.md"]
    assert "[missing: TOOLS.md" in text
    assert "secret: x" not in text


@pytest.mark.parametrize("size", [20_000, 20_001, 50_000])
def test_a_long_file_keeps_head_and_tail_around_a_marker_that_says_what_is_missing(size: int) -> None:
    text = "A" * 500 + "x" * (size - 1000) + "Z" * 500
    shown = shown_file(present("AGENTS.md", text), 20_000)
    assert len(shown.text) <= 20_000
    assert shown.truncated is (size > 20_000)
    if shown.truncated:
        assert shown.text.startswith("A" * 500)
        assert shown.text.endswith("Z" * 500)
        assert f"{size} characters in all, read AGENTS.md" in shown.text


@given(st.integers(0, 4000), st.integers(64, 3000))
def test_a_clipped_text_is_never_longer_than_its_limit(size: int, limit: int) -> None:
    assert len(clip("AGENTS.md", "x" * size, limit).text) <= limit


@given(st.lists(st.integers(1, 900), max_size=9), st.integers(0, 3000), st.integers(64, 1000))
def test_all_files_together_stay_within_the_total(sizes: list[int], total: int, each: int) -> None:
    files = [present(f"F{index}.md", "x" * size) for index, size in enumerate(sizes)]
    _, parts = system_prompt(PromptSettings(file_limit=each, total_limit=total), [], files)
    shown = [part for part in parts if part.name.endswith(".md")]
    assert sum(part.injected for part in shown) <= total
    assert all(part.injected <= each for part in shown)


def test_the_report_tells_what_was_on_disk_from_what_was_sent() -> None:
    _, parts = system_prompt(PromptSettings(file_limit=1000), [], [present("AGENTS.md", "x" * 5000)])
    part = next(part for part in parts if part.name == "AGENTS.md")
    assert (part.raw, part.truncated) == (5000, True)
    assert part.injected <= 1000


def test_files_that_find_no_room_are_named() -> None:
    files = [present(name, "x" * 900) for name in ("AGENTS.md", "SOUL.md", "TOOLS.md")]
    text, parts = system_prompt(PromptSettings(total_limit=930), [], files)
    assert "Left out, for want of room: SOUL.md, TOOLS.md." in text
    assert [(part.injected, part.truncated) for part in parts if part.name == "TOOLS.md"] == [(0, True)]
