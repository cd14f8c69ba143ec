"""What every outbox keeps: one row for a key, in order for each recipient, changed by whoever saw it last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.dispatch.outbox import Outbox
from palinurus.dispatch.parcel import MOST_WAITING, Parcel, Recipient
from palinurus.domain.errors import QueueFull
from palinurus.storage.database import Database
from palinurus.storage.outbox import SqliteOutbox
from palinurus.testing.outbox import MemoryOutbox

ANN, BOB = Recipient("telegram", "ann"), Recipient("telegram", "bob")


@pytest.fixture(params=["memory", "sqlite"])
async def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Outbox]:
    if request.param == "memory":
        yield MemoryOutbox()
        return
    database = Database(tmp_path / "home.sqlite", "home")
    yield SqliteOutbox(database)
    await database.close()


def parcel(name: str, to: Recipient = ANN, **changes: Any) -> Parcel:
    plain = Parcel(name, f"key-{name}", to.channel, to.to, f"words of {name}", queued_at=1000, due_at=1000)
    return msgspec.structs.replace(plain, **changes)


async def changed(outbox: Outbox, before: Parcel, **changes: Any) -> Parcel:
    after = await outbox.change(msgspec.structs.replace(before, **changes))
    assert after is not None
    return after


async def test_what_is_added_comes_back_as_it_was(outbox: Outbox) -> None:
    whole = parcel("a", account="second", thread="9", session_key="agent:main:main", run_id="r1")
    assert await outbox.add(whole) == whole
    assert await outbox.next(ANN) == whole
    assert await outbox.find("a") == [whole]


async def test_the_first_under_an_idempotency_key_stays(outbox: Outbox) -> None:
    first = await outbox.add(parcel("a"))
    sent = await changed(outbox, first, state="sent")
    again = await outbox.add(parcel("b", idempotency_key="key-a", text="other words"))
    assert again == sent
    assert await outbox.recent() == [sent]


async def test_of_many_at_once_under_one_key_one_is_kept(outbox: Outbox) -> None:
    posts = [outbox.add(parcel(f"p{number}", idempotency_key="same")) for number in range(20)]
    assert len({kept.id for kept in await asyncio.gather(*posts)}) == 1
    assert len(await outbox.recent()) == 1


async def test_a_change_counts_the_revision_and_the_second_to_change_the_same_one_is_told(outbox: Outbox) -> None:
    seen = await outbox.add(parcel("a"))
    sending = await changed(outbox, seen, state="sending", attempts=1)
    assert sending == msgspec.structs.replace(seen, state="sending", attempts=1, revision=1)
    assert await outbox.change(msgspec.structs.replace(seen, state="dropped")) is None
    assert await outbox.find("a") == [sending]
    assert await outbox.change(parcel("ghost")) is None


async def test_each_recipient_has_a_line_of_those_that_have_yet_to_be_sent(outbox: Outbox) -> None:
    first, second, other = [
        await outbox.add(each) for each in (parcel("z", due_at=9_000), parcel("a"), parcel("m", BOB))
    ]
    assert [await outbox.next(to) for to in (ANN, BOB)] == [first, other]
    sending = await changed(outbox, first, state="sending")
    assert await outbox.next(ANN) == sending  # nobody overtakes it
    ambiguous = await changed(outbox, sending, state="ambiguous")
    assert await outbox.next(ANN) == second
    back = await changed(outbox, ambiguous, state="waiting")
    assert await outbox.next(ANN) == back  # to its old place
    assert await outbox.next(Recipient("slack", "ann")) is None


async def test_recipients_are_those_for_whom_something_is_left_to_do(outbox: Outbox) -> None:
    slack = Recipient("slack", "ann")
    for name, to in (("a", BOB), ("b", ANN), ("c", BOB), ("d", slack)):
        await outbox.add(parcel(name, to))
    await outbox.add(parcel("e", Recipient("irc", "done"), state="sent"))
    assert await outbox.recipients() == [BOB, ANN, slack]
    assert await outbox.recipients("slack") == [slack]
    assert await outbox.recipients("irc") == []


async def test_those_being_sent_are_found_after_a_crash(outbox: Outbox) -> None:
    first = await outbox.add(parcel("b", state="sending"))
    await outbox.add(parcel("c"))
    last = await outbox.add(parcel("a", BOB, state="sending"))
    assert await outbox.unfinished() == [first, last]


async def test_a_parcel_is_found_by_the_beginning_of_its_id(outbox: Outbox) -> None:
    for name in ("ab", "abc", "abd", "b%", "x"):
        await outbox.add(parcel(name))
    assert [found.id for found in await outbox.find("ab")] == ["ab", "abc"]
    assert [found.id for found in await outbox.find("abd")] == ["abd"]
    assert await outbox.find("%") == []
    assert await outbox.find("abcd") == []


async def test_recent_ones_come_newest_first_and_by_state(outbox: Outbox) -> None:
    for name, state in (("a", "sent"), ("b", "failed"), ("c", "waiting"), ("d", "sent")):
        await outbox.add(parcel(name, state=state))
    assert [each.id for each in await outbox.recent()] == ["d", "c", "b", "a"]
    assert [each.id for each in await outbox.recent(limit=2)] == ["d", "c"]
    assert [each.id for each in await outbox.recent(states=("failed", "waiting"))] == ["c", "b"]


async def test_what_is_not_done_is_counted_by_channel_and_state(outbox: Outbox) -> None:
    for name, state in (("a", "waiting"), ("b", "waiting"), ("c", "ambiguous"), ("d", "sent"), ("e", "dropped")):
        await outbox.add(parcel(name, state=state))
    await outbox.add(parcel("f", Recipient("slack", "ann")))
    assert await outbox.counts() == {
        ("telegram", "waiting"): 2,
        ("telegram", "ambiguous"): 1,
        ("slack", "waiting"): 1,
    }


async def test_only_what_is_done_and_old_is_forgotten(outbox: Outbox) -> None:
    for name, state, at in (("a", "sent", 10), ("b", "dropped", 10), ("c", "ambiguous", 10), ("d", "sent", 20)):
        await outbox.add(parcel(name, state=state, queued_at=at))
    assert await outbox.forget(20) == 2
    assert [each.id for each in await outbox.recent()] == ["d", "c"]


async def test_a_full_line_refuses_the_next_one_and_says_so(outbox: Outbox) -> None:
    first, *_ = [await outbox.add(parcel(f"p{number}")) for number in range(MOST_WAITING)]
    with pytest.raises(QueueFull, match=f"{MOST_WAITING} parcels already wait for telegram:ann"):
        await outbox.add(parcel("more"))
    assert await outbox.add(parcel("again", idempotency_key=first.idempotency_key)) == first
    assert (await outbox.add(parcel("other", BOB))).state == "waiting"
    await changed(outbox, first, state="sent")
    assert (await outbox.add(parcel("more"))).state == "waiting"
