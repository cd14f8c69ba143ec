"""A test in which a callback holds the event loop fails, and says which callback it was."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from palinurus.testing.loop_time import Hold, child_variables, excuse, watch_loops

PATIENCE = 110.0

LIMIT = 0.1  # here, so that less has to be burnt

BURN = f"""
import asyncio, time
from palinurus.testing import loop_time, pytest_plugin

loop_time.LIMIT_SECONDS = pytest_plugin.LIMIT_SECONDS = {LIMIT}
loop_time.measure_slowness = lambda: 1.0  # whatever else this machine does
pytest_plugin.stolen_seconds = lambda: 0.0

def burn():
    began, seconds = time.thread_time(), 3 * {LIMIT}
    while time.thread_time() - began < seconds:
        pass
"""
HELD = """
import pytest, threading

async def test_coroutine():
    burn()

async def test_callback():
    asyncio.get_running_loop().call_soon(burn)
    await asyncio.sleep(0)

async def main():
    burn()

def test_thread():
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join()

@pytest.fixture
async def held():
    burn()
    yield

def test_fixture(held):
    pass

async def test_nothing_held():
    pass

runs = []

async def test_held_once_by_chance():
    runs.append(1)
    if len(runs) == 1:
        burn()

async def test_ran_again():
    assert len(runs) == 2
"""


@pytest.fixture(autouse=True)
def lower_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.testing.loop_time.LIMIT_SECONDS", LIMIT)
    monkeypatch.setattr("palinurus.testing.loop_time.measure_slowness", lambda: 1.0)  # whatever else this machine does


def burn(times: float = 3.0) -> None:
    began, seconds = time.thread_time(), times * LIMIT
    while time.thread_time() - began < seconds:
        pass


def test_a_test_in_which_a_callback_holds_a_loop_fails_and_says_which_and_where(tmp_path: Path) -> None:
    """In a pytest of its own: a coroutine, a callback, a loop of another thread and a fixture."""
    file = tmp_path / "test_held.py"
    file.write_text(BURN + HELD)
    plugins = ["-p", "palinurus.testing.pytest_plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-o", "asyncio_mode=auto", f"--rootdir={tmp_path}", str(file)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "3 failed, 3 passed, 1 error" in run.stdout, run.stdout
    place = {line: number for number, line in enumerate((BURN + HELD).splitlines(), 1)}
    for name, line in [
        ("test_coroutine", "async def test_coroutine():"),
        ("burn", "def burn():"),
        ("main", "async def main():"),
    ]:
        assert f"{name} ({file}:{place[line]})" in run.stdout
    assert "ms of its own processor time" in run.stdout


def test_a_process_that_a_test_has_started_is_watched_too(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    program = f"{BURN}\nasync def main():\n    burn()\n\nasyncio.run(main())\n"
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **child_variables(reports)}, timeout=PATIENCE, check=True
    )
    (line,) = reports.read_text().splitlines()
    assert "main (<string>:" in line


async def test_what_is_not_the_callbacks_own_work_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Hold] = []
    monkeypatch.setattr("palinurus.testing.loop_time._tell", [found.append])

    def waits() -> None:
        ended = threading.Event()
        other = threading.Thread(target=lambda: (burn(), ended.set()))
        other.start()
        ended.wait(PATIENCE)

    def collects() -> None:
        while_collecting = [lambda phase, _: burn(0.5) if phase == "stop" else None]
        gc.callbacks[:0] = while_collecting
        try:
            for _ in range(4):
                gc.collect(0)
        finally:
            gc.callbacks.remove(while_collecting[0])

    def excused() -> None:
        with excuse("shown to be possible"):
            burn()

    for work in (waits, collects, excused):
        asyncio.get_running_loop().call_soon(work)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert found == []
    asyncio.get_running_loop().call_soon(burn)  # which is counted
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [hold.callback.partition(" ")[0] for hold in found] == ["burn"]


def test_whoever_watches_is_told_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Hold] = []
    monkeypatch.setattr("palinurus.testing.loop_time._tell", [lambda _: None])
    watch_loops(found.append)

    async def main() -> None:
        burn()

    asyncio.run(main())
    assert len(found) == 1
