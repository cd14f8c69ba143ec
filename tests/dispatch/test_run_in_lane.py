"""Errands: short work in a lane, between two turns, done once and waited for within bounds."""

from __future__ import annotations

import asyncio

import pytest

from palinurus.dispatch.lanes import Lanes, run_in_lane
from palinurus.domain.errors import NotFound, QueueFull, WaitTimeout

WAIT = 60.0


class Turn:
    """A turn that goes on until it is let go."""

    def __init__(self, lanes: Lanes) -> None:
        self.gate = asyncio.Event()
        self.over = False
        lanes.start("a", self.work, lambda _: None)

    async def work(self) -> None:
        await self.gate.wait()
        self.over = True


async def test_short_work_waits_for_the_turn_before_it_and_gives_its_result() -> None:
    lanes = Lanes(at_once=1)
    turn = Turn(lanes)

    async def work() -> bool:
        return turn.over

    task = asyncio.create_task(run_in_lane(lanes, "a", work))
    await asyncio.sleep(0)
    assert not task.done()
    turn.gate.set()
    assert await asyncio.wait_for(task, WAIT) is True


async def test_short_work_of_another_session_needs_no_place_in_a_full_house() -> None:
    lanes = Lanes(at_once=1)
    turn = Turn(lanes)

    async def work() -> str:
        return "done"

    assert await asyncio.wait_for(run_in_lane(lanes, "b", work), WAIT) == "done"
    turn.gate.set()
    await lanes.idle()


async def test_what_the_work_raises_is_raised_and_the_lane_goes_on() -> None:
    lanes = Lanes(at_once=1)

    async def missing() -> None:
        raise NotFound("nobody")

    async def broken() -> None:
        raise ValueError("ours")

    with pytest.raises(NotFound):
        await run_in_lane(lanes, "a", missing)
    with pytest.raises(ValueError, match="ours"):
        await run_in_lane(lanes, "a", broken)
    await asyncio.wait_for(lanes.idle(), WAIT)


async def test_who_waits_too_long_is_told_and_the_work_is_done_later() -> None:
    lanes = Lanes(at_once=1)
    turn = Turn(lanes)
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    with pytest.raises(WaitTimeout, match="busy"):
        await run_in_lane(lanes, "a", work, timeout=0)
    turn.gate.set()
    await asyncio.wait_for(done.wait(), WAIT)
    await lanes.idle()


async def test_short_work_whose_asker_has_gone_is_done_all_the_same() -> None:
    lanes = Lanes(at_once=1)
    turn = Turn(lanes)
    done = asyncio.Event()

    async def work() -> None:
        done.set()
        raise NotFound("and nobody hears it")

    asker = asyncio.create_task(run_in_lane(lanes, "a", work))
    await asyncio.sleep(0)
    asker.cancel()
    turn.gate.set()
    await asyncio.wait_for(done.wait(), WAIT)
    await lanes.idle()


async def test_a_full_lane_takes_no_more_work() -> None:
    lanes = Lanes(at_once=1, cap=1)
    turn = Turn(lanes)

    async def work() -> None: ...

    with pytest.raises(QueueFull):
        await run_in_lane(lanes, "a", work)
    turn.gate.set()
    await lanes.idle()
