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
from msgspec import Raw

from palinurus.dispatch.delivery import MOST_WAITING, Deliveries, DeliveryCounts, DeliveryJob, OutboundMessage
from palinurus.dispatch.jobs import KEPT_MS, Jobs
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import BadRequest, JobFailed, JobRefused, NotFound, QueueFull, StorageFull
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.jobs import LEFT_BEHIND, Job, JobKind, JobQueue, RetryPolicy
from palinurus.testing.fakes import SeededIds
from support.delivery import MemorySender
from support.virtual import VirtualClock, run_virtually

ANN, BOB = Delivery("net", "ann"), Delivery("net", "bob")
HOUR = 3600


class Post:
    """Deliveries on virtual time, with a sender for the channel `net`."""

    def __init__(self, *, repeatable: bool = True, queue: type[JobQueue] = JobQueue, **limits: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock(self.loop)
        self.database = MemoryDatabase()
        self.queue: Any = queue(self.database)
        self.sender = MemorySender(repeatable=repeatable)
        self.limits = limits
        self.ids = SeededIds()
        self.again()

    def again(self) -> None:
        """A new process on the same queue."""
        redact = lambda text: text.replace("s3cret", "…")  # noqa: E731
        self.jobs = Jobs(self.queue, self.clock, self.ids, lambda: 0.5, lambda _: None, redact=redact)
        self.deliveries = Deliveries(self.jobs, redact=redact, **self.limits)
        self.deliveries.register(self.sender)

    async def start(self) -> None:
        await self.jobs.start()

    async def sends(self, *texts: str, to: Delivery = ANN) -> list[DeliveryJob]:
        return [await self.deliveries.post(to, text, f"key {text}") for text in texts]

    async def settles(self) -> None:
        """Until nothing waits that somebody could send; a lane that never ends is found by the loop."""
        async with asyncio.timeout(100 * 24 * HOUR):
            await self.jobs.idle()
            while waiting := await self._waiting():
                pause = min(each.due_at for each in waiting) - self.clock.now_ms()
                await asyncio.sleep(max(pause, 10) / 1000)
                await self.jobs.idle()

    async def _waiting(self) -> list[DeliveryJob]:
        found = await self.deliveries.recent(states=("waiting", "sending"), limit=1000)
        lost = (await self.deliveries.counts()).uncarried
        return [each for each in found if each.channel not in lost]

    async def dies_sending(self, channel: str = "net", to: str = "ann") -> None:
        """As a process that ends just after it has begun."""
        kind = JobKind(f"delivery:{channel}", OutboundMessage, nothing)
        assert await self.queue.claim(kind, to, self.clock.now_ms()) is not None

    async def all(self) -> list[DeliveryJob]:
        """In their order."""
        return list(reversed(await self.deliveries.recent(limit=1000)))

    async def states(self) -> dict[str, str]:
        return {each.text: each.state for each in await self.all()}

    async def delivery(self, text: str) -> DeliveryJob:
        return next(each for each in await self.all() if each.text == text)


async def nothing(_: Any, __: Any, ___: Job) -> None: ...


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtually(test)

    run.__name__ = test.__name__
    return run


def raising(*errors: BaseException | None) -> Callable[[DeliveryJob], None]:
    """Raises them one after the other, then nothing more. None lets one through."""
    left = list(errors)

    def raise_next(_: DeliveryJob) -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    return raise_next


@virtually
async def test_a_posted_message_is_a_row_at_once_and_is_sent_with_its_receipt() -> None:
    post = Post()
    (delivery,) = await post.sends("hello")
    assert delivery.state == "waiting"
    assert await post.deliveries.recent() == [delivery]
    await post.start()
    await post.settles()
    sent = await post.delivery("hello")
    assert (sent.state, sent.receipt, sent.attempts, sent.trouble) == ("sent", "n-key hello", 1, "")
    assert post.sender.texts == ["hello"]


@virtually
async def test_posting_twice_under_one_key_sends_once() -> None:
    post = Post()
    await post.start()
    first = await post.deliveries.post(ANN, "hello", "same")
    await post.settles()
    again = await post.deliveries.post(BOB, "other words", "same")
    await post.settles()
    assert (again.id, again.state) == (first.id, "sent")
    assert post.sender.texts == ["hello"]


@virtually
async def test_the_disk_knows_that_a_delivery_is_being_sent_before_its_sender_does() -> None:
    post = Post()
    seen: list[str] = []
    post.sender.before = lambda _: seen.append(post.database.look(lambda tx: tx.execute("SELECT state FROM jobs").get))
    await post.start()
    await post.sends("hello")
    await post.settles()
    assert seen == ["running"]


@virtually
async def test_what_has_certainly_not_arrived_is_tried_again_after_growing_pauses_and_nobody_overtakes_it() -> None:
    post = Post(repeatable=False)
    times: list[float] = []
    post.sender.before = raising(*[JobFailed("down")] * 4)
    inner = post.sender.send

    async def timed(delivery: DeliveryJob) -> str:
        times.append(post.loop.time())
        return await inner(delivery)

    post.sender.send = timed  # type: ignore[method-assign]
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert post.sender.texts == ["one", "two"]
    pauses = [round(after - before, 2) for before, after in pairwise(times[:5])]
    assert pauses == [0.75, 1.5, 3.0, 6.0]
    assert (await post.delivery("one")).attempts == 5


@virtually
async def test_a_network_that_names_a_time_is_asked_then() -> None:
    post = Post()
    post.sender.before = raising(JobFailed("slow down", retry_after=42))
    await post.start()
    await post.sends("one")
    await asyncio.sleep(41)
    assert len(post.sender.attempts) == 1
    await post.settles()
    assert await post.states() == {"one": "sent"}
    assert 42 <= post.loop.time() < 43


@virtually
async def test_a_delivery_is_given_up_after_so_many_attempts_and_the_next_one_goes_on() -> None:
    post = Post(retry=RetryPolicy(attempts=7))
    post.sender.before = lambda delivery: raising(JobFailed("down") if delivery.text == "one" else None)(delivery)
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert await post.states() == {"one": "failed", "two": "sent"}
    assert (await post.delivery("one")).trouble == "given up after 7 attempts: down"


@virtually
async def test_a_delivery_is_given_up_when_it_is_old_but_not_for_the_time_that_the_machine_was_off() -> None:
    post = Post()
    post.sender.before = raising(*[JobFailed("down")] * 1000)
    await post.sends("one")
    post.clock.set_by(72 * HOUR)
    await post.start()
    await asyncio.sleep(1)
    assert await post.states() == {"one": "waiting"}
    await post.settles()
    assert (await post.states(), (await post.delivery("one")).attempts) == ({"one": "failed"}, 5)
    await post.sends("two")
    began = post.loop.time()
    await post.settles()
    assert 24 * HOUR <= post.loop.time() - began < 25 * HOUR


@virtually
async def test_what_is_refused_is_not_tried_again() -> None:
    post = Post()
    post.sender.before = raising(JobRefused("no such chat"))
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert await post.states() == {"one": "failed", "two": "sent"}
    assert ((await post.delivery("one")).attempts, (await post.delivery("one")).trouble) == (1, "no such chat")


@virtually
async def test_what_may_have_arrived_is_repeated_under_its_key_where_that_is_harmless() -> None:
    post = Post()
    post.sender.after = raising(ConnectionResetError("reset"), asyncio.CancelledError(), None)
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert await post.states() == {"one": "sent", "two": "sent"}
    assert [delivery.idempotency_key for delivery in post.sender.attempts] == ["key one"] * 3 + ["key two"]
    assert post.sender.texts == ["one", "two"]


@virtually
async def test_what_may_have_arrived_is_shown_as_ambiguous_where_repeating_could_double_it() -> None:
    post = Post(repeatable=False)
    post.sender.after = raising(ConnectionResetError("reset by s3cret"))
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert await post.states() == {"one": "ambiguous", "two": "sent"}
    assert (await post.delivery("one")).trouble == "ConnectionResetError('reset by …')"
    assert post.sender.texts == ["one", "two"]
    assert await post.deliveries.counts() == DeliveryCounts(ambiguous=1)


@virtually
async def test_a_repeatable_delivery_in_doubt_ends_as_ambiguous_never_as_failed() -> None:
    post = Post(retry=RetryPolicy(attempts=3))
    post.sender.after = raising(ConnectionResetError("reset"))
    post.sender.before = raising(None, JobFailed("down"), JobFailed("down"), JobFailed("down"))
    await post.start()
    await post.sends("one")
    await post.settles()
    assert (await post.delivery("one")).state == "ambiguous"
    post.sender.after = raising(ConnectionResetError("reset"))
    post.sender.before = raising(None, JobRefused("blocked"))
    await post.sends("two")
    await post.settles()
    assert ((await post.delivery("two")).state, (await post.delivery("two")).trouble) == ("ambiguous", "blocked")


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_sender_that_hangs_is_left_after_its_time(repeatable: bool) -> None:
    async def story() -> None:
        post = Post(repeatable=repeatable)
        inner = post.sender.send

        async def hang_once(delivery: DeliveryJob) -> str:
            post.sender.send = inner  # type: ignore[method-assign]
            receipt = await inner(delivery)
            await asyncio.get_running_loop().create_future()
            return receipt

        post.sender.send = hang_once  # type: ignore[method-assign]
        await post.start()
        await post.sends("one", "two")
        await post.settles()
        assert await post.states() == {"one": "sent" if repeatable else "ambiguous", "two": "sent"}
        assert repeatable or (await post.delivery("one")).trouble == "not done within 600 s"
        assert post.sender.texts == ["one", "two"]

    run_virtually(story)


@virtually
async def test_what_has_no_sender_waits_and_is_told_and_goes_when_somebody_comes() -> None:
    post = Post()
    await post.start()
    await post.sends("one", "two", to=Delivery("pigeon", "ann"))
    await post.settles()
    assert await post.deliveries.counts() == DeliveryCounts(waiting=2, uncarried={"pigeon": 2})
    pigeon = MemorySender("pigeon")
    post.deliveries.register(pigeon)
    await post.settles()
    assert pigeon.texts == ["one", "two"]
    assert await post.deliveries.counts() == DeliveryCounts()
    post.deliveries.unregister("pigeon")
    await post.sends("three", to=Delivery("pigeon", "ann"))
    await post.settles()
    assert (await post.states())["three"] == "waiting"


@virtually
async def test_a_recipient_is_served_in_order_and_others_do_not_wait_for_one_that_is_slow() -> None:
    post = Post()
    gate = asyncio.Event()
    inner = post.sender.send

    async def slow_for_ann(delivery: DeliveryJob) -> str:
        if delivery.to == "ann":
            await gate.wait()
        return await inner(delivery)

    post.sender.send = slow_for_ann  # type: ignore[method-assign]
    await post.start()
    await post.sends("a1", "a2", "a3")
    await post.sends("b1", "b2", to=BOB)
    await asyncio.sleep(1)
    assert post.sender.texts == ["b1", "b2"]
    gate.set()
    await post.settles()
    assert post.sender.texts == ["b1", "b2", "a1", "a2", "a3"]


@virtually
async def test_only_so_many_recipients_of_a_channel_are_served_at_once() -> None:
    post = Post(at_once=3)
    now, most = 0, 0
    inner = post.sender.send

    async def counted(delivery: DeliveryJob) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1
        return await inner(delivery)

    post.sender.send = counted  # type: ignore[method-assign]
    await post.start()
    for number in range(12):
        await post.sends(f"to {number}", to=Delivery("net", str(number)))
    await post.settles()
    assert (most, len(post.sender.texts)) == (3, 12)


@virtually
async def test_a_full_line_refuses_more_and_says_so() -> None:
    post = Post()
    await post.sends(*map(str, range(MOST_WAITING)))
    with pytest.raises(QueueFull, match="100 jobs of the kind delivery:net already wait in the lane ann"):
        await post.sends("one too many")
    await post.start()
    await post.settles()
    assert post.sender.texts == [*map(str, range(MOST_WAITING))]


@pytest.mark.parametrize("missing", [(Delivery("net", ""), "hi", "k"), (ANN, " \n", "k"), (ANN, "hi", "")])
def test_a_delivery_without_words_or_somebody_to_go_to_is_refused(missing: tuple[Delivery, str, str]) -> None:
    async def story() -> None:
        with pytest.raises(BadRequest, match="a delivery needs a text"):
            await Post().deliveries.post(*missing)

    run_virtually(story)


@virtually
async def test_secrets_and_half_characters_are_in_no_delivery() -> None:
    post = Post()
    delivery = await post.deliveries.post(ANN, "the key is s3cret\ud800", "k")
    assert delivery.text == "the key is …\ufffd"


@virtually
async def test_what_was_being_sent_when_the_process_died_is_repeated_or_shown() -> None:
    for repeatable, state, shown in ((True, "sent", 1), (False, "ambiguous", 0)):
        post = Post(repeatable=repeatable)
        await post.sends("one", "two")
        await post.dies_sending()
        await post.start()
        await post.settles()
        assert await post.states() == {"one": state, "two": "sent"}
        assert post.sender.texts.count("one") == shown
    assert (await post.delivery("one")).trouble == LEFT_BEHIND


@virtually
async def test_what_a_dead_process_was_sending_is_told_even_while_no_sender_there() -> None:
    post = Post()
    await post.sends("one", to=Delivery("pigeon", "ann"))
    await post.dies_sending("pigeon")
    await post.start()
    kept = await post.delivery("one")
    assert (kept.state, kept.unsure, kept.trouble) == ("waiting", True, LEFT_BEHIND)
    pigeon = MemorySender("pigeon", repeatable=False)
    post.deliveries.register(pigeon)
    await post.settles()
    assert (await post.states(), pigeon.texts) == ({"one": "ambiguous"}, [])


@virtually
async def test_leaving_lets_what_is_being_sent_end_and_begins_nothing_more() -> None:
    post = Post()
    inner = post.sender.send

    async def takes_a_moment(delivery: DeliveryJob) -> str:
        await asyncio.sleep(5)
        return await inner(delivery)

    post.sender.send = takes_a_moment  # type: ignore[method-assign]
    await post.start()
    await post.sends("one", "two")
    await asyncio.sleep(1)
    await post.jobs.close()
    assert await post.states() == {"one": "sent", "two": "waiting"}
    assert post.loop.time() < 6
    post.again()
    await post.start()
    await post.settles()
    assert post.sender.texts == ["one", "two"]


@virtually
async def test_leaving_does_not_wait_for_ever_and_what_was_on_its_way_is_in_doubt() -> None:
    post = Post(repeatable=False)
    post.sender.send = lambda _: asyncio.Event().wait()  # type: ignore
    await post.start()
    await post.sends("one")
    await post.sends("later", to=BOB)
    await asyncio.sleep(1)
    await post.jobs.close()
    assert post.loop.time() < 15
    post.sender = MemorySender(repeatable=False)
    post.again()
    await post.start()
    await post.settles()
    assert await post.states() == {"one": "ambiguous", "later": "ambiguous"}


@virtually
async def test_a_person_may_send_an_ambiguous_delivery_again_or_drop_it() -> None:
    post = Post(repeatable=False)
    post.sender.after = raising(OSError("gone"), OSError("gone"))
    await post.start()
    one, two = await post.sends("one", "two")
    await post.settles()
    assert await post.states() == {"one": "ambiguous", "two": "ambiguous"}
    asked = await post.deliveries.retry(one.id[:9], "ask-1")
    assert (asked.state, asked.attempts) == ("waiting", 0)
    assert (await post.deliveries.drop(two.id)).state == "dropped"
    await post.settles()
    assert await post.states() == {"one": "sent", "two": "dropped"}
    assert post.sender.texts.count("one") == 2  # they had been told that it may have come
    assert (await post.deliveries.retry(one.id, "ask-1")).state == "sent"  # asked twice by a nervous client
    assert (await post.deliveries.drop(two.id)).state == "dropped"
    with pytest.raises(BadRequest, match="was done and cannot be done again"):
        await post.deliveries.retry(one.id, "ask-2")
    with pytest.raises(BadRequest, match="was dropped and cannot be done again"):
        await post.deliveries.retry(two.id, "ask-3")
    with pytest.raises(BadRequest, match="was done and cannot be dropped"):
        await post.deliveries.drop(one.id)
    assert post.sender.texts.count("one") == 2


@virtually
async def test_a_delivery_that_a_person_sends_again_is_tried_as_patiently_as_a_new_one() -> None:
    post = Post(repeatable=False, retry=RetryPolicy(attempts=4))
    post.sender.after = raising(OSError("gone"))
    await post.start()
    (one,) = await post.sends("one")
    await post.settles()
    post.sender.before = raising(JobFailed("down"), JobFailed("down"), None)
    await post.deliveries.retry(one.id)
    await post.settles()
    assert await post.states() == {"one": "sent"}
    assert post.sender.texts == ["one", "one"]


@virtually
async def test_a_delivery_that_waits_can_be_hurried_or_dropped_and_one_that_is_being_sent_cannot() -> None:
    post = Post()
    post.sender.before = raising(*[JobFailed("down")] * 50)
    await post.start()
    one, two = await post.sends("one", "two")
    await asyncio.sleep(200)
    attempts = len(post.sender.attempts)
    await post.deliveries.retry(one.id)
    await asyncio.sleep(0.1)
    assert len(post.sender.attempts) == attempts + 1
    await post.deliveries.drop(one.id)
    gate = asyncio.Event()
    inner = post.sender.send

    async def waits(delivery: DeliveryJob) -> str:
        await gate.wait()
        return await inner(delivery)

    post.sender.before = raising()
    post.sender.send = waits  # type: ignore[method-assign]
    await asyncio.sleep(1)
    assert await post.states() == {"one": "dropped", "two": "sending"}
    for decide, verb in ((post.deliveries.retry, "done again"), (post.deliveries.drop, "dropped")):
        with pytest.raises(BadRequest, match=f"is running now and cannot be {verb}"):
            await decide(two.id)
    gate.set()
    await post.settles()
    assert post.sender.texts == ["two"]


@virtually
async def test_a_delivery_that_does_not_exist_or_is_not_clear_is_not_guessed() -> None:
    post = Post()
    for name in ("ab1", "ab2"):
        payload = msgspec.json.encode(OutboundMessage("net", "ann", f"words of {name}"))
        await post.queue.add(Job(name, "delivery:net", "ann", name, Raw(payload)))
    await post.queue.add(Job("zz", "call", "ann", "zz", Raw("{}")))
    for beginning, why in (
        ("", "there is no job ''"),
        ("zz", "there is no job 'zz'"),
        ("ab", "more than one job begins with 'ab'"),
    ):
        with pytest.raises(NotFound, match=why):
            await post.deliveries.drop(beginning)
    assert (await post.deliveries.drop("ab2")).text == "words of ab2"


class IllDisk(JobQueue):
    """Fails to write that something is being done, or is done, so many times."""

    running, done = 3, 5

    async def claim(self, kind: JobKind, lane: str, now: int) -> Job | None:
        if self.running:
            self.running -= 1
            raise StorageFull("the disk is full")
        return await super().claim(kind, lane, now)

    async def settle(self, kind: JobKind, seen: Job, after: Job, now: int) -> tuple[Job | None, bool]:
        if self.done and after.state == "done":
            self.done -= 1
            raise StorageFull("the disk is full")
        return await super().settle(kind, seen, after, now)


@virtually
async def test_a_disk_that_fails_delays_deliveries_and_doubles_none() -> None:
    post = Post(repeatable=False, queue=IllDisk)
    await post.start()
    await post.sends("one", "two")
    await post.settles()
    assert await post.states() == {"one": "sent", "two": "sent"}
    assert post.sender.texts == ["one", "two"]
    assert (post.queue.running, post.queue.done) == (0, 0)


@virtually
async def test_a_clock_that_is_set_back_delays_nothing_for_long() -> None:
    post = Post()
    post.sender.before = raising(JobFailed("down"))
    await post.start()
    await post.sends("one")
    await asyncio.sleep(0.1)
    post.clock.set_by(-30 * 24 * HOUR)
    await post.sends("two")
    await asyncio.sleep(5)
    assert post.sender.texts == ["one", "two"]


@virtually
async def test_what_was_sent_is_forgotten_after_a_month() -> None:
    post = Post()
    await post.start()
    await post.sends("old")
    await post.settles()
    await post.jobs.close()
    post.clock.set_by(KEPT_MS / 1000 + 1)
    await post.sends("new")
    post.again()
    await post.start()
    await post.settles()
    assert await post.states() == {"new": "sent"}


def test_what_needs_a_person_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        post = Post(repeatable=False)
        post.sender.after = raising(OSError("gone"))
        await post.start()
        await post.sends("one")
        await post.settles()

    with caplog.at_level(logging.WARNING):
        run_virtually(story)
    (record,) = caplog.records
    assert "(delivery:net ann) is ambiguous: OSError('gone')" in record.getMessage()
