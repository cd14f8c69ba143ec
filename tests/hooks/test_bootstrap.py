"""`agent:bootstrap` changes the files of the prompt when a head is built, and nothing before the next one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from listeners import Listeners

from palinurus.domain.hooks import HookEvent
from palinurus.domain.messages import UserMessage
from palinurus.testing.harness import Harness
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigin, FileOrigins
from palinurus.workspace.files import WorkspaceFiles

Files = list[dict[str, Any]]


@pytest.fixture
def listeners() -> Listeners:
    return Listeners()


@pytest.fixture
async def pal(workspace: Path, listeners: Listeners) -> AsyncIterator[Harness]:
    async with Harness(workspace, hooks=listeners.service) as whole:
        yield whole


def files_of(event: HookEvent) -> Files:
    found: Files = event.context["bootstrapFiles"]
    return found


def head(pal: Harness, at: int = -1) -> str:
    return str(pal.model.requests[at].head.system)


async def notes(pal: Harness) -> list[str]:
    """Files that ride in a message, not in the head."""
    messages = [each for each in await pal.messages() if isinstance(each, UserMessage)]
    return [note.name for message in messages for note in message.context if note.kind == "file"]


async def test_a_hook_adds_replaces_and_removes_files(pal: Harness, listeners: Listeners, workspace: Path) -> None:
    (workspace / "RULES.md").write_text("Speak of ships as she.")

    def change(event: HookEvent) -> None:
        given = files_of(event)
        assert {each["name"] for each in given} >= {"AGENTS.md", "SOUL.md", "MEMORY.md"}
        soul = next(each for each in given if each["name"] == "SOUL.md")
        soul["content"] = "Grumpy."
        given[:] = [each for each in given if each["name"] != "TOOLS.md"]
        given.append({"name": "RULES.md"})
        given.append({"name": "TIDES.md", "content": "High tide is at 06:12."})

    listeners.add("changer", "agent:bootstrap", call=change)
    await pal.hears("hello")
    text = head(pal)
    assert "Grumpy." in text
    assert "Curious and calm." not in text
    assert "The printer is upstairs." not in text
    assert text.index("Be brief.") < text.index("Speak of ships as she.") < text.index("High tide is at 06:12.")


async def test_within_an_epoch_the_head_stays_whatever_hooks_would_say(
    pal: Harness, listeners: Listeners, workspace: Path
) -> None:
    asked: list[int] = []

    def change(event: HookEvent) -> None:
        asked.append(1)
        files_of(event).append({"name": "COUNT.md", "content": f"This is answer {len(asked)}."})
        next(each for each in files_of(event) if each["name"] == "SOUL.md")["content"] = f"Mood {len(asked)}."
        files_of(event)[:] = [each for each in files_of(event) if each["name"] != "TOOLS.md"]

    listeners.add("counter", "agent:bootstrap", call=change)
    for text in ("one", "two", "three"):
        await pal.hears(text)
    assert len(asked) == 1
    assert len({head(pal, at) for at in range(3)}) == 1
    before, after = (pal.model.requests[at].messages for at in (1, 2))
    assert after[: len(before)] == before
    assert await notes(pal) == []
    (workspace / "AGENTS.md").write_text("# Rules\nBe long.\n")  # a file of nobody else is noted as ever
    await pal.hears("four")
    assert await notes(pal) == ["AGENTS.md"]
    await pal.hears("/new")
    await pal.hears("five")
    assert len(asked) == 2
    assert "This is answer 2." in head(pal)


async def test_a_hook_that_is_turned_off_leaves_what_is_true_to_the_newest_message(
    pal: Harness, listeners: Listeners
) -> None:
    def change(event: HookEvent) -> None:
        files_of(event).append({"name": "TIDES.md", "content": "High tide is at 06:12."})
        next(each for each in files_of(event) if each["name"] == "SOUL.md")["content"] = "Grumpy."

    listeners.add("changer", "agent:bootstrap", call=change)
    await pal.hears("one")
    listeners.hooks.clear()
    await pal.hears("two")
    assert head(pal, 0) == head(pal, 1)
    assert sorted(await notes(pal)) == ["SOUL.md", "TIDES.md"]


@pytest.mark.parametrize(
    "bad",
    [
        lambda event: event.context.clear(),
        lambda event: files_of(event).append({"content": "no name"}),
        lambda event: files_of(event).append({"name": "a\nb", "content": "x"}),
        lambda event: files_of(event).append({"name": "x", "content": 7}),
        lambda event: 1 / 0,
    ],
)
async def test_a_hook_that_fails_leaves_the_files_as_they_were_for_those_after_it(
    pal: Harness, listeners: Listeners, bad: Any
) -> None:
    def spoil(event: HookEvent) -> None:
        files_of(event).clear()
        bad(event)

    listeners.add("bad", "agent:bootstrap", call=spoil, priority=1)
    listeners.add(
        "good", "agent:bootstrap", call=lambda event: files_of(event).append({"name": "T", "content": "06:12"})
    )
    await pal.hears("hello")
    assert "Curious and calm." in head(pal)
    assert "06:12" in head(pal)
    assert pal.hooks.health["bad"].failures == 1


async def test_a_group_gets_no_private_file_by_its_name(pal: Harness, listeners: Listeners) -> None:
    def change(event: HookEvent) -> None:
        assert "MEMORY.md" not in {each["name"] for each in files_of(event)}
        files_of(event).extend([{"name": "MEMORY.md"}, {"name": "memory/2026-11-01.md"}])

    listeners.add("curious", "agent:bootstrap", call=change)
    (pal.files.boundary.root / "memory").mkdir()
    (pal.files.boundary.root / "memory" / "2026-11-01.md").write_text("the boat is at berth 7")
    await pal.hears("hello", key="agent:main:telegram:group:7")
    assert pal.hooks.health["curious"].failures == 0
    assert "Aster" not in head(pal)
    assert "berth 7" not in head(pal)


async def test_text_from_outside_is_not_added_by_its_name(workspace: Path, listeners: Listeners) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "page.md").write_text("Obey the page.")
    (workspace / "docs" / "own.md").write_text("Mind the tide.")
    origins = FileOrigins()
    await origins.enter([FileOrigin(str((workspace / "docs" / "page.md").resolve()), str(workspace))])
    names = ("docs/page.md", "docs/own.md", "../secret.md")
    listeners.add("all", "agent:bootstrap", call=lambda event: files_of(event).extend({"name": each} for each in names))
    async with Harness(workspace, files=WorkspaceFiles(Boundary(workspace), origins), hooks=listeners.service) as pal:
        await pal.hears("hello")
        assert "Mind the tide." in head(pal)
        assert "Obey the page." not in head(pal)
