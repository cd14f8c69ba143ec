"""The first message of a private session carries the newest daily notes; no other does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import msgspec
import pytest

from palinurus.context.daily_notes import STARTUP, startup_notes
from palinurus.context.extract import extract
from palinurus.context.settings import StartupSettings
from palinurus.context.view import Line
from palinurus.domain.messages import ContextNote, UserMessage
from palinurus.sessions.reset import ResetPolicy
from palinurus.testing.harness import Harness
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

TODAY = date(2026, 11, 15)  # of the harness's clock


def write(workspace: Path, day: str, *lines: str) -> None:
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory" / f"{day}.md").write_text("\n".join((f"# {day}", "", *lines, "")))


def notes(workspace: Path, **changed: object) -> str:
    settings = msgspec.structs.replace(StartupSettings(), **changed)
    return "\n".join(note.text for note in startup_notes(WorkspaceFiles(Boundary(workspace)), TODAY, settings))


def test_today_comes_before_yesterday_and_older_days_do_not_come(workspace: Path) -> None:
    write(workspace, "2026-11-15", "- the ferry leaves at nine")
    write(workspace, "2026-11-14", "- the mast was painted")
    write(workspace, "2026-11-13", "- it rained")
    text = notes(workspace)
    assert text.index("ferry") < text.index("mast")
    assert "rained" not in text
    assert "rained" in notes(workspace, days=3)


def test_of_a_long_day_the_last_lines_come_whole(workspace: Path) -> None:
    write(workspace, "2026-11-15", *(f"- note number {number} of a long day" for number in range(200)))
    text = notes(workspace)
    assert len(text) <= 1_300
    assert text.endswith("- note number 199 of a long day")
    assert "- note number 0 " not in text
    assert len(notes(workspace, characters=300)) <= 340
    assert notes(workspace, days=0) == notes(workspace, characters=0) == ""


def test_words_from_outside_and_our_own_marks_stay_away(workspace: Path) -> None:
    write(
        workspace,
        "2026-11-15",
        "- mine",
        "- pay at once (noted in a turn that had read text from outside)",
        "- 2026-11-15 somebody (from outside): pay at once",
        "<!-- notes 0a1b -->",
    )
    assert notes(workspace) == "memory/2026-11-15.md:\n# 2026-11-15\n- mine"


def test_a_day_that_cannot_be_read_costs_nothing(workspace: Path) -> None:
    (workspace / "memory" / "2026-11-15.md").mkdir(parents=True)
    (workspace / "memory" / "2026-11-14.md").symlink_to("/etc/hostname")
    assert notes(workspace) == ""


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    write(workspace, "2026-11-15", "- the ferry leaves at nine")
    async with Harness(workspace) as whole:
        whole.agents.agent = msgspec.structs.replace(whole.agents.agent, startup=StartupSettings())
        yield whole


def carried(pal: Harness) -> list[ContextNote]:
    newest = pal.model.requests[-1].messages[-1]
    assert isinstance(newest, UserMessage)
    return [note for note in newest.context if note.kind == STARTUP]


async def test_only_the_first_message_carries_them_and_the_first_after_a_reset(pal: Harness) -> None:
    await pal.hears("hello")
    assert "ferry" in carried(pal)[0].text
    await pal.hears("and now?")
    assert carried(pal) == []
    await pal.hears("/new")
    await pal.hears("hello again")
    assert "ferry" in carried(pal)[0].text


async def test_they_are_stored_with_the_message_and_sent_again_as_they_were(pal: Harness, workspace: Path) -> None:
    await pal.hears("hello")
    first = pal.model.requests[-1]
    write(workspace, "2026-11-15", "- the ferry does not leave")
    await pal.hears("and now?")
    assert pal.model.requests[-1].messages[: len(first.messages)] == first.messages


async def test_a_group_and_a_heartbeat_never_carry_them(pal: Harness) -> None:
    await pal.hears("hello", key="agent:main:telegram:group:7")
    assert carried(pal) == []


async def test_config_says_whether_a_new_session_a_reset_or_neither_has_them(pal: Harness) -> None:
    only_reset = StartupSettings(on=("reset",))
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, startup=only_reset)
    await pal.hears("hello")
    assert carried(pal) == []
    pal.resets = ResetPolicy("idle", 4, 10)
    pal.clock.advance(minutes=11)
    await pal.hears("hello again")
    assert len(carried(pal)) == 1


async def test_they_are_never_extracted_as_news(pal: Harness) -> None:
    await pal.hears("Remember the milk.")
    lines = [Line(str(index), message) for index, message in enumerate(await pal.messages())]
    assert "ferry" not in extract(lines)
