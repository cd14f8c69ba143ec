"""What every inbox keeps: the first under a key wins, the first result stays, and nothing accepted is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from palinurus.dispatch.inbox import Inbox, RunRecord
from palinurus.dispatch.outbox import Outbox
from palinurus.dispatch.parcel import MOST_WAITING, Parcel
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.messages import Image, Origin, Usage
from palinurus.storage.database import Database
from palinurus.storage.outbox import SqliteOutbox
from palinurus.storage.sqlite import SqliteInbox
from palinurus.testing.outbox import MemoryOutbox
from palinurus.testing.stores import MemoryInbox

MAIN = "agent:main:main"


@pytest.fixture(params=["memory", "sqlite"])
async def both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Inbox, Outbox]]:
    """An inbox and the outbox that its results reach."""
    if request.param == "memory":
        outbox = MemoryOutbox()
        yield MemoryInbox(outbox), outbox
        return
    database = Database(tmp_path / "home.sqlite", "home")
    yield SqliteInbox(database), SqliteOutbox(database)
    await database.close()


@pytest.fixture
def inbox(both: tuple[Inbox, Outbox]) -> Inbox:
    return both[0]


def record(number: int, key: str = "") -> RunRecord:
    inbound = Inbound(
        f"message {number}",
        key or f"k{number}",
        images=(Image("aGk=", "image/png"),),
        origin=Origin.OUTSIDE,
        reply_to=Delivery("telegram", "42", thread="9"),
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


def parcel(number: int) -> Parcel:
    return Parcel(f"p{number}", f"r{number}", "telegram", "42", "done", run_id=f"r{number}")


async def test_a_reply_enters_the_outbox_with_the_first_result(both: tuple[Inbox, Outbox]) -> None:
    inbox, outbox = both
    await inbox.accept(record(1))
    assert await inbox.finish(result(1), parcel(1)) == parcel(1)
    assert await outbox.recent() == [parcel(1)]
    other = msgspec.structs.replace(parcel(2), idempotency_key="other")
    assert await inbox.finish(result(1, "second"), other) is None
    assert await outbox.recent() == [parcel(1)]


async def test_a_result_is_kept_also_when_its_reply_finds_no_room(both: tuple[Inbox, Outbox]) -> None:
    inbox, outbox = both
    for number in range(100, 100 + MOST_WAITING):
        await outbox.add(parcel(number))
    await inbox.accept(record(1))
    kept = await inbox.finish(result(1), parcel(1))
    assert kept is not None
    assert (kept.state, kept.trouble) == ("failed", f"{MOST_WAITING} parcels already wait for telegram:42")
    assert await outbox.recent(states=["failed"]) == [kept]
    assert await inbox.pending() == []
