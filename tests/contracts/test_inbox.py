"""What every inbox keeps: the first under a key wins, the first result stays, and nothing accepted is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from palinurus.dispatch.inbox import Inbox, RunRecord
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.messages import Image, Origin, Usage
from palinurus.storage.database import Database
from palinurus.storage.sqlite import SqliteInbox
from palinurus.testing.stores import MemoryInbox

MAIN = "agent:main:main"


@pytest.fixture(params=["memory", "sqlite"])
async def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Inbox]:
    if request.param == "memory":
        yield MemoryInbox()
        return
    database = Database(tmp_path / "home.sqlite", "home")
    yield SqliteInbox(database)
    await database.close()


def record(number: int, key: str = "") -> RunRecord:
    inbound = Inbound(
        f"message {number}", key or f"k{number}", images=(Image("aGk=", "image/png"),), origin=Origin.OUTSIDE
    )
    return RunRecord(f"r{number}", inbound.idempotency_key, MAIN, inbound, 1000 + number)


def result(number: int, text: str = "done") -> RunResult:
    return RunResult(f"r{number}", MAIN, "s", "ok", text, "p/m", Usage(1, 2), duration_ms=5)


async def test_what_is_accepted_comes_back_as_it_was(inbox: Inbox) -> None:
    assert await inbox.accept(record(1)) == record(1)
    assert await inbox.find("r1") == record(1)
    assert await inbox.pending() == [record(1)]


async def test_the_first_under_an_idempotency_key_wins(inbox: Inbox) -> None:
    await inbox.accept(record(1, "same"))
    assert await inbox.accept(record(2, "same")) == record(1, "same")
    assert await inbox.find("r2") is None
    assert len(await inbox.pending()) == 1


async def test_at_the_same_time_there_is_one_first(inbox: Inbox) -> None:
    accepted = await asyncio.gather(*(inbox.accept(record(number, "same")) for number in range(20)))
    assert len({found.run_id for found in accepted}) == 1
    assert len(await inbox.pending()) == 1


async def test_what_is_finished_no_longer_waits_and_keeps_its_result(inbox: Inbox) -> None:
    for number in (3, 1, 2):
        await inbox.accept(record(number))
    await inbox.finish(result(1))
    assert [waiting.run_id for waiting in await inbox.pending()] == ["r3", "r2"]
    found = await inbox.find("r1")
    assert found is not None
    assert found.result == result(1)
    again = await inbox.accept(record(9, "k1"))
    assert (again.run_id, again.result) == ("r1", result(1))


async def test_the_first_result_stays(inbox: Inbox) -> None:
    await inbox.accept(record(1))
    await inbox.finish(result(1, "first"))
    await inbox.finish(result(1, "second"))
    found = await inbox.find("r1")
    assert found is not None
    assert found.result == result(1, "first")


async def test_attempts_are_counted(inbox: Inbox) -> None:
    await inbox.accept(record(1))
    await inbox.begin("r1")
    await inbox.begin("r1")
    assert await inbox.find("r1") == msgspec.structs.replace(record(1), attempts=2)


async def test_a_run_that_does_not_exist_is_none(inbox: Inbox) -> None:
    assert await inbox.find("ghost") is None
    assert await inbox.pending() == []
