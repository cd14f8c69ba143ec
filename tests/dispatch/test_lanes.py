"""Lanes: one at a time in a session, so many in the house, and nobody takes the next one with him."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from palinurus.dispatch.lanes import Lanes
from palinurus.domain.errors import QueueFull


class Watch:
    """Jobs that wait for a gate, and a record of who ran beside whom."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.order: list[str] = []
        self.broken: list[str] = []
        self.running: set[str] = set()
        self.most = 0
        self.gate = asyncio.Event()

    def start(self, key: str, name: str, fails: BaseException | None = None) -> None:
        self.lanes.start(key, self._job(key, name, fails), lambda error: self.broken.append(f"{name}: {error}"), "main")

    def _job(self, key: str, name: str, fails: BaseException | None) -> Callable[[], Awaitable[None]]:
        async def job() -> None:
            assert key not in self.running, "two turns at once in one session"
            self.running.add(key)
            self.most = max(self.most, len(self.running))
            try:
                await self.gate.wait()
                self.order.append(name)
                if fails is not None:
                    raise fails
            finally:
                self.running.discard(key)

        return job

    async def finish(self) -> None:
        self.gate.set()
        await asyncio.wait_for(self.lanes.idle(), 60)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_in_one_session_turns_run_one_after_the_other_in_order() -> None:
    watch = Watch(Lanes(at_once=8))
    for name in "abcde":
        watch.start("s", name)
    await settle()
    assert watch.most == 1
    await watch.finish()
    assert watch.order == list("abcde")


async def test_sessions_run_beside_each_other_up_to_the_cap_of_the_house() -> None:
    watch = Watch(Lanes(at_once=3))
    for name in "abcdefgh":
        watch.start(name, name)
    await settle()
    assert len(watch.running) == 3
    assert watch.lanes.busy == 8
    await watch.finish()
    assert watch.most == 3
    assert sorted(watch.order) == list("abcdefgh")
    assert watch.lanes.busy == 0


async def test_a_full_lane_says_so_and_other_lanes_stay_open() -> None:
    watch = Watch(Lanes(at_once=1, cap=2))
    for name in "ab":
        with watch.lanes.place("s"):
            pass
        watch.start("s", name)
    with pytest.raises(QueueFull, match="2 messages already wait in s") as full, watch.lanes.place("s"):
        pass
    assert full.value.hint
    with watch.lanes.place("other"):
        pass
    await watch.finish()
    with watch.lanes.place("s"):
        pass


@pytest.mark.parametrize("failure", [RuntimeError("boom"), asyncio.CancelledError("a future was cancelled")])
async def test_a_turn_that_breaks_does_not_take_the_next_one_with_it(failure: BaseException) -> None:
    watch = Watch(Lanes(at_once=1))
    watch.start("s", "bad", fails=failure)
    watch.start("s", "good")
    await watch.finish()
    assert watch.order == ["bad", "good"]
    assert watch.broken == [f"bad: {failure}"]


async def test_a_lane_that_has_emptied_can_be_used_again() -> None:
    watch = Watch(Lanes(at_once=1))
    watch.start("s", "a")
    await watch.finish()
    watch.start("s", "b")
    await watch.finish()
    assert watch.order == ["a", "b"]


async def test_cancelling_drops_what_waits_and_what_runs() -> None:
    watch = Watch(Lanes(at_once=1))
    watch.start("s", "a")
    watch.start("s", "b")
    await settle()
    await asyncio.wait_for(watch.lanes.cancel(), 60)
    assert watch.order == []
