"""When the ground gives way (config, workspace, permissions, disk): one clear line, no zero exit, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit import audit, check_valid
from small_disk import SmallDisk, small_disk
from stranger import NOBODY, stranger

from homes import PalHome
from support.behaviours import Says
from support.wire import WireServer

pytestmark = pytest.mark.slow
MAIN = "agent:main:main"


async def says(home: PalHome, words: str) -> None:
    ended = await home.pal("agent", "-m", words)
    assert (ended.code, ended.out, ended.err) == (0, f"heard: {words}\n", ""), ended


async def test_a_broken_config_is_one_line_with_file_and_line(home: PalHome) -> None:
    await says(home, "before")
    config = home.root / "palinurus.json"
    good = config.read_text()
    config.write_text('{\n  "agents": {"defaults": {"model": 7}},\n}\n')
    for command in (["agent", "-m", "lost?"], ["chat"], ["sessions", "list"], ["config", "validate"]):
        ended = await home.pal(*command)
        assert ended.code == 2
        said = ended.one_clear_line()
        assert "palinurus.json:2" in said
        assert str(config) in said
        assert "agents.defaults.model" in said
    config.write_text("{ this is no json")
    assert str(config) in (await home.pal("agent", "-m", "lost?")).one_clear_line()
    config.write_text(good)
    await says(home, "after")
    assert audit(home.database).said(MAIN) == ["before", "after"]


async def test_a_config_that_breaks_while_a_chat_goes_on_leaves_the_last_good_one_in_use(home: PalHome) -> None:
    async with home.talking("chat") as chat:
        assert await chat.answer("before") == "heard: before"
        (home.root / "palinurus.json").write_text("{ this is no json")
        assert await chat.answer("after") == "heard: after"
        ended = await chat.leave()
    assert ended.code == 0
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 1


async def test_a_missing_workspace_is_one_line_and_the_message_is_kept(home: PalHome) -> None:
    await says(home, "before")
    away = home.root / "elsewhere"
    home.workspace.rename(away)
    ended = await home.pal("agent", "-m", "while it is away")
    assert str(home.workspace) in ended.one_clear_line()
    away.rename(home.workspace)
    await says(home, "after")
    story = audit(home.database)
    assert story.pending == []
    assert story.said(MAIN)[0] == "before"
    assert story.said(MAIN)[-1] == "after"


async def test_a_home_that_another_user_may_only_look_into_is_read_and_not_written(home: PalHome) -> None:
    await says(home, "before")
    open_to_readers(home.root)
    with stranger(home) as other:
        for command in (["agent", "-m", "let me in"], ["config", "set", "agents.defaults.timeoutSeconds", "5"]):
            said = (await other.pal(*command)).one_clear_line()
            assert str(home.root) in said
        listed = await other.pal("sessions", "show")
        assert listed.code == 0, listed
        assert "heard: before" in listed.out
        assert listed.err.startswith("pal: only reading: ")
        assert len(listed.err.splitlines()) == 1
    await says(home, "after")
    assert audit(home.database).said(MAIN) == ["before", "after"]


async def test_a_home_that_another_user_may_not_enter_is_one_line(home: PalHome) -> None:
    await says(home, "before")
    home.root.chmod(0o700)
    with stranger(home) as other:
        for command in (["agent", "-m", "let me in"], ["sessions", "list"], ["setup"], ["chat"]):
            assert str(home.root) in (await other.pal(*command)).one_clear_line()


async def test_a_config_that_may_not_be_read_is_one_line(home: PalHome) -> None:
    give_away(home.root)
    config = home.root / "palinurus.json"
    give_to_root(config)
    with stranger(home) as other:
        said = (await other.pal("agent", "-m", "hello")).one_clear_line()
        assert str(config) in said


async def test_a_workspace_file_that_may_not_be_read_costs_a_line_of_the_prompt_and_not_the_turn(
    home: PalHome, wire: WireServer
) -> None:
    give_away(home.root)
    give_to_root(home.workspace / "SOUL.md")
    with stranger(home) as other:
        ended = await other.pal("agent", "-m", "hello")
        assert (ended.code, ended.out) == (0, "heard: hello\n"), ended
    check_valid(wire.requests[-1])
    system = wire.requests[-1]["messages"][0]["content"]
    assert "SOUL.md" in system


async def test_a_workspace_that_may_not_be_read_is_one_line(home: PalHome) -> None:
    give_away(home.root)
    give_to_root(home.workspace, 0o700)
    with stranger(home) as other:
        said = (await other.pal("agent", "-m", "hello")).one_clear_line()
        assert str(home.workspace) in said


@pytest.fixture
def disk(place: Path) -> Iterator[SmallDisk]:
    with small_disk(place / "disk") as disk:
        yield disk


@pytest.fixture
async def small_home(disk: SmallDisk, wire: WireServer) -> PalHome:
    home = PalHome(disk.root / "home")
    home.set_up(wire.base_url)
    return home


async def test_a_full_disk_is_one_line_and_after_some_space_is_freed_the_next_message_works(
    small_home: PalHome, disk: SmallDisk, wire: WireServer
) -> None:
    await says(small_home, "before")
    (small_home.root / "lock").unlink()
    disk.fill()
    for command in (["agent", "-m", "no room"], ["agent", "-m", "still no room"]):
        said = (await small_home.pal(*command)).one_clear_line()
        assert "full" in said or "space" in said, said
    assert "heard: before" in (await small_home.pal("sessions", "show")).out
    disk.free()
    await says(small_home, "after")
    check_valid(wire.requests[-1])
    stored = audit(small_home.database)
    assert stored.pending == []
    assert [text for text in stored.said(MAIN) if "room" not in text] == ["before", "after"]


async def test_a_disk_that_fills_up_in_mid_turn_keeps_what_was_accepted(
    small_home: PalHome, disk: SmallDisk, wire: WireServer
) -> None:
    await says(small_home, "before")
    async with small_home.talking("chat") as chat:
        assert await chat.answer("the chat is open") == "heard: the chat is open"
        disk.fill(leave=256 * 1024)
        wire.script.append(Says("a long story. " * 60_000))
        await chat.say("tell me a long story")
        ended = await chat.leave()
    assert ended.code == 1
    said = ended.err.splitlines()
    assert len(said) == 1, ended.err
    assert "full" in said[0]
    disk.free()
    await says(small_home, "after")
    stored = audit(small_home.database)
    assert stored.pending == []
    assert stored.said(MAIN) == ["before", "the chat is open", "tell me a long story", "after"]
    for body in wire.requests:
        check_valid(body)


async def test_a_frozen_disk_is_read_and_not_written(small_home: PalHome, disk: SmallDisk) -> None:
    await says(small_home, "before")
    disk.freeze()
    try:
        for command in (["agent", "-m", "no"], ["config", "set", "agents.defaults.timeoutSeconds", "5"], ["chat"]):
            ended = await small_home.pal(*command, said="no" if command == ["chat"] else "")
            assert str(small_home.root) in ended.one_clear_line()
        shown = await small_home.pal("sessions", "show")
        assert shown.code == 0, shown
        assert "heard: before" in shown.out
    finally:
        disk.thaw()
    await says(small_home, "after")


async def test_a_new_home_on_a_full_disk_is_one_line(disk: SmallDisk, wire: WireServer) -> None:
    disk.fill()
    home = PalHome(disk.root / "home", {"OPENAI_API_KEY": "test-key", "OPENAI_BASE_URL": wire.base_url})
    (await home.pal("agent", "-m", "hello")).one_clear_line()
    disk.free()
    ended = await home.pal("agent", "-m", "hello")
    assert (ended.code, ended.out) == (0, "heard: hello\n"), ended


def open_to_readers(root: Path) -> None:
    """All may look, nobody but the owner may write."""
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def give_away(root: Path) -> None:
    """To the stranger, with everything in it."""
    for path in (root, *root.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def give_to_root(path: Path, mode: int = 0o600) -> None:
    os.chown(path, 0, 0)
    path.chmod(mode)
