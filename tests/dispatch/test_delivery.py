"""Deliveries: committed first, in order, tried again while that is harmless, and never doubled or dropped in silence.

On virtual time: hours of waiting cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from palinurus.dispatch.carrying import Limits
from palinurus.dispatch.delivery import KEPT_MS, Deliveries, Standing
from palinurus.dispatch.outbox import Receipt
from palinurus.dispatch.parcel import MOST_WAITING, Parcel, Patience
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import BadRequest, CarryFailed, CarryRefused, NotFound, QueueFull, StorageFull
from palinurus.testing.clock import SeededIds
from palinurus.testing.outbox import MemoryCarrier, MemoryOutbox
from palinurus.testing.virtual import VirtualClock, run_virtually

ANN, BOB = Delivery("net", "ann"), Delivery("net", "bob")
HOUR = 3600


class Post:
    """Deliveries on virtual time, with a carrier for the channel `net`."""

    def __init__(self, *, repeatable: bool = True, outbox: MemoryOutbox | None = None, **limits: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock(self.loop)
        self.outbox = outbox or MemoryOutbox()
        self.carrier = MemoryCarrier(repeatable=repeatable)
        self.limits = Limits(**limits)
        self.ids = SeededIds()
        self.again()

    def again(self) -> None:
        """A new process on the same outbox."""
        self.deliveries = Deliveries(
            self.outbox, self.clock, self.ids, lambda: 0.5, redact=lambda text: text.replace("s3cret", "…"),
            limits=self.limits,
        )  # fmt: skip
        self.deliveries.register(self.carrier)

    async def start(self) -> None:
        await self.deliveries.start()

    async def sends(self, *texts: str, to: Delivery = ANN) -> list[Parcel]:
        return [await self.deliveries.post(to, text, f"key {text}") for text in texts]

    async def settles(self) -> None:
        """Until nothing is left to carry; a line that never ends is found by the loop."""
        await asyncio.wait_for(self.deliveries.idle(), 100 * 24 * HOUR)

    def states(self) -> dict[str, str]:
        return {parcel.text: parcel.state for parcel in self.outbox.parcels.values()}

    def parcel(self, text: str) -> Parcel:
        return next(parcel for parcel in self.outbox.parcels.values() if parcel.text == text)


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtually(test)

    run.__name__ = test.__name__
    return run


def raising(*errors: BaseException | None) -> Callable[[Parcel], None]:
    """Raises them one after the other, then nothing more. None lets one through."""
    left = list(errors)

    def raise_next(_: Parcel) -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    return raise_next


@virtually
async def test_a_posted_parcel_is_a_row_at_once_and_is_sent_with_its_receipt() -> None:
    post = Post()
    (parcel,) = await post.sends("hello")
    assert post.outbox.parcels[parcel.id].state == "waiting"
    await post.start()
    await post.settles()
    sent = post.parcel("hello")
    assert (sent.state, sent.receipt, sent.attempts, sent.trouble) == ("sent", "n-key hello", 1, "")
    assert post.carrier.texts == ["hello"]


@virtually
async def test_posting_twice_under_one_key_sends_once() -> None:
    post = Post()
    await post.start()
    first = await post.deliveries.post(ANN, "hello", "same")
    await post.settles()
    again = await post.deliveries.post(BOB, "other words", "same")
    await post.settles()
    assert (again.id, again.state) == (first.id, "sent")
    assert post.carrier.texts == ["hello"]


@virtually
async def test_the_disk_knows_that_a_parcel_is_being_sent_before_its_carrier_does() -> None:
    post = Post()
    seen: list[str] = []
    post.carrier.before = lambda parcel: seen.append(post.outbox.parcels[parcel.id].state)
    await post.start()
    await post.sends("hello")
    await post.settles()
    assert seen == ["sending"]


@virtually
async def test_what_has_certainly_not_arrived_is_tried_again_after_growing_pauses_and_nobody_overtakes_it() -> None:
    post = Post(repeatable=False)
    times: list[float] = []
    post.carrier.before = raising(*[CarryFailed("down")] * 4)
    inner = post.carrier.carry

    async def timed(parcel: Parcel) -> Receipt:
        times.append(post.loop.time())
        return await inner(parcel)

    post.carrier.carry = timed  # type: ignore[method-assign]
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert post.carrier.texts == ["one", "two"]
    pauses = [round(after - before, 2) for before, after in pairwise(times[:5])]
    assert pauses == [0.75, 1.5, 3.0, 6.0]
    assert post.parcel("one").attempts == 5


@virtually
async def test_a_network_that_names_a_time_is_asked_then() -> None:
    post = Post()
    post.carrier.before = raising(CarryFailed("slow down", retry_after=42))
    await post.start()
    await post.sends("one")
    await asyncio.sleep(41)
    assert len(post.carrier.carried) == 1
    await post.settles()
    assert post.states() == {"one": "sent"}
    assert 42 <= post.loop.time() < 43


@virtually
async def test_a_parcel_is_given_up_after_so_many_attempts_and_the_next_one_goes_on() -> None:
    post = Post(patience=Patience(attempts=7))
    post.carrier.before = lambda parcel: raising(CarryFailed("down") if parcel.text == "one" else None)(parcel)
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert post.states() == {"one": "failed", "two": "sent"}
    assert post.parcel("one").trouble == "given up after 7 attempts: down"


@virtually
async def test_a_parcel_is_given_up_when_it_is_old_but_not_for_the_time_that_the_machine_was_off() -> None:
    post = Post()
    post.carrier.before = raising(*[CarryFailed("down")] * 1000)
    await post.sends("one")
    post.clock.set_by(72 * HOUR)
    await post.start()
    await asyncio.sleep(1)
    assert post.states() == {"one": "waiting"}
    await post.settles()
    assert (post.states(), post.parcel("one").attempts) == ({"one": "failed"}, 5)
    await post.sends("two")
    began = post.loop.time()
    await post.settles()
    assert 24 * HOUR <= post.loop.time() - began < 25 * HOUR


@virtually
async def test_what_is_refused_is_not_tried_again() -> None:
    post = Post()
    post.carrier.before = raising(CarryRefused("no such chat"))
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert post.states() == {"one": "failed", "two": "sent"}
    assert (post.parcel("one").attempts, post.parcel("one").trouble) == (1, "no such chat")


@virtually
async def test_what_may_have_arrived_is_repeated_under_its_key_where_that_is_harmless() -> None:
    post = Post()
    post.carrier.after = raising(ConnectionResetError("reset"), asyncio.CancelledError(), None)
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert post.states() == {"one": "sent", "two": "sent"}
    assert [parcel.idempotency_key for parcel in post.carrier.carried] == ["key one"] * 3 + ["key two"]
    assert post.carrier.texts == ["one", "two"]


@virtually
async def test_what_may_have_arrived_is_shown_as_ambiguous_where_repeating_could_double_it() -> None:
    post = Post(repeatable=False)
    post.carrier.after = raising(ConnectionResetError("reset by s3cret"))
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert post.states() == {"one": "ambiguous", "two": "sent"}
    assert post.parcel("one").trouble == "ConnectionResetError('reset by …')"
    assert post.carrier.texts == ["one", "two"]
    assert await post.deliveries.standing() == Standing(ambiguous=1)


@virtually
async def test_a_repeatable_parcel_in_doubt_ends_as_ambiguous_never_as_failed() -> None:
    post = Post(patience=Patience(attempts=3))
    post.carrier.after = raising(ConnectionResetError("reset"))
    post.carrier.before = raising(None, CarryFailed("down"), CarryFailed("down"), CarryFailed("down"))
    await post.start()
    await post.sends("one")
    await post.settles()
    assert post.parcel("one").state == "ambiguous"
    post.carrier.after = raising(ConnectionResetError("reset"))
    post.carrier.before = raising(None, CarryRefused("blocked"))
    await post.sends("two")
    await post.settles()
    assert (post.parcel("two").state, post.parcel("two").trouble) == ("ambiguous", "blocked")


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_carrier_that_hangs_is_left_after_its_time(repeatable: bool) -> None:
    async def story() -> None:
        post = Post(repeatable=repeatable)
        inner = post.carrier.carry

        async def hang_once(parcel: Parcel) -> Receipt:
            post.carrier.carry = inner  # type: ignore[method-assign]
            receipt = await inner(parcel)
            await asyncio.get_running_loop().create_future()
            return receipt

        post.carrier.carry = hang_once  # type: ignore[method-assign]
        await post.start()
        await post.sends("one", "two")
        await post.settles()
        assert post.states() == {"one": "sent" if repeatable else "ambiguous", "two": "sent"}
        assert repeatable or post.parcel("one").trouble == "no answer within 60 s"
        assert post.carrier.texts == ["one", "two"]

    run_virtually(story)


@virtually
async def test_what_nobody_carries_waits_and_is_told_and_goes_when_somebody_comes() -> None:
    post = Post()
    await post.start()
    await post.sends("one", "two", to=Delivery("pigeon", "ann"))
    await post.settles()
    assert await post.deliveries.standing() == Standing(waiting=2, uncarried={"pigeon": 2})
    pigeon = MemoryCarrier("pigeon")
    post.deliveries.register(pigeon)
    await post.settles()
    assert pigeon.texts == ["one", "two"]
    assert await post.deliveries.standing() == Standing()
    post.deliveries.unregister("pigeon")
    await post.sends("three", to=Delivery("pigeon", "ann"))
    await post.settles()
    assert post.states()["three"] == "waiting"


@virtually
async def test_a_recipient_is_served_in_order_and_others_do_not_wait_for_one_that_is_slow() -> None:
    post = Post()
    gate = asyncio.Event()
    inner = post.carrier.carry

    async def slow_for_ann(parcel: Parcel) -> Receipt:
        if parcel.to == "ann":
            await gate.wait()
        return await inner(parcel)

    post.carrier.carry = slow_for_ann  # type: ignore[method-assign]
    await post.start()
    await post.sends("a1", "a2", "a3")
    await post.sends("b1", "b2", to=BOB)
    await asyncio.sleep(1)
    assert post.carrier.texts == ["b1", "b2"]
    gate.set()
    await post.settles()
    assert post.carrier.texts == ["b1", "b2", "a1", "a2", "a3"]


@virtually
async def test_only_so_many_recipients_of_a_channel_are_served_at_once() -> None:
    post = Post(at_once=3)
    now, most = 0, 0
    inner = post.carrier.carry

    async def counted(parcel: Parcel) -> Receipt:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1
        return await inner(parcel)

    post.carrier.carry = counted  # type: ignore[method-assign]
    await post.start()
    for number in range(12):
        await post.sends(f"to {number}", to=Delivery("net", str(number)))
    await post.settles()
    assert (most, len(post.carrier.texts)) == (3, 12)


@virtually
async def test_a_full_line_refuses_more_and_says_so() -> None:
    post = Post()
    await post.sends(*map(str, range(MOST_WAITING)))
    with pytest.raises(QueueFull, match="100 parcels already wait for net:ann"):
        await post.sends("one too many")
    await post.start()
    await post.settles()
    assert post.carrier.texts == [*map(str, range(MOST_WAITING))]


@pytest.mark.parametrize("missing", [(Delivery("net", ""), "hi", "k"), (ANN, " \n", "k"), (ANN, "hi", "")])
def test_a_parcel_without_words_or_somebody_to_go_to_is_refused(missing: tuple[Delivery, str, str]) -> None:
    async def story() -> None:
        with pytest.raises(BadRequest, match="a parcel needs words"):
            await Post().deliveries.post(*missing)

    run_virtually(story)


@virtually
async def test_secrets_and_half_characters_are_in_no_parcel() -> None:
    post = Post()
    (parcel,) = await post.sends("the key is s3cret\ud800")
    assert parcel.text == "the key is …\ufffd"


@virtually
async def test_what_was_being_sent_when_the_process_died_is_repeated_or_shown() -> None:
    for repeatable, state, shown in ((True, "sent", 1), (False, "ambiguous", 0)):
        post = Post(repeatable=repeatable)
        parcels = await post.sends("one", "two")
        await post.outbox.change(msgspec.structs.replace(parcels[0], state="sending", attempts=1))
        await post.start()
        await post.settles()
        assert post.states() == {"one": state, "two": "sent"}
        assert post.carrier.texts.count("one") == shown
    assert post.parcel("one").trouble == "the process ended while it was being sent"


@virtually
async def test_what_a_dead_process_was_sending_is_told_even_while_nobody_carries_there() -> None:
    post = Post()
    (parcel,) = await post.sends("one", to=Delivery("pigeon", "ann"))
    await post.outbox.change(msgspec.structs.replace(parcel, state="sending", attempts=1))
    await post.start()
    kept = post.parcel("one")
    assert (kept.state, kept.unsure, kept.trouble) == ("waiting", True, "the process ended while it was being sent")
    pigeon = MemoryCarrier("pigeon", repeatable=False)
    post.deliveries.register(pigeon)
    await post.settles()
    assert (post.states(), pigeon.texts) == ({"one": "ambiguous"}, [])


@virtually
async def test_leaving_lets_what_is_being_carried_end_and_begins_nothing_more() -> None:
    post = Post()
    inner = post.carrier.carry

    async def takes_a_moment(parcel: Parcel) -> Receipt:
        await asyncio.sleep(5)
        return await inner(parcel)

    post.carrier.carry = takes_a_moment  # type: ignore[method-assign]
    await post.start()
    await post.sends("one", "two")
    await asyncio.sleep(1)
    await post.deliveries.close()
    assert post.states() == {"one": "sent", "two": "waiting"}
    assert post.loop.time() < 6
    post.again()
    await post.start()
    await post.settles()
    assert post.carrier.texts == ["one", "two"]


@virtually
async def test_leaving_does_not_wait_for_ever_and_what_was_on_its_way_is_in_doubt() -> None:
    post = Post(repeatable=False)
    post.carrier.carry = lambda _: asyncio.Event().wait()  # type: ignore
    await post.start()
    await post.sends("one")
    await post.sends("later", to=BOB)
    await asyncio.sleep(1)
    await post.deliveries.close()
    assert post.loop.time() < 15
    post.carrier = MemoryCarrier(repeatable=False)
    post.again()
    await post.start()
    await post.settles()
    assert post.states() == {"one": "ambiguous", "later": "ambiguous"}


@virtually
async def test_a_person_may_send_an_ambiguous_parcel_again_or_drop_it() -> None:
    post = Post(repeatable=False)
    post.carrier.after = raising(OSError("gone"), OSError("gone"))
    await post.start()
    one, two = await post.sends("one", "two")
    await post.settles()
    assert post.states() == {"one": "ambiguous", "two": "ambiguous"}
    asked = await post.deliveries.retry(one.id[:9], "ask-1")
    assert (asked.state, asked.attempts) == ("waiting", 0)
    assert (await post.deliveries.drop(two.id)).state == "dropped"
    await post.settles()
    assert post.states() == {"one": "sent", "two": "dropped"}
    assert post.carrier.texts.count("one") == 2  # they had been told that it may have come
    assert (await post.deliveries.retry(one.id, "ask-1")).state == "sent"  # asked twice by a nervous client
    assert (await post.deliveries.drop(two.id)).state == "dropped"
    with pytest.raises(BadRequest, match="was sent and cannot be sent again"):
        await post.deliveries.retry(one.id, "ask-2")
    with pytest.raises(BadRequest, match="was dropped and cannot be sent again"):
        await post.deliveries.retry(two.id, "ask-3")
    with pytest.raises(BadRequest, match="was sent and cannot be dropped"):
        await post.deliveries.drop(one.id)
    assert post.carrier.texts.count("one") == 2


@virtually
async def test_a_parcel_that_a_person_sends_again_is_tried_as_patiently_as_a_new_one() -> None:
    post = Post(repeatable=False, patience=Patience(attempts=4))
    post.carrier.after = raising(OSError("gone"))
    await post.start()
    (one,) = await post.sends("one")
    await post.settles()
    post.carrier.before = raising(CarryFailed("down"), CarryFailed("down"), None)
    await post.deliveries.retry(one.id)
    await post.settles()
    assert post.states() == {"one": "sent"}
    assert post.carrier.texts == ["one", "one"]


@virtually
async def test_a_parcel_that_waits_can_be_hurried_or_dropped_and_one_that_is_being_sent_cannot() -> None:
    post = Post()
    post.carrier.before = raising(*[CarryFailed("down")] * 50)
    await post.start()
    one, two = await post.sends("one", "two")
    await asyncio.sleep(200)
    attempts = len(post.carrier.carried)
    await post.deliveries.retry(one.id)
    await asyncio.sleep(0.1)
    assert len(post.carrier.carried) == attempts + 1
    await post.deliveries.drop(one.id)
    gate = asyncio.Event()
    inner = post.carrier.carry

    async def waits(parcel: Parcel) -> Receipt:
        await gate.wait()
        return await inner(parcel)

    post.carrier.before = raising()
    post.carrier.carry = waits  # type: ignore[method-assign]
    await asyncio.sleep(1)
    assert post.states() == {"one": "dropped", "two": "sending"}
    for decide, verb in ((post.deliveries.retry, "sent again"), (post.deliveries.drop, "dropped")):
        with pytest.raises(BadRequest, match=f"is being sent right now and cannot be {verb}"):
            await decide(two.id)
    gate.set()
    await post.settles()
    assert post.carrier.texts == ["two"]


@virtually
async def test_a_parcel_that_does_not_exist_or_is_not_clear_is_not_guessed() -> None:
    post = Post()
    await post.outbox.add(Parcel("ab1", "k1", "net", "ann", "one"))
    await post.outbox.add(Parcel("ab2", "k2", "net", "ann", "two"))
    for beginning, why in (
        ("", "there is no parcel ''"),
        ("zz", "there is no parcel 'zz'"),
        ("ab", "more than one parcel begins with 'ab'"),
    ):
        with pytest.raises(NotFound, match=why):
            await post.deliveries.drop(beginning)
    assert (await post.deliveries.drop("ab2")).text == "two"


class IllDisk(MemoryOutbox):
    """Fails to write some states so many times."""

    def __init__(self, **failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def change(self, parcel: Parcel) -> Parcel | None:
        if self.failures.get(parcel.state):
            self.failures[parcel.state] -= 1
            raise StorageFull("the disk is full")
        return await super().change(parcel)


@virtually
async def test_a_disk_that_fails_delays_parcels_and_doubles_none() -> None:
    disk = IllDisk(sending=3, sent=5)
    post = Post(repeatable=False, outbox=disk)
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert post.states() == {"one": "sent", "two": "sent"}
    assert post.carrier.texts == ["one", "two"]
    assert disk.failures == {"sending": 0, "sent": 0}


@virtually
async def test_a_clock_that_is_set_back_delays_nothing_for_long() -> None:
    post = Post()
    post.carrier.before = raising(CarryFailed("down"))
    await post.start()
    await post.sends("one")
    await asyncio.sleep(0.1)
    post.clock.set_by(-30 * 24 * HOUR)
    await post.sends("two")
    await asyncio.sleep(5)
    assert post.carrier.texts == ["one", "two"]


@virtually
async def test_what_was_sent_is_forgotten_after_a_month() -> None:
    post = Post()
    await post.start()
    await post.sends("old")
    await post.settles()
    await post.deliveries.close()
    post.clock.set_by(KEPT_MS / 1000 + 1)
    await post.sends("new")
    post.again()
    await post.start()
    await post.settles()
    assert post.states() == {"new": "sent"}


def test_what_needs_a_person_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        post = Post(repeatable=False)
        post.carrier.after = raising(OSError("gone"))
        await post.start()
        await post.sends("one")
        await post.settles()

    with caplog.at_level(logging.WARNING):
        run_virtually(story)
    (record,) = caplog.records
    assert "to net:ann is ambiguous: OSError('gone')" in record.getMessage()
