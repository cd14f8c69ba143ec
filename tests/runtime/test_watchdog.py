"""A callback that holds the event loop is told with its stack; many small ones, and waiting, are not."""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from palinurus.config.home import Home
from palinurus.operations.logs import LogFilter, read_logs
from palinurus.runtime.logs import Logs
from palinurus.runtime.watchdog import CLOSE_SECONDS, IDLE_SECONDS, LIMIT_SECONDS, Watchdog, stack_of
from palinurus.testing.loop_time import excuse


class Processor:
    """Processor time that a test holds in its hand."""

    def __init__(self) -> None:
        self.used = 0.0

    def __call__(self) -> float:
        return self.used


class Scene:
    """A watchdog that looks when it is told to, from inside the callback that it looks at."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.cpu = Processor()
        self.queued = Processor()
        self.dog = Watchdog(asyncio.get_running_loop(), cpu=self.cpu, queued=self.queued)

    def look(self, used: float, *, overslept: float = 0.0) -> float:
        self.cpu.used += used
        return self.dog.look(self.now, overslept=overslept)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def next_round() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_callback_that_goes_on_past_the_limit_is_counted_once(scene: Scene) -> None:
    scene.look(0.01)
    scene.look(LIMIT_SECONDS * 0.9)
    assert scene.dog.slow == 0
    for _ in range(5):
        scene.look(LIMIT_SECONDS)
    assert scene.dog.slow == 1


async def test_many_small_callbacks_are_no_slow_one(scene: Scene) -> None:
    for _ in range(20):
        scene.look(LIMIT_SECONDS * 0.9)
        await next_round()
    assert (scene.dog.slow, scene.dog.late) == (0, 0)


async def test_a_round_of_the_loop_that_takes_too_long_is_late_though_no_callback_is_slow(scene: Scene) -> None:
    done: list[int] = []

    def small(number: int) -> None:
        scene.look(LIMIT_SECONDS * 0.6)
        done.append(number)

    for number in range(5):
        asyncio.get_running_loop().call_soon(small, number)
    await next_round()
    assert len(done) == 5
    assert (scene.dog.slow, scene.dog.late) == (0, 1)


async def test_time_in_which_the_loop_waits_is_not_counted(scene: Scene) -> None:
    scene.look(0.01)
    for _ in range(100):
        scene.look(0.0, overslept=10.0)  # the machine was asleep
    assert scene.dog.slow == 0


async def test_a_call_into_c_that_lets_nobody_else_run_is_counted_when_it_is_over(scene: Scene) -> None:
    scene.look(0.4, overslept=0.4)
    assert scene.dog.slow == 1


@pytest.mark.parametrize(("queued", "slow"), [(0.3, 0), (0.01, 1)], ids=["by other programs", "by the loop's thread"])
async def test_a_watchdog_that_is_kept_from_looking_blames_the_loop_only_when_it_was_the_loop(
    scene: Scene, queued: float, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the loop has worked on many things. Other programs had the processor that the watchdog needed."""

    def wait(_: float) -> bool:
        scene.queued.used += queued
        scene.cpu.used += 0.2
        return False

    monkeypatch.setattr(scene.dog._wake, "wait", wait)
    scene.dog.wait_and_look(-0.3)  # as if it had woken up so much too late
    assert scene.dog.slow == slow


async def test_a_loop_that_waits_for_something_to_do_is_not_blamed_for_what_it_did_before(scene: Scene) -> None:
    waits, owner = selectors.DefaultSelector.select.__code__, threading.get_ident()

    def look() -> None:
        began = time.monotonic()
        while stack_of(owner)[0].f_code is not waits and time.monotonic() - began < 60:
            time.sleep(0)
        scene.look(0.4, overslept=0.4)

    await asyncio.to_thread(look)
    assert scene.dog.slow == 0


async def test_a_real_call_into_c_that_lets_nobody_else_run_is_counted() -> None:
    dog = Watchdog(asyncio.get_running_loop())
    dog.start()
    dog.stir()
    try:
        began = time.thread_time()
        while dog.slow == 0 and time.thread_time() - began < 10:
            with excuse("the test holds the loop on purpose"):
                sum(range(20_000_000))
            await asyncio.sleep(0)
    finally:
        dog.stop()
    assert dog.slow == 1


async def test_it_looks_rarely_while_nothing_happens_and_closely_when_something_does(scene: Scene) -> None:
    assert scene.look(0.0) == IDLE_SECONDS
    assert scene.look(0.01) == CLOSE_SECONDS
    assert scene.look(0.0) == CLOSE_SECONDS  # for a while
    scene.now += 10
    assert scene.look(0.0) == IDLE_SECONDS


async def test_the_loop_is_not_asked_anything_while_it_does_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", asked.append)
    for _ in range(10):
        scene.look(0.0001)
    assert asked == []


@pytest.fixture
def told(home: Home) -> Iterator[list[str]]:
    lines: list[str] = []
    written = Logs(home, {}, lines.append)
    written.start()
    yield lines
    written.stop()


def burn_until(done: Callable[[], bool]) -> None:
    """Use the processor in one callback until somebody has noticed, or ten seconds have gone."""
    began = time.thread_time()
    with excuse("the test holds the loop on purpose"):
        while not done() and time.thread_time() - began < 10:
            sum(range(1000))


async def test_a_real_callback_is_told_with_its_stack_and_not_to_the_person(home: Home, told: list[str]) -> None:
    dog = Watchdog(asyncio.get_running_loop())
    dog.start()
    dog.stir()
    try:
        burn_until(lambda: dog.slow > 0)
    finally:
        dog.stop()
    assert dog.slow == 1
    (line,) = read_logs(home.root, LogFilter("warning"), 10)
    assert line.text.startswith("a callback has held the event loop for")
    assert "burn_until" in line.trace
    assert told == []
    assert "pal-watchdog" not in [thread.name for thread in threading.enumerate()]


def deep(frames: int, ready: threading.Event, done: threading.Event) -> None:
    if frames:
        deep(frames - 1, ready, done)
    else:
        ready.set()
        done.wait(60)


@pytest.fixture
def busy_thread() -> Iterator[int]:
    """One that stands two hundred calls deep."""
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=deep, args=(200, ready, done))
    thread.start()
    assert ready.wait(60)
    assert thread.ident is not None
    yield thread.ident
    done.set()
    thread.join(60)


def test_garbage_is_not_collected_while_the_frames_of_another_thread_are_read(busy_thread: int) -> None:
    """Python 3.11 crashes when it is: the other thread may run meanwhile, and its frames be gone."""
    collections: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(note)
    gc.set_threshold(20, 10, 10)
    try:
        stack = stack_of(busy_thread)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
    assert len(stack) > 200
    assert collections == []
    assert gc.isenabled()


def test_a_thread_that_has_gone_has_no_frames() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join(60)
    assert thread.ident is not None
    assert stack_of(thread.ident) == []


async def test_slow_callbacks_are_told_once_a_minute_with_how_many_there_were(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(4):
        scene.look(0.4, overslept=0.4)
    assert len(caplog.records) == 1
    scene.now += 61
    scene.look(0.4, overslept=0.4)
    assert caplog.records[-1].getMessage().endswith("and 3 others since the last one told")


async def test_a_loop_that_is_closed_ends_the_watch() -> None:
    cpu = Processor()
    other = asyncio.new_event_loop()
    dog = Watchdog(other, cpu=cpu)
    other.close()
    cpu.used = 1.0
    dog.look(time.monotonic())
    dog.start()
    dog.stop()
    assert dog.slow == 0
