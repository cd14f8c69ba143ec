"""The clock under load, in a real home on the disk: thousands of cron jobs that are due in one minute, and how long it
takes to find what is due next among a hundred thousand.

`stall` is the longest time that one callback kept the event loop for itself, in processor time of its thread; `late` is
how much later than asked a timer of 5 ms rang, which a busy machine adds to. One in ten of what is due is a run of the
agent; the others are reminders.

    python -m benchmarks.schedule
    python -m benchmarks.schedule --due 1000 --jobs 10000
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.events
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from msgspec.structs import replace

from benchmarks.figures import Figure, render
from benchmarks.model import loopback_model
from palinurus.config.home import find_home
from palinurus.domain.clock import SystemClock
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    CronDelivery,
    CronJob,
    DueTime,
    EverySchedule,
    Payload,
    ReminderPayload,
)
from palinurus.extensions.schedule.due import DUE_KIND
from palinurus.extensions.schedule.operations import list_cron_jobs, show_calendar, show_cron_status
from palinurus.extensions.schedule.store import DUE, save_cron_job
from palinurus.operations.services import Services
from palinurus.runtime.runtime import Runtime
from palinurus.storage.jobs import Job
from palinurus.storage.transaction import Transaction

HOUR, DAY = 3_600_000, 86_400_000
DUE_AT_ONCE, JOBS = 10_000, 100_000
SPREAD = 60_000  # milliseconds within which all are due
BATCH = 1000  # jobs in one commit
LOOKS = 300
RINGS = 0.005
ENDED = ("done", "failed", "missed", "dropped")


class ShiftedClock(SystemClock):
    """The machine's clock, set forward."""

    ahead = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead


class LoopWatch:
    """What the event loop of this process does while it is watched."""

    def __init__(self) -> None:
        self.stall = self.late = 0.0
        self.worst = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        plain, watch = asyncio.events.Handle._run, self  # noqa: SLF001

        def timed(handle: asyncio.events.Handle) -> None:
            what = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001  # a handle that has run has none
            began = time.thread_time()
            plain(handle)
            if (spent := time.thread_time() - began) > watch.stall:
                watch.stall, watch.worst = spent, _callback_name(what)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]  # noqa: SLF001
        ringing = asyncio.create_task(self._ring())
        try:
            yield
        finally:
            ringing.cancel()
            asyncio.events.Handle._run = plain  # type: ignore[method-assign]  # noqa: SLF001

    async def _ring(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(RINGS)
            self.late = max(self.late, time.perf_counter() - began - RINGS)


def _callback_name(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_name()}: {getattr(owner.get_coro(), '__qualname__', '')}"
    return getattr(callback, "__qualname__", repr(callback))


class StartedTimes:
    """Which due times were begun in which order, and how many were at work at once."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.going = self.most = 0

    async def act(self, services: Services, due: DueTime, job: Job) -> Any:
        self.begun.append(due.at)
        self.going += 1
        self.most = max(self.most, self.going)
        try:
            return await DUE_KIND.handler(services, due, job)
        finally:
            self.going -= 1

    @property
    def displacement(self) -> int:
        """How many places any due time was begun away from the place that it has in order of time."""
        places: dict[int, list[int]] = {}
        for place, at in enumerate(sorted(self.begun)):
            places.setdefault(at, []).append(place)
        return max(max(places[at][0] - place, place - places[at][-1], 0) for place, at in enumerate(self.begun))


class ClockBench:
    """A process that holds a home on the disk and stays."""

    def __init__(self, folder: Path, model: str) -> None:
        root = folder / "home"
        (root / "workspace").mkdir(parents=True)
        provider = {"baseUrl": model, "models": [{"id": "test", "contextWindow": 64_000}]}
        config = {
            "models": {"providers": {"bench": provider}},
            "agents": {"defaults": {"model": "bench/test"}},
            "memory": {"search": {"enabled": False}},
        }
        (root / "palinurus.json").write_text(json.dumps(config))
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PALINURUS_HOME": str(root)}
        self._runtime = Runtime(find_home(env), env, process="bench")
        self.clock = self.services.clock = ShiftedClock(UTC)

    @property
    def services(self) -> Services:
        return self._runtime.services

    async def open(self) -> None:
        self._runtime = Runtime(self.services.home, self.services.env, process="bench")
        self.services.clock = self.clock
        await self._runtime.recover()

    async def close(self) -> None:
        await self._runtime.close()

    async def add(self, count: int, first: int, *, turns: bool) -> None:
        """Jobs that are due once a day, the first times spread over a minute."""
        now, zone, services = self.clock.now_ms(), self.clock.zone, self.services

        def work(tx: Transaction, numbers: range) -> None:
            for number in numbers:
                anchor = first - DAY + number * 7919 % count * SPREAD // count
                payload: Payload = ReminderPayload(f"stretch {number}")
                if turns and number % 10 == 0:
                    payload = AgentTurnPayload(f"How is berth {number}?")
                schedule, delivery = EverySchedule(DAY, anchor), CronDelivery("none")
                job = CronJob(services.new_id(), "main", f"job {number}", schedule, payload, delivery=delivery)
                save_cron_job(tx, job, now, zone, services.new_id)

        for begin in range(0, count, BATCH):
            numbers = range(begin, min(begin + BATCH, count))
            await services.database.write(lambda tx, numbers=numbers: work(tx, numbers))  # type: ignore[misc]

    async def run_due(self, first: int) -> None:
        """Everything that is due in the minute that begins then."""
        self.clock.ahead += first - self.clock.now_ms() + SPREAD
        await self.services.jobs.look()
        while await self.open_rows(first + SPREAD):
            await asyncio.sleep(0.1)

    async def open_rows(self, until: int) -> int:
        def count(tx: Transaction) -> int:
            query = (
                "SELECT count(*) FROM jobs WHERE kind = ? AND due_at < ? AND state IN ('waiting', 'running', 'retry')"
            )
            return int(tx.execute(query, (DUE, until)).get)

        return await self.services.database.read(count)

    async def rows(self, since: int, until: int) -> dict[str, int]:
        def count(tx: Transaction) -> dict[str, int]:
            query = "SELECT state, count(*) FROM jobs WHERE kind = ? AND due_at >= ? AND due_at < ? GROUP BY state"
            return dict(tx.execute(query, (DUE, since, until)).fetchall())

        return await self.services.database.read(count)


def resident() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def due_at_once(bench: ClockBench, count: int) -> list[Figure]:
    """All are due within a minute that has just passed: the runner has as much to do as it can."""
    await bench.open()
    await bench.add(10, bench.clock.now_ms() + 2 * HOUR, turns=True)
    await bench.run_due(bench.clock.now_ms() + 2 * HOUR)  # what a process imports when it does its first work
    first = bench.clock.now_ms() + 2 * HOUR
    await bench.add(count, first, turns=True)
    before = resident()
    watch, started = LoopWatch(), StartedTimes()
    bench.services.jobs.offer(replace(DUE_KIND, handler=started.act))
    with watch.watching():
        began, spent = time.perf_counter(), time.process_time()
        await bench.run_due(first)
        seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    ended = await bench.rows(first, first + SPREAD)
    if ended != {"done": count}:
        raise SystemExit(f"of {count} due times there are rows {ended}")
    print(f"note: the longest callback: {watch.worst}", file=sys.stderr)
    print(f"note: memory grew by {resident() - before:.0f} MB", file=sys.stderr)
    name = f"{count:,} due in one minute"
    return [
        Figure(f"{name}: stall", watch.stall * 1000, {"late": watch.late * 1000}, 50),
        Figure(f"{name}: all ended", seconds, {"CPU": cpu}, unit="s"),
        Figure(f"{name}: at work at once", started.most, {}, DUE_KIND.at_once, unit=""),
        Figure(f"{name}: places out of order", started.displacement, {}, 2 * DUE_KIND.at_once, unit=""),
    ]


async def find_next(bench: ClockBench, count: int) -> list[Figure]:
    """Among so many that none is due yet."""
    await bench.add(count, bench.clock.now_ms() + 12 * HOUR, turns=False)
    watch, began = LoopWatch(), time.perf_counter()
    before = resident()
    with watch.watching():
        await bench.open()
        opened = time.perf_counter() - began
        services, took = bench.services, []
        at_first = resident()
        for _ in range(LOOKS):
            began = time.perf_counter()
            await services.jobs._queue.due(bench.clock.now_ms())  # noqa: SLF001  # what each look at the clock asks
            took.append((time.perf_counter() - began) * 1000)
        grown = resident() - at_first
        asked = {}
        for what, ask in (("status", show_cron_status), ("list", list_cron_jobs), ("calendar", show_calendar)):
            began = time.perf_counter()
            await ask(services)  # type: ignore[operator]
            asked[what] = (time.perf_counter() - began) * 1000
    print(f"note: the longest callback: {watch.worst}", file=sys.stderr)
    name = f"{count:,} jobs"
    return [
        Figure(f"{name}: next due, p50", median(took), {"p99": quantiles(took, n=100)[98]}, 1),
        Figure(f"{name}: the process starts", opened * 1000, {}),
        Figure(f"{name}: memory after the start", at_first - before, {}, unit="MB"),
        Figure(f"{name}: memory that {LOOKS} looks add", grown, {}, 1, unit="MB"),
        Figure(f"{name}: stall", watch.stall * 1000, {"late": watch.late * 1000}, 50),
        *(Figure(f"{name}: pal cron {what}, in the process", ms, {}) for what, ms in asked.items()),
    ]


async def measure(model: str, *, due: int, jobs: int) -> list[Figure]:
    figures = []
    for part, count in ((due_at_once, due), (find_next, jobs)):
        if count:
            with tempfile.TemporaryDirectory(prefix="pal-clock-") as folder:
                bench = ClockBench(Path(folder), model)
                try:
                    figures += await part(bench, count)
                finally:
                    await bench.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--due", type=int, default=DUE_AT_ONCE, help="how many are due in one minute")
    parser.add_argument("--jobs", type=int, default=JOBS, help="among how many the next is looked for")
    options = parser.parse_args()
    os.environ.pop("PALINURUS_HOME", None)
    with loopback_model() as url:
        print(render(asyncio.run(measure(url, due=options.due, jobs=options.jobs))))


if __name__ == "__main__":
    main()
