"""Jobs: committed first, one at a time in a lane, tried again while that is harmless, and whole after every crash.

On virtual time: hours of waiting cost nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest
from msgspec import Raw, Struct

from palinurus.dispatch.jobs import KEPT_MS, Jobs
from palinurus.domain.errors import BadRequest, JobFailed, JobRefused, NotFound, StorageFull
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.jobs import Job, JobKind, JobQueue, RetryPolicy, add_job, finish_job
from palinurus.storage.transaction import Transaction
from palinurus.testing.fakes import SeededIds
from support.virtual import VirtualClock, run_virtually

HOUR = 3600


class Note(Struct, frozen=True):
    text: str


class Office:
    """A home's jobs of the kind `note`, on virtual time. A new `Jobs` on it is a new process."""

    def __init__(self, **kind: Any) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.database = MemoryDatabase()
        self.ids = SeededIds()
        self.written: list[str] = []
        self.at_work = self.most_at_work = 0
        self.troubles: dict[str, list[Exception]] = {}
        self.kinds = {"note": JobKind("note", Note, self.write, **kind)}
        self.again()

    def again(self, queue: JobQueue | None = None) -> Jobs:
        self.queue = queue or JobQueue(self.database)
        self.jobs = Jobs(
            self.queue, self.clock, self.ids, lambda: 0.5, self.kinds.get, self,
            redact=lambda text: text.replace("s3cret", "…"),
        )  # fmt: skip
        self.jobs.grace_seconds = 0
        return self.jobs

    async def write(self, services: Any, note: Note, _: Job) -> str:
        assert services is self
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await asyncio.sleep(1)
            if self.troubles.get(note.text):
                raise self.troubles[note.text].pop(0)
        finally:
            self.at_work -= 1
        self.written.append(note.text)
        return f"wrote {note.text}"

    async def wants(self, *texts: str, lane: str = "ann", due_at: int = 0) -> list[Job]:
        return [await self.jobs.add("note", Note(text), text, lane=lane, due_at=due_at) for text in texts]

    async def states(self) -> dict[str, str]:
        return {each.idempotency_key: each.state for each in await self.queue.recent()}

    async def until(self, holds: Callable[[dict[str, str]], bool]) -> None:
        async with asyncio.timeout(100 * 24 * HOUR):
            while not holds(await self.states()):
                await asyncio.sleep(10)


def virtually(test: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        run_virtually(test)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtually
async def test_each_attempt_finds_what_all_before_it_have_done() -> None:
    """Or a part of a reply that was sent is sent again (promise 3)."""
    office, sent = Office(), list[str]()

    async def send(_: Any, note: Note, job: Job) -> None:
        done = msgspec.json.decode(job.outcome, type=list[str]) if job.outcome else []
        for part in note.text.split()[len(done) :]:
            sent.append(part)
            done.append(part)
            await office.jobs.note_progress(job.id, job.fence, done)
            await asyncio.sleep(5)  # the lease is extended meanwhile
            raise JobFailed("the network is down")

    office.kinds["note"] = JobKind("note", Note, send, lease_ms=3000, retry=RetryPolicy(attempts=5))
    await office.jobs.start()
    await office.wants("one two three four")
    await office.until(lambda states: states["one two three four"] in ("done", "failed"))
    await office.jobs.close()
    assert sent == ["one", "two", "three", "four"]


@virtually
async def test_a_lane_is_served_in_order_and_lanes_side_by_side() -> None:
    office = Office(at_once=2)
    await office.jobs.start()
    for lane in ("ann", "bob", "cid"):
        await office.wants(f"1 {lane}", f"2 {lane}", lane=lane)
    await office.jobs.idle()
    assert office.most_at_work == 2
    for lane in ("ann", "bob", "cid"):
        assert [text for text in office.written if lane in text] == [f"1 {lane}", f"2 {lane}"]
    assert set((await office.states()).values()) == {"done"}
    assert (await office.queue.recent())[-1].outcome == Raw('"wrote 1 ann"')


@virtually
async def test_the_same_key_is_the_same_job_and_is_done_once() -> None:
    office = Office()
    await office.jobs.start()
    first = await office.wants("a")
    await office.jobs.idle()
    again = await office.wants("a")
    await office.jobs.idle()
    assert again[0].id == first[0].id
    assert office.written == ["a"]


@virtually
async def test_what_is_due_tomorrow_is_done_tomorrow_also_by_another_process() -> None:
    office = Office()
    await office.jobs.start()
    began = office.clock.now_ms()
    await office.wants("b", due_at=began + 48 * HOUR * 1000)
    await office.wants("a", due_at=began + 24 * HOUR * 1000, lane="bob")
    await office.until(lambda states: states["a"] == "done")
    assert 24 * HOUR * 1000 <= office.clock.now_ms() - began < 25 * HOUR * 1000
    await office.jobs.close()
    await office.again().start()
    await office.until(lambda states: states["b"] == "done")
    assert office.written == ["a", "b"]
    await office.jobs.close()


@virtually
async def test_what_has_certainly_not_happened_is_tried_again_and_nobody_overtakes_it() -> None:
    office = Office()
    office.troubles["a"] = [JobFailed("no s3cret line"), JobFailed("busy", retry_after=300)]
    await office.jobs.start()
    await office.wants("a", "b")
    await office.until(lambda states: set(states.values()) == {"done"})
    assert office.written == ["a", "b"]
    assert [each.attempts for each in await office.queue.recent()] == [1, 3]
    await office.jobs.close()


@virtually
async def test_how_an_attempt_ends_says_what_becomes_of_it() -> None:
    office = Office(retry=RetryPolicy(attempts=2), seconds=30)
    office.troubles = {"refused": [JobRefused("no s3cret place")], "broken": [OSError("cut")]}
    office.troubles["busy"] = [JobFailed("busy"), JobFailed("busy")]
    await office.jobs.start()
    for text in ("refused", "broken", "busy"):
        await office.wants(text, lane="")
    await office.until(lambda states: {"waiting", "running", "retry"}.isdisjoint(states.values()))
    assert await office.states() == {"refused": "failed", "broken": "ambiguous", "busy": "failed"}
    troubles = {each.idempotency_key: each.trouble for each in await office.queue.recent()}
    assert troubles["refused"] == "no … place"
    assert troubles["busy"] == "given up after 2 attempts: busy"
    broken = next(each for each in await office.queue.recent() if each.idempotency_key == "broken")
    await office.jobs.retry(broken.id, "k")
    await office.jobs.idle()
    assert (await office.states())["broken"] == "done"
    await office.jobs.close()


@virtually
async def test_one_that_takes_too_long_is_in_doubt_and_a_lease_is_extended_while_it_goes_on() -> None:
    office = Office(seconds=600, lease_ms=3000)

    async def sleep_long(_: Any, note: Note, __: Job) -> None:
        await asyncio.sleep(60 if note.text == "long" else 6000)

    office.kinds["note"] = msgspec.structs.replace(office.kinds["note"], handler=sleep_long)
    await office.jobs.start()
    await office.wants("long", "endless")
    await asyncio.sleep(30)
    other = JobQueue(office.database)  # of another process
    assert await other.claim(office.kinds["note"], "ann", office.clock.now_ms()) is None
    await office.jobs.idle()
    assert await office.states() == {"long": "done", "endless": "ambiguous"}
    await office.jobs.close()


@virtually
async def test_a_kind_that_nobody_offers_is_refused_and_what_waits_of_it_stays() -> None:
    office = Office()
    await office.jobs.start()
    with pytest.raises(NotFound, match="there is no handler for jobs of the kind 'call'"):
        await office.jobs.add("call", {}, "k")
    with pytest.raises(BadRequest, match="payload"):
        await office.jobs.add("note", {"txt": 1}, "k")
    with pytest.raises(BadRequest, match="idempotency"):
        await office.jobs.add("note", Note("a"), "")
    kind = office.kinds.pop("note")
    await office.queue.add(Job("j", "note", "ann", "a", Raw('{"text": "a"}')))
    await office.queue.add(Job("k", "note", "ann", "bad", Raw('{"txt": "a"}')))
    await office.again().start()
    await office.jobs.idle()
    assert await office.states() == {"a": "waiting", "bad": "waiting"}
    office.kinds["note"] = kind
    await office.jobs.look()
    await office.jobs.idle()
    assert await office.states() == {"a": "done", "bad": "failed"}


@virtually
async def test_an_extension_that_cannot_be_loaded_holds_up_nobody_else() -> None:
    office = Office()
    await office.queue.add(Job("j", "broken", "ann", "a", Raw("null")))
    await office.queue.add(Job("k", "note", "ann", "b", Raw('{"text": "b"}')))
    kinds = office.kinds

    def find(name: str) -> JobKind | None:
        if name == "broken":
            raise ImportError("no such module")
        return kinds.get(name)

    office.jobs = Jobs(office.queue, office.clock, office.ids, lambda: 0.5, find, office)
    await office.jobs.start()
    await office.jobs.idle()
    assert await office.states() == {"a": "waiting", "b": "done"}


@virtually
async def test_a_full_disk_is_waited_for() -> None:
    office = Office()
    await office.jobs.start()
    await office.wants("a")
    office.database.failure = StorageFull("no room")
    await asyncio.sleep(60)
    office.database.failure = None
    await office.jobs.idle()
    assert (office.written, await office.states()) == (["a"], {"a": "done"})


@virtually
async def test_what_was_done_long_ago_is_forgotten_at_a_start() -> None:
    office = Office()
    await office.jobs.start()
    await office.wants("a")
    await office.jobs.idle()
    await asyncio.sleep(KEPT_MS / 1000 + HOUR)
    await office.again().start()
    assert await office.states() == {}


@virtually
async def test_what_is_due_by_the_thousand_is_done_in_the_order_of_its_due_times_and_so_many_at_once() -> None:
    office = Office(at_once=5)
    numbers = list(range(2000))
    random.Random(5).shuffle(numbers)
    began = office.clock.now_ms()
    for number in numbers:
        note = Raw(msgspec.json.encode(Note(str(number))))
        await office.queue.add(Job(f"j{number}", "note", f"lane-{number}", str(number), note, due_at=began + number))
        absent = Job(f"a{number}", "absent", f"lane-{number}", str(number), Raw("null"), due_at=began - number)
        await office.queue.add(absent)
    most_tasks = 0

    async def write(_: Any, note: Note, __: Job) -> None:
        nonlocal most_tasks
        office.written.append(note.text)
        office.at_work += 1
        most_tasks = max(most_tasks, len(asyncio.all_tasks()))
        office.most_at_work = max(office.most_at_work, office.at_work)
        await asyncio.sleep(int(note.text) % 3 / 1000)
        office.at_work -= 1

    office.kinds["note"] = msgspec.structs.replace(office.kinds["note"], handler=write)
    await asyncio.sleep(10)
    await office.jobs.start()
    await office.jobs.idle()
    assert office.written == list(map(str, range(2000)))
    assert office.most_at_work == 5
    assert most_tasks < 30  # two for each that is at work, one for each that waits next, and this one
    await office.jobs.close()


@virtually
async def test_many_that_come_at_once_wait_in_the_queue_and_not_as_tasks() -> None:
    office = Office(at_once=3)
    await office.jobs.start()
    for number in range(200):
        await office.wants(f"{number:03}", lane=f"lane-{number}")
    assert len(asyncio.all_tasks()) < 20
    await office.jobs.idle()
    assert sorted(office.written) == [f"{number:03}" for number in range(200)]
    assert office.most_at_work == 3
    await office.jobs.close()


@virtually
async def test_a_lane_with_much_to_do_does_not_hold_up_the_others() -> None:
    office = Office(at_once=1)
    began = office.clock.now_ms()
    for number in range(60):
        note = Raw(msgspec.json.encode(Note(f"deep {number}")))
        await office.queue.add(Job(f"d{number}", "note", "deep", f"d{number}", note, due_at=began))
    for number in range(10):
        note = Raw(msgspec.json.encode(Note(f"other {number}")))
        await office.queue.add(Job(f"o{number}", "note", f"o{number}", f"o{number}", note, due_at=began + 1))
    await asyncio.sleep(1)
    await office.jobs.start()
    await office.jobs.idle()
    others = [place for place, text in enumerate(office.written) if text.startswith("other")]
    assert len(office.written) == 70
    assert others[-1] < 40
    await office.jobs.close()


class Counted(JobQueue):
    looks = 0

    async def due(self, *args: Any) -> Any:
        self.looks += 1
        return await super().due(*args)


@virtually
async def test_what_will_be_due_later_costs_no_look_at_the_queue() -> None:
    office = Office()
    queue = Counted(office.database)
    await office.again(queue).start()
    began = office.clock.now_ms()
    for number in range(100):
        await office.wants(f"{number}", lane=f"lane-{number}", due_at=began + 30_000)
    assert queue.looks == 1
    await asyncio.sleep(29)
    await office.wants("earlier", due_at=began + 29_500)
    await asyncio.sleep(0.6)
    assert office.at_work == 1
    await asyncio.sleep(3)
    assert len(office.written) == 17  # twice eight of them, and the one before
    assert queue.looks < 8
    await office.jobs.close()


@virtually
async def test_a_process_that_stays_forgets_every_day_what_was_due_long_ago() -> None:
    office = Office()
    await office.jobs.start()
    await office.wants("a")
    await office.wants("yearly", due_at=office.clock.now_ms() + 365 * 24 * HOUR * 1000)
    await office.jobs.idle()
    office.clock.set_by(KEPT_MS / 1000 - HOUR)
    await asyncio.sleep(HOUR / 2)
    assert await office.states() == {"a": "done", "yearly": "waiting"}
    await asyncio.sleep(25 * HOUR)
    assert await office.states() == {"yearly": "waiting"}
    office.clock.set_by(365 * 24 * HOUR)
    await asyncio.sleep(26 * HOUR)
    assert await office.states() == {"yearly": "done"}
    await office.jobs.close()


@virtually
async def test_what_was_added_late_for_a_due_time_long_ago_is_kept_as_long_as_everything_else() -> None:
    office = Office()
    await office.jobs.start()
    await office.wants("caught up", due_at=office.clock.now_ms() - 2 * KEPT_MS)
    await office.wants("yearly", due_at=office.clock.now_ms() + 365 * 24 * HOUR * 1000)
    await office.jobs.idle()
    await asyncio.sleep(25 * HOUR)
    assert await office.states() == {"caught up": "done", "yearly": "waiting"}
    await asyncio.sleep(KEPT_MS / 1000)
    assert await office.states() == {"yearly": "waiting"}
    await office.jobs.close()


class Power(JobQueue):
    """Goes out at one call, before it is committed or after: from then on this process does nothing more."""

    def __init__(self, office: Office, call: str, when: Literal["before", "after"]) -> None:
        super().__init__(office.database)
        self._at = call, when
        self.out = asyncio.Event()

    async def go_out(self, call: str, when: str) -> None:
        if (call, when) == self._at:
            self.out.set()
        if self.out.is_set():
            await asyncio.Event().wait()

    async def claim(self, kind: JobKind, lane: str, now: int) -> Job | None:
        await self.go_out("claim", "before")
        held = await super().claim(kind, lane, now)
        await self.go_out("claim", "after")
        return held

    async def settle(self, kind: JobKind, seen: Job, after: Job, now: int) -> tuple[Job | None, bool]:
        await self.go_out("finish", "before")
        kept = await super().settle(kind, seen, after, now)
        await self.go_out("finish", "after")
        return kept


STEPS = [(call, when) for call in ("claim", "effect", "finish") for when in ("before", "after")]


async def lives(call: str, when: Literal["before", "after"], *, committed: bool, **kind: Any) -> Office:
    """A process that dies at this step of the first of two jobs, and one that takes up what it left."""
    office = Office(**kind)
    power: Power | None = Power(office, call, when)

    async def effect(_: Any, note: Note, job: Job) -> str:
        if power is not None:
            await power.go_out("effect", "before")
        if committed:

            def work(tx: Transaction) -> None:
                if finish_job(tx, job, "together"):
                    add_job(tx, Job(office.ids(), "effect", "all", office.ids(), Raw(msgspec.json.encode(note.text))))

            await office.database.write(work)
        else:
            office.written.append(note.text)
        if power is not None:
            await power.go_out("effect", "after")
        return "apart"

    office.kinds["note"] = msgspec.structs.replace(office.kinds["note"], handler=effect)
    await office.again(power).start()
    await office.wants("a", "b")
    await power.out.wait()
    await office.jobs.close()  # with no grace: nothing of it is written any more
    power = None
    await office.again().start()
    await office.until(lambda states: {"waiting", "running", "retry"}.isdisjoint([states["a"], states["b"]]))
    await office.jobs.close()
    if committed:
        office.written = [msgspec.json.decode(each.payload) for each in await office.queue.recent(kinds=["effect"])]
    return office


@pytest.mark.parametrize(("call", "when"), STEPS)
def test_what_can_be_repeated_is_done_at_least_once_whenever_a_process_dies(call: str, when: Any) -> None:
    async def life() -> None:
        office = await lives(call, when, committed=False, on_crash="retry")
        assert await office.states() == {"a": "done", "b": "done"}
        assert office.written.count("b") == 1
        assert office.written.count("a") == (2 if (call, when) in (("effect", "after"), ("finish", "before")) else 1)

    run_virtually(life)


@pytest.mark.parametrize(("call", "when"), STEPS)
def test_what_cannot_be_repeated_is_never_doubled_or_lost_in_silence(call: str, when: Any) -> None:
    async def life() -> None:
        office = await lives(call, when, committed=False)
        states = await office.states()
        is_known = (call, when) in (("claim", "before"), ("finish", "after"))
        assert states == {"a": "done" if is_known else "ambiguous", "b": "done"}
        assert office.written.count("a") <= 1
        assert office.written.count("a") == 1 or states["a"] == "ambiguous"
        assert office.written.count("b") == 1

    run_virtually(life)


@pytest.mark.parametrize(("call", "when"), STEPS)
def test_an_effect_that_is_committed_with_its_end_happens_once_whenever_a_process_dies(call: str, when: Any) -> None:
    async def life() -> None:
        office = await lives(call, when, committed=True, on_crash="retry")
        assert sorted(office.written) == ["a", "b"]

    run_virtually(life)


class Lives:
    """Processes that die one after the other at moments that chance chooses, and what all of them did."""

    def __init__(self, seed: int, queue: type[JobQueue] = JobQueue) -> None:
        self.chance = random.Random(seed)  # a life must repeat
        self.office = Office(at_once=2, lease_ms=3000, retry=RetryPolicy(attempts=10_000, age_ms=10**12))
        self.make_queue = queue
        self.begun: list[str] = []
        self.lanes: dict[str, int] = {}
        repeatable = msgspec.structs.replace(
            self.office.kinds["note"], name="again", on_crash="retry", handler=self.handle
        )
        self.office.kinds = {
            "again": repeatable,
            "note": msgspec.structs.replace(repeatable, name="note", on_crash="ambiguous"),
            "kept": msgspec.structs.replace(repeatable, name="kept", handler=self.commit),
        }

    async def handle(self, _: Any, note: Note, job: Job) -> str:
        lane = f"{job.kind} {job.lane}"
        assert self.lanes.get(lane, 0) == 0, "two at once in a lane"
        self.lanes[lane] = 1
        try:
            self.begun.append(note.text)
            await asyncio.sleep(self.chance.choice([0, 0.1, 2, 5]))
            if self.chance.random() < 0.2:
                self.begun.remove(note.text)
                raise JobFailed("busy")
        finally:
            self.lanes[lane] = 0
        return note.text

    async def commit(self, _: Any, note: Note, job: Job) -> None:
        await asyncio.sleep(self.chance.choice([0, 0.1, 2]))

        def work(tx: Transaction) -> None:
            if finish_job(tx, job, note.text):
                add_job(tx, Job(self.office.ids(), "effect", "all", self.office.ids(), job.payload))

        await self.office.database.write(work)

    async def live(self) -> None:
        office, chance = self.office, self.chance
        wanted: list[str] = []
        for life in range(6):
            await office.again(self.make_queue(office.database)).start()
            for number in range(chance.randrange(5)):
                kind = chance.choice(["again", "note", "kept"])
                text = f"{kind} {life}.{number}"
                due = office.clock.now_ms() + chance.choice([0, 0, 500, 5000])
                await office.jobs.add(kind, Note(text), text, lane=chance.choice("ab"), due_at=due)
                wanted.append(text)
            await asyncio.sleep(chance.choice([0.01, 0.5, 3, 20]))
            await office.jobs.close()  # with no grace: as if it were killed
        await office.again(self.make_queue(office.database)).start()
        kinds = ("again", "note", "kept")

        async with asyncio.timeout(30 * 24 * HOUR):
            while any(job.state in ("waiting", "running", "retry") for job in await office.queue.recent(kinds=kinds)):
                await asyncio.sleep(10)
        await office.jobs.close()
        await self.judge(wanted)

    async def judge(self, wanted: list[str]) -> None:
        jobs = {job.idempotency_key: job for job in await self.office.queue.recent(kinds=("again", "note", "kept"))}
        effects = [each.payload for each in await self.office.queue.recent(kinds=["effect"], limit=1000)]
        kept = sorted(msgspec.json.decode(each, type=Note).text for each in effects)
        assert sorted(jobs) == sorted(wanted), "nothing is lost or doubled"
        assert kept == sorted(text for text in wanted if text.startswith("kept")), "exactly once"
        for text, job in jobs.items():
            if job.kind == "again":
                assert job.state == "done"
                assert self.begun.count(text) >= 1
            if job.kind == "note":
                assert job.state in ("done", "ambiguous")
                assert self.begun.count(text) <= 1
                assert job.state == "ambiguous" or self.begun.count(text) == 1


@pytest.mark.parametrize("seed", range(60))
def test_whenever_processes_die_nothing_is_lost_or_doubled_in_silence(seed: int) -> None:
    async def life() -> None:
        await Lives(seed).live()

    run_virtually(life)


class NoDoubt(JobQueue):
    """Takes what was being done for not begun."""

    async def release(self, now: int) -> int:
        left = await self.recent(states=("running",))
        for job in left:
            await self.change(job, msgspec.structs.replace(job, state="waiting"))
        return len(left)


class Forgetful(JobQueue):
    """Takes what was being done for done."""

    async def release(self, now: int) -> int:
        left = await self.recent(states=("running",))
        for job in left:
            await self.change(job, msgspec.structs.replace(job, state="done"))
        return len(left)


@pytest.mark.parametrize("bug", [NoDoubt, Forgetful])
def test_a_planted_bug_is_found(bug: type[JobQueue]) -> None:
    def fails(seed: int) -> bool:
        async def life() -> None:
            await Lives(seed, bug).live()

        try:
            run_virtually(life)
        except AssertionError:
            return True
        return False

    assert any(fails(seed) for seed in range(60))
