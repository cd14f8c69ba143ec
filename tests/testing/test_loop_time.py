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

from palinurus.testing.loop_time import LIMIT_SECONDS, Hold, child_variables, excuse, watch_loops

BURN = f"""
import asyncio, time

def burn(seconds={2 * LIMIT_SECONDS}):
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
"""


def burn(seconds: float = 2 * LIMIT_SECONDS) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


def outcome_of(test: str, folder: Path) -> str:
    """What a pytest of its own says about this test."""
    file = folder / "test_one.py"
    file.write_text(BURN + test)
    plugins = ["-p", "palinurus.testing.pytest_plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-o", "asyncio_mode=auto", f"--rootdir={folder}", str(file)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.stdout


def test_a_coroutine_that_computes_for_long_fails_its_test_with_its_name_and_place(tmp_path: Path) -> None:
    said = outcome_of("async def test_it():\n    burn()\n", tmp_path)
    assert "1 failed" in said
    assert f"test_it ({tmp_path}/test_one.py:8)" in said
    assert "ms of its own processor time" in said


def test_a_callback_of_a_timer_is_named_too(tmp_path: Path) -> None:
    said = outcome_of(
        "async def test_it():\n    asyncio.get_running_loop().call_soon(burn)\n    await asyncio.sleep(0)\n", tmp_path
    )
    assert f"burn ({tmp_path}/test_one.py:4) held the event loop" in said


def test_a_loop_of_another_thread_and_of_a_fixture_is_watched_too(tmp_path: Path) -> None:
    said = outcome_of(
        "import pytest, threading\n\nasync def main():\n    burn()\n\n"
        "@pytest.fixture\nasync def held():\n    burn()\n    yield\n\n"
        "def test_thread():\n    t = threading.Thread(target=lambda: asyncio.run(main()))\n"
        "    t.start()\n    t.join()\n\n"
        "def test_fixture(held):\n    pass\n",
        tmp_path,
    )
    assert "1 failed, 1 error" in said
    assert "main (" in said


def test_a_process_that_a_test_has_started_is_watched_too(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    program = f"{BURN}\nasync def main():\n    burn()\n\nasyncio.run(main())\n"
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **child_variables(reports)}, timeout=60, check=True
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
        ended.wait(60)

    def collects() -> None:
        while_collecting = [lambda phase, _: burn(0.1) if phase == "stop" else None]
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
