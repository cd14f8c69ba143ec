"""One process writes a home, whatever happens to its lock file; and a home whose database is gone is no new home."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from audit import audit, check_answered_once

from homes import PATIENCE, PalHome, Talk, stopped

pytestmark = pytest.mark.slow

SESSION = "agent:main:main"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.05)


async def chatting(home: PalHome) -> Talk:
    chat = await home.start(*home.command, "chat")
    assert await chat.answer("first words") == "heard: first words"
    return chat


async def test_a_lock_that_somebody_removes_is_made_again_and_the_holder_goes_on(home: PalHome) -> None:
    chat = await chatting(home)
    try:
        lock = home.root / "lock"
        lock.unlink()
        await until(lock.exists)
        assert home.holder() == chat.pid
        asked = await home.pal("agent", "-m", "from another process")
        assert (asked.code, asked.out) == (0, "heard: from another process\n")
        assert await chat.answer("still here") == "heard: still here"
    finally:
        await chat.kill()
    check_answered_once(audit(home.database).sessions[SESSION])


async def test_a_holder_that_lost_the_home_writes_nothing_more_and_asks_the_new_one(home: PalHome) -> None:
    """The lock is removed while the holder cannot look, and another process takes the home."""
    old = await chatting(home)
    with stopped(old):
        (home.root / "lock").unlink()
        new = await home.start(*home.command, "chat")
        assert await new.answer("second words") == "heard: second words"
    try:
        assert await old.answer("third words") == "heard: third words"  # through the new holder
        assert home.holder() == new.pid
        assert await new.answer("fourth words") == "heard: fourth words"
    finally:
        await old.kill()
        await new.kill()
    story = audit(home.database)
    assert story.said(SESSION) == ["first words", "second words", "third words", "fourth words"]
    check_answered_once(story.sessions[SESSION])


async def test_a_gateway_that_lost_the_home_ends_and_says_why(home: PalHome) -> None:
    gateway = await home.start(*home.command, "gateway", "run", "--port", "0")
    await gateway.until(lambda line: "pal gateway at" in line)
    with stopped(gateway):
        (home.root / "lock").unlink()
        new = await home.start(*home.command, "chat")
        assert await new.answer("words for the new one") == "heard: words for the new one"
    try:
        ended = await gateway.ended()
        assert ended.code == 1
        assert "another process holds" in ended.err
        assert await new.answer("the socket is still its own") == "heard: the socket is still its own"
        assert (await home.pal("sessions", "list", "--json")).code == 0
        assert home.holder() == new.pid
    finally:
        await new.kill()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lose(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [empty, lose])
async def test_a_used_home_without_its_database_is_refused_and_nothing_new_is_made(
    home: PalHome, harm: Callable[[Path], None]
) -> None:
    assert (await home.pal("agent", "-m", "words that must not vanish")).code == 0
    harm(home.database)
    for command in (("agent", "-m", "hello"), ("sessions", "list"), ("chat",)):
        said = (await home.pal(*command)).one_clear_line()
        assert str(home.database) in said
        assert "backup" in said
    assert not home.database.exists() or not home.database.stat().st_size
    examined = await home.pal("doctor", "--json")
    assert examined.code == 1
    database = next(check for check in examined.json["checks"] if check["name"] == "database")
    assert database["state"] == "bad", database


async def test_a_start_that_is_refused_leaves_the_log_of_an_emptied_database_where_it_is(home: PalHome) -> None:
    """The last words may stand there alone: whoever puts the file back has them all."""
    chat = await chatting(home)
    await chat.kill()
    log = home.database.with_name("home.sqlite-wal")
    file, last_words = home.database.read_bytes(), log.read_bytes()
    assert last_words
    empty(home.database)
    for command in (("agent", "-m", "hello"), ("doctor",)):
        assert (await home.pal(*command)).code == 1
        assert log.read_bytes() == last_words
    home.database.write_bytes(file)
    shown = await home.pal("sessions", "show")
    assert "first words" in shown.out


async def test_a_home_that_is_killed_keeps_its_form_without_its_log(home: PalHome) -> None:
    """The file alone, without its -wal, is a database of this release and no empty one."""
    chat = await chatting(home)
    await chat.kill()
    home.database.with_name("home.sqlite-wal").unlink()
    home.database.with_name("home.sqlite-shm").unlink(missing_ok=True)
    listed = await home.pal("sessions", "list", "--json")
    assert listed.code == 0, listed
    json.loads(listed.out)
