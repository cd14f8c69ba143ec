"""Garbage is swept a little at a time, and what was put aside still goes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from palinurus.runtime import garbage

WAIT_SECONDS = 60.0


class Thing:
    """One that may stand in a circle."""

    other: Thing | None = None


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.001)
    before = gc.get_threshold()
    yield
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


async def until_gone(seen: weakref.ref[Thing]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while seen() is not None:
            keep = [[] for _ in range(gc.get_threshold()[0])]  # new things make a sweep due
            del keep
            gc.collect(1)
            await asyncio.sleep(0)


def circle() -> weakref.ref[Thing]:
    one, two = Thing(), Thing()
    one.other, two.other = two, one
    return weakref.ref(one)


async def test_a_circle_that_came_since_the_last_sweep_is_swept_away() -> None:
    async with garbage.collecting_garbage(lambda: False):
        await until_gone(circle())


async def test_a_thing_that_was_put_aside_goes_with_its_last_reference() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    async with garbage.collecting_garbage(lambda: False):
        assert gc.get_freeze_count() > 0
        del thing
        assert seen() is None


async def test_circles_among_what_was_put_aside_go_when_nothing_runs_and_not_before() -> None:
    one, two = Thing(), Thing()
    one.other, two.other = two, one
    seen = weakref.ref(one)
    busy, looks = True, 0

    def idle() -> bool:
        nonlocal looks
        looks += 1
        return not busy

    async with garbage.collecting_garbage(idle, whole_seconds=0):
        del one, two
        async with asyncio.timeout(WAIT_SECONDS):
            while looks < 3:
                await asyncio.sleep(0)
        assert seen() is not None
        busy = False
        await until_gone(seen)
