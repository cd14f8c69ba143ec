"""Detects every callback that blocks an event loop for more than 250 ms of its own processor time (promise 10).

Thread time is counted, not wall time, so a busy machine causes no failure; on a slower machine, as a known piece of
work shows at that moment, the limit is higher in proportion. Three things are not counted: garbage collection, which
may hit any callback; work for other threads that a virtual loop does inline; and what a test does inside `excuse`. A
first import counts: import a heavy package before the loop starts, or off the loop.

`watch_loops` watches all loops of this process. `child_variables` are for processes that a test starts: they report to
the same file.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

LIMIT_SECONDS = 0.25
REPORTS = "PAL_LOOP_TIME"  # the file to which a child process appends its findings
CHILD_FOLDER = Path(__file__).with_name("child")  # contains the sitecustomize.py that Python runs at start

_KNOWN_SECONDS = 0.002  # the duration of the known work on the reference machine
_DURATION_OF_TICK = 1 / os.sysconf("SC_CLK_TCK")


class Hold(Struct, frozen=True):
    """One callback that blocked its loop."""

    seconds: float
    callback: str  # its name, file and line, and where it waits now

    def __str__(self) -> str:
        return f"{self.callback} held the event loop for {self.seconds * 1000:.0f} ms of its own processor time"


class _ExcusedBlock(threading.local):
    seconds = 0.0  # seconds of this thread that count for no callback
    collecting_since = 0.0


_aside = _ExcusedBlock()
_tell: list[Callable[[Hold], None]] = []


def watch_loops(tell: Callable[[Hold], None]) -> None:
    """Calls `tell` for every hold in this process, on the thread of its loop. `tell` must not raise."""
    _tell.append(tell)
    if len(_tell) == 1:
        gc.callbacks.append(_note_collection)
        asyncio.Handle._run = _timed(asyncio.Handle._run)  # type: ignore[method-assign, assignment]  # noqa: SLF001


@contextmanager
def excuse(why: str) -> Iterator[None]:
    """Does not count the work inside; `why` says whose it is. Nothing may be awaited in it."""
    assert why  # noqa: S101
    before, began = _aside.seconds, time.thread_time()
    try:
        yield
    finally:
        _aside.seconds = before + time.thread_time() - began


def child_variables(reports: Path) -> dict[str, str]:
    """Returns the variables that make a Python process report to this file."""
    return {"PYTHONPATH": str(CHILD_FOLDER), REPORTS: str(reports)}


def watch_child() -> None:
    """Called in a child at its start."""
    if reports := os.environ.get(REPORTS):
        watch_loops(lambda hold: _append(Path(reports), f"pid {os.getpid()}: {hold}"))


def stolen_seconds() -> float:
    """Returns processor time that a virtual machine's host gave to others."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:  # noqa: PTH123  # read before and after every test
            return int(stat.readline().split()[8]) * _DURATION_OF_TICK
    except (OSError, IndexError, ValueError):
        return 0.0


def _timed(run: Callable[[asyncio.Handle], None]) -> Callable[[asyncio.Handle], None]:
    def _run(self: asyncio.Handle) -> None:
        aside, began = _aside.seconds, time.thread_time()
        run(self)
        seconds = time.thread_time() - began
        if (
            seconds > LIMIT_SECONDS
            and (seconds := seconds - (_aside.seconds - aside)) > LIMIT_SECONDS * measure_slowness()
        ):
            hold = Hold(seconds, _describe(getattr(self, "_callback", None)))
            for tell in _tell:
                tell(hold)

    return _run


def measure_slowness() -> float:
    """Returns how many times slower this machine is now; at least 1."""
    return max(1.0, min(_do_known_work() for _ in range(3)) / _KNOWN_SECONDS)


def _do_known_work() -> float:
    began, total = time.thread_time(), 0
    for number in range(60_000):
        total += number % 7
    return time.thread_time() - began


def _note_collection(phase: str, _: dict[str, int]) -> None:
    if phase == "start":
        _aside.collecting_since = time.thread_time()
    else:
        _aside.seconds += time.thread_time() - _aside.collecting_since


def _describe(callback: Any) -> str:
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine: Any = task.get_coro()
        code, stands = getattr(coroutine, "cr_code", None), _innermost(coroutine)
        name = getattr(coroutine, "__qualname__", repr(coroutine))
    else:
        while hasattr(callback, "func"):  # a partial
            callback = callback.func
        code, stands = getattr(callback, "__code__", None), ""
        name = getattr(callback, "__qualname__", repr(callback))
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"{name}{where}{stands}"


def _innermost(coroutine: Any) -> str:
    """Returns where a coroutine waits now: the slow code is before that."""
    stands = ""
    while coroutine is not None:
        for kind in ("cr", "ag", "gi"):
            if (frame := getattr(coroutine, f"{kind}_frame", None)) is not None:
                stands = f", which waits in {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return stands


def _append(path: Path, line: str) -> None:
    with suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
