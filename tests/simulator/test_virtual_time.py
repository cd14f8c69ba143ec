"""Virtual time: waiting costs nothing, order is kept, and waiting for ever is found out."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from palinurus.testing.fakes import START
from support.virtual import Deadlock, VirtualClock, run_virtually


def test_a_week_of_sleep_takes_no_real_time_and_a_week_of_the_loops() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(7 * 86_400)
        return loop.time() - began

    began = time.perf_counter()
    assert run_virtually(main) == pytest.approx(7 * 86_400)
    assert time.perf_counter() - began < 60


def test_sleepers_wake_in_the_order_of_their_alarms() -> None:
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    async def main() -> None:
        await asyncio.gather(*map(sleeper, (30, 0.5, 3600, 7, 0)))

    run_virtually(main)
    assert woken == [0, 0.5, 7, 30, 3600]


def test_a_limit_that_runs_out_ends_the_wait() -> None:
    async def main() -> None:
        async with asyncio.timeout(120):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_virtually(main)


def test_waiting_for_what_never_comes_is_a_deadlock_and_no_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="nothing is scheduled"):
        run_virtually(main)


def test_work_for_threads_is_done_on_the_spot_and_its_error_reaches_who_waits() -> None:
    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(threading.get_ident)

    assert run_virtually(main) == threading.get_ident()


def test_the_wall_clock_follows_the_loop_and_can_be_set_without_waking_anyone() -> None:
    async def main() -> list[int]:
        clock = VirtualClock(asyncio.get_running_loop())
        first = clock.now_ms()
        await asyncio.sleep(90)
        second = clock.now_ms()
        clock.set_by(-3600)
        return [first, second - first, clock.now_ms() - second]

    assert run_virtually(main) == [int(START.timestamp() * 1000), 90_000, -3_600_000]
