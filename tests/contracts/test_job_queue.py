"""What the queue of jobs keeps: one row for a key, one at a time in a lane, ended only by who holds it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from palinurus.dispatch.dispatcher import run_job
from palinurus.dispatch.runs import result_of
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import BadRequest, NotFound, QueueFull
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Origin, Usage
from palinurus.storage.database import Database
from palinurus.storage.jobs import (
    LEFT_BEHIND,
    RUN,
    Job,
    JobKind,
    JobQueue,
    RetryPolicy,
    add_job,
    cancel_job,
    complete,
    drop,
    finish_job,
    give_up,
    mark_ambiguous,
    mark_doubtful,
    postpone,
    request_retry,
    start_attempt,
)
from palinurus.storage.transaction import Transaction


async def nothing(_: Any, __: Any, ___: Job) -> None: ...


LETTER = JobKind("letter", str, nothing, lease_ms=1000)
AGAIN = msgspec.structs.replace(LETTER, on_crash="retry")


@pytest.fixture
def queue(database: Database) -> JobQueue:
    return JobQueue(database)


def job(name: str, lane: str = "ann", **changes: Any) -> Job:
    plain = Job(name, "letter", lane, f"key-{name}", Raw(f'"words of {name}"'), added_at=1000, due_at=1000)
    return msgspec.structs.replace(plain, **changes)


async def claimed(queue: JobQueue, now: int = 2000, lane: str = "ann", kind: JobKind = LETTER) -> Job:
    found = await queue.claim(kind, lane, now)
    assert found is not None
    return found


async def test_what_is_added_comes_back_as_it_was(queue: JobQueue) -> None:
    whole = job("a", trouble="none yet", payload=Raw('{"to":["ann"]}'))
    assert await queue.add(whole) == whole
    assert await queue.recent() == [whole]


async def test_the_first_under_a_key_of_its_kind_stays(queue: JobQueue) -> None:
    first = await queue.add(job("a"))
    assert await queue.add(job("b", idempotency_key="key-a")) == first
    other = await queue.add(job("c", idempotency_key="key-a", kind="call"))
    assert await queue.recent() == [other, first]


async def test_of_many_at_once_under_one_key_one_is_kept(queue: JobQueue) -> None:
    adds = [queue.add(job(f"j{number}", idempotency_key="same")) for number in range(20)]
    assert len({kept.id for kept in await asyncio.gather(*adds)}) == 1


async def test_a_lane_holds_so_many_and_another_lane_its_own(queue: JobQueue) -> None:
    for name in "ab":
        await queue.add(job(name), 2)
    with pytest.raises(QueueFull, match=r"2 jobs of the kind letter already wait in the lane ann"):
        await queue.add(job("c"), 2)
    assert (await queue.add(job("a"), 2)).id == "a"
    assert (await queue.add(job("d", "bob"), 2)).id == "d"
    assert (await queue.add(job("c"), 0)).id == "c"


async def test_one_is_taken_up_at_a_time_in_the_order_of_the_lane(queue: JobQueue) -> None:
    for name, lane in (("z", "ann"), ("a", "ann"), ("m", "bob")):
        await queue.add(job(name, lane))
    first = await claimed(queue)
    assert first == job("z", state="running", attempts=1, lease_until=3000, fence=1)
    assert await queue.claim(LETTER, "ann", 2000) is None
    assert (await claimed(queue, lane="bob")).id == "m"
    assert await queue.change(first, complete(first, {"sent": 1}))
    assert (await claimed(queue)).id == "a"


async def test_of_many_who_claim_at_once_one_has_it(queue: JobQueue) -> None:
    await queue.add(job("a"))
    found = await asyncio.gather(*(queue.claim(LETTER, "ann", 2000) for _ in range(10)))
    assert [each.id for each in found if each] == ["a"]


async def test_what_is_due_is_not_held_up_by_what_will_be_but_by_what_is_tried_again(queue: JobQueue) -> None:
    await queue.add(job("later", due_at=9000))
    await queue.add(job("now"))
    await queue.add(job("behind"))
    held = await claimed(queue)
    assert held.id == "now"
    await queue.change(held, postpone(held, "busy", 2000, LETTER.retry, 500))
    assert await queue.claim(LETTER, "ann", 2400) is None
    again = await claimed(queue, 2500)
    assert (again.id, again.attempts, again.trouble) == ("now", 2, "busy")
    await queue.change(again, complete(again))
    assert (await claimed(queue, 9500)).id == "later"  # in the order in which they were added


async def test_a_lease_that_ran_out_leaves_doubt_and_its_holder_can_end_nothing(queue: JobQueue) -> None:
    await queue.add(job("a"))
    old = await claimed(queue, kind=AGAIN)
    assert await queue.claim(AGAIN, "ann", 2999) is None
    new = await claimed(queue, 3000, kind=AGAIN)
    assert (new.id, new.attempts, new.trouble, new.unsure) == ("a", 2, LEFT_BEHIND, True)
    assert new.fence > old.fence
    for after in (complete(old), give_up(old, "no"), mark_ambiguous(old), postpone(old, "no", 3000, LETTER.retry, 1)):
        assert await queue.change(old, after) is None
    assert not await queue.extend(old, 99_000)
    assert await queue.extend(new, 99_000)
    assert await queue.claim(AGAIN, "ann", 98_000) is None
    assert await queue.change(new, complete(new, "well"))
    assert [(each.state, each.outcome) for each in await queue.recent()] == [("done", Raw('"well"'))]


async def test_what_may_have_happened_and_cannot_be_repeated_is_left_to_a_person(queue: JobQueue) -> None:
    await queue.add(job("a"))
    await queue.add(job("b"))
    await claimed(queue)
    assert (await claimed(queue, 3000)).id == "b"  # and the lane goes on
    kept = await queue.decide("a", lambda seen: request_retry(seen, 4000, "k"))
    assert (kept.state, kept.attempts) == ("waiting", 0)
    await queue.decide("b", complete)
    assert (await claimed(queue, 4000)).id == "a"


async def test_all_that_were_running_are_released_when_a_process_has_died(queue: JobQueue) -> None:
    for name, lane in (("a", "ann"), ("b", "bob"), ("c", "cid")):
        await queue.add(job(name, lane))
    old = [await claimed(queue, lane=lane) for lane in ("ann", "bob")]
    assert await queue.release(2001) == 2
    assert await queue.release(2001) == 0
    assert [each.state for each in await queue.recent()] == ["waiting", "retry", "retry"]
    assert await queue.change(old[0], complete(old[0])) is None
    assert await queue.claim(LETTER, "ann", 2001) is None
    assert [each.state for each in await queue.recent(states=("ambiguous",))] == ["ambiguous"]


async def test_one_that_kills_each_process_is_given_up_as_ambiguous(queue: JobQueue) -> None:
    kind = msgspec.structs.replace(AGAIN, retry=RetryPolicy(attempts=3))
    await queue.add(job("a"))
    lives = 0
    while await queue.claim(kind, "ann", 2000 + lives):
        lives += 1
        await queue.release(2000 + lives)
    assert lives == 3
    assert [each.state for each in await queue.recent()] == ["ambiguous"]


async def test_one_that_is_of_no_use_later_is_missed(queue: JobQueue) -> None:
    kind = msgspec.structs.replace(LETTER, missed_after_ms=60_000)
    await queue.add(job("a"))
    await queue.add(job("b", due_at=70_000))
    assert (await claimed(queue, 75_000, kind=kind)).id == "b"
    assert [(each.id, each.state) for each in await queue.recent(states=("missed",))] == [("a", "missed")]


async def test_a_handler_ends_its_job_with_its_effect_or_not_at_all(queue: JobQueue, database: Database) -> None:
    await queue.add(job("a"))
    held = await claimed(queue)

    def effect(tx: Transaction) -> bool:
        add_job(tx, job("b", "bob"))
        if not finish_job(tx, held, "added b"):
            raise BadRequest("too late")
        return True

    assert await database.write(effect)
    with pytest.raises(BadRequest):
        await database.write(effect)
    assert [(each.id, each.state) for each in await queue.recent()] == [("b", "waiting"), ("a", "done")]


async def test_lanes_that_have_something_to_do_and_when_there_is_more(queue: JobQueue) -> None:
    assert await queue.due(2000) == ([], None)
    for name, lane, due in (("a", "bob", 1), ("b", "ann", 1), ("c", "bob", 1), ("d", "cid", 5000)):
        await queue.add(job(name, lane, due_at=due))
    assert await queue.due(2000) == ([("letter", "bob"), ("letter", "ann")], 5000)
    await claimed(queue, 2000, "ann")
    assert await queue.due(2000) == ([("letter", "bob")], 3000)  # when its lease ends
    assert await queue.due(3000) == ([("letter", "bob"), ("letter", "ann")], 5000)


async def test_of_each_kind_so_many_lanes_are_found_and_none_hides_another(queue: JobQueue) -> None:
    for number in range(5):
        await queue.add(job(f"absent-{number}", f"lane-{number}", kind="absent", due_at=100 + number))
    await queue.add(job("deep-1", "lane-0", kind="absent", due_at=90))
    await queue.add(job("late", due_at=1900))
    lanes, _ = await queue.due(2000, 3)
    assert lanes == [("absent", "lane-0"), ("absent", "lane-1"), ("absent", "lane-2"), ("letter", "ann")]


async def test_a_job_that_is_not_due_yet_can_be_cancelled_and_added_again(queue: JobQueue, database: Database) -> None:
    async def cancel(name: str) -> bool:
        return await database.write(lambda tx: cancel_job(tx, "letter", f"key-{name}", 2000))

    await queue.add(job("soon", due_at=2001))
    await queue.add(job("now", due_at=2000))
    held = await claimed(queue)
    await queue.change(held, postpone(held, "busy", 2000, LETTER.retry, 500))
    assert [await cancel(name) for name in ("soon", "soon", "now", "unknown")] == [True, False, False, False]
    assert await queue.add(job("again", due_at=2001, idempotency_key="key-soon")) == await queue.find("again")


async def test_a_pause_is_as_long_as_its_kind_allows_before_it_is_taken_for_a_clock_that_was_set_back(
    queue: JobQueue,
) -> None:
    await queue.add(job("a", state="retry", due_at=2000 + 1_800_000))
    assert await queue.due(2000, longest={"letter": 3_600_000}) == ([], 1_802_000)
    assert await queue.due(2000) == ([("letter", "ann")], 1_802_000)


async def test_when_somebody_sets_the_clock_back_what_is_tried_again_does_not_wait_for_it(queue: JobQueue) -> None:
    year = 365 * 24 * 3600 * 1000
    await queue.add(job("a"))
    held = await claimed(queue, year)
    await queue.change(held, postpone(held, "busy", year, LETTER.retry, 500))
    assert await queue.due(2000) == ([("letter", "ann")], year + 500)
    assert (await claimed(queue, 2000)).attempts == 2


async def test_a_person_decides_once_and_only_about_what_is_not_done(queue: JobQueue) -> None:
    for name in ("ab", "abc", "abd"):
        await queue.add(job(name, name))
    assert (await queue.decide("abd", drop)).state == "dropped"
    assert (await queue.decide("abd", drop)).state == "dropped"
    assert (await queue.decide("ab", drop)).id == "ab"
    for which in ("a", "x", ""):
        with pytest.raises(NotFound):
            await queue.decide(which, drop)
    held = await claimed(queue, lane="abc")
    with pytest.raises(BadRequest, match="is running now and cannot be dropped"):
        await queue.decide("abc", drop)
    await queue.change(held, give_up(held, "no such place"))
    once = await queue.decide("abc", lambda seen: request_retry(seen, 3000, "k"))
    assert await queue.decide("abc", lambda seen: request_retry(seen, 9000, "k")) == once


async def test_they_are_listed_and_counted_by_kind_and_state(queue: JobQueue) -> None:
    for name, state in (("a", "done"), ("b", "failed"), ("c", "waiting"), ("d", "done")):
        await queue.add(job(name, state=state))
    await queue.add(job("e", kind="call"))
    assert [each.id for each in await queue.recent()] == ["e", "d", "c", "b", "a"]
    assert [each.id for each in await queue.recent(kinds=["letter"], states=["done"])] == ["d", "a"]
    assert [each.id for each in await queue.recent(limit=2)] == ["e", "d"]
    assert await queue.counts() == {
        ("call", "waiting"): 1, ("letter", "done"): 2, ("letter", "failed"): 1, ("letter", "waiting"): 1,
    }  # fmt: skip


async def test_only_what_has_ended_well_and_is_old_is_forgotten(queue: JobQueue) -> None:
    states = ("done", "dropped", "missed", "failed", "ambiguous", "waiting", "retry", "running")
    for state in states:
        await queue.add(job(state, state, state=state, added_at=10, due_at=10))
    await queue.add(job("new", state="done", added_at=10, due_at=20))  # of a yearly job: it was added long ago
    assert await queue.forget(20) == 3
    assert await queue.forget(20) == 0
    assert {each.id for each in await queue.recent()} == {*states[3:], "new"}


async def test_patterns_choose_kinds(queue: JobQueue) -> None:
    for name, kind in (("a", "delivery:net"), ("b", "delivery:post"), ("c", "deliver")):
        await queue.add(job(name, kind=kind))
    assert [each.id for each in await queue.recent(kinds=["delivery:*"])] == ["b", "a"]
    with pytest.raises(NotFound):
        await queue.decide("c", drop, "delivery:*")
    assert (await queue.decide("b", drop, "delivery:*")).id == "b"


async def test_a_job_and_what_follows_from_it_are_kept_together_and_the_first_outcome_stays(queue: JobQueue) -> None:
    await queue.add(job("a"))
    held = await claimed(queue)
    assert await queue.finish(held, "first", job("b", "bob")) == job("b", "bob")
    assert await queue.finish(held, "second", job("c", "bob")) is None
    kept = await queue.find("a")
    assert kept is not None
    assert (kept.state, kept.outcome) == ("done", Raw('"first"'))
    assert [each.id for each in await queue.recent()] == ["b", "a"]


async def test_a_job_ends_also_when_what_follows_finds_no_room(queue: JobQueue) -> None:
    for name in "xyz":
        await queue.add(job(name, "bob"))
    await queue.add(job("a"))
    failed = await queue.finish(await claimed(queue), None, job("b", "bob"), 3)
    assert failed is not None
    assert (failed.state, failed.trouble) == ("failed", "3 jobs of the kind letter already wait in the lane bob")
    assert await queue.recent(states=["failed"]) == [failed]
    assert [each.id for each in await queue.recent(states=["done"])] == ["a"]


def run(number: int, key: str = "") -> Job:
    inbound = Inbound(
        f"message {number}",
        key or f"k{number}",
        images=(Image("aGk=", "image/png"),),
        origin=Origin.OUTSIDE,
        reply_to=Delivery("telegram", "42", thread="9"),
    )
    return run_job(f"r{number}", SessionKey.main(), inbound, 1000 + number)


def result(number: int, text: str = "done") -> RunResult:
    return RunResult(f"r{number}", "agent:main:main", "s", "ok", text, "p/m", Usage(1, 2), duration_ms=5)


async def test_an_accepted_message_comes_back_as_it_was_and_is_open_until_it_has_its_result(queue: JobQueue) -> None:
    for number in (3, 1, 2):
        accepted = run(number)
        assert await queue.add(accepted, 0) is accepted
    assert await queue.finish(run(1), result(1)) is None
    assert await queue.open(RUN) == [run(3), run(2)]
    again = await queue.add(run(9, "k1"), 0)
    assert (again.id, result_of(again)) == ("r1", result(1))
    assert await queue.find("r9") is None


async def test_at_the_same_time_one_message_is_the_first(queue: JobQueue) -> None:
    accepted = await asyncio.gather(*(queue.add(run(number, "same"), 0) for number in range(20)))
    assert len({found.id for found in accepted}) == 1
    assert len(await queue.open(RUN)) == 1


async def test_a_run_that_is_taken_up_again_is_counted_and_ends_only_once(queue: JobQueue) -> None:
    accepted = await queue.add(run(1), 0)
    resumed = await queue.change(accepted, start_attempt(accepted, 0, 0))
    assert resumed is not None
    assert (resumed.attempts, resumed.state) == (2, "running")
    assert await queue.open(RUN) == [resumed]
    await queue.finish(accepted, result(1, "of a process that is no more"))
    assert await queue.open(RUN) == [resumed]
    await queue.finish(resumed, result(1))
    assert await queue.open(RUN) == []


async def test_runs_are_no_business_of_those_who_run_list_decide_or_forget_jobs(queue: JobQueue) -> None:
    await queue.add(run(1), 0)
    await queue.add(run(2), 0)
    await queue.finish(run(2), result(2))
    assert await queue.release(10**12) == 0
    assert await queue.due(10**12) == ([], None)
    assert await queue.recent() == []
    assert await queue.recent(kinds=["run"]) == []
    assert await queue.counts() == {}
    assert await queue.forget(10**12) == 0
    with pytest.raises(NotFound):
        await queue.decide("r1", drop)
    assert [each.id for each in await queue.open(RUN)] == ["r1"]


def test_what_may_have_happened_never_ends_as_failed() -> None:
    doubtful = mark_doubtful(job("a", state="running", attempts=1), "gone", 5)
    assert give_up(doubtful, "no").state == "ambiguous"
    assert postpone(msgspec.structs.replace(doubtful, attempts=9), "x", 5, RetryPolicy(attempts=9), 1).state == (
        "ambiguous"
    )
    assert give_up(job("a"), "no").state == "failed"
    assert mark_doubtful(job("a", retried_at=99), "gone", 5).unsure  # whatever the clock says
