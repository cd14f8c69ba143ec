"""What many suites share: a workspace with files in it, a whole Palinurus, a home that needs no model."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from palinurus.config.home import Home, find_home
from palinurus.testing.fakes import FakeClock, SeededIds
from palinurus.testing.harness import Harness
from palinurus.testing.loop_time import measure_slowness

pytest_plugins = ["support.compatibility", "support.postgres"]

# `make test` tries the same examples each time; `make soak` looks for new ones.
settings.register_profile("suite", deadline=None, max_examples=60, print_blob=True, derandomize=True)
settings.register_profile("soak", settings.get_profile("suite"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# A shell that starts us in the background has us ignore Ctrl-C, and whatever we start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

WORKSPACE = {
    "AGENTS.md": "# Rules\nBe brief.\n",
    "SOUL.md": "# Soul\nCurious and calm.\n",
    "IDENTITY.md": "# Identity\nName: Pilot\n",
    "USER.md": "# User\nLives by the harbour.\n",
    "TOOLS.md": "# Tools\nThe printer is upstairs.\n",
    "HEARTBEAT.md": "# Heartbeat\nLook at the tide table.\n",
    "MEMORY.md": "# Memory\nThe boat is called Aster.\n",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A seeded workspace: every bootstrap file but BOOTSTRAP.md, each with a line of its own."""
    root = tmp_path / "workspace"
    root.mkdir()
    for name, text in WORKSPACE.items():
        (root / name).write_text(text)
    return root


@pytest.fixture
async def pal(workspace: Path) -> AsyncIterator[Harness]:
    async with Harness(workspace) as whole:
        yield whole


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def new_id() -> SeededIds:
    return SeededIds()


@pytest.fixture
def home(tmp_path: Path, workspace: Path) -> Home:
    """A home whose config names the embedded model, so that no test asks what runs on this machine."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    model = '"model": "embedded/scout"'
    (root / "palinurus.json").write_text(f'{{"agents": {{"defaults": {{{model}, "workspace": "{workspace}"}}}}}}')
    return find_home({"PALINURUS_HOME": str(root), "HOME": str(tmp_path)})


@contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"computed for more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds * measure_slowness())
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.fixture
def cpu_limit() -> Callable[[float], AbstractContextManager[None]]:
    """`with cpu_limit(30)` fails when its block computes for longer; what else the machine does is not counted,
    and a slower machine has more time.

    For work that takes a fraction of a second when it is linear in its input, and minutes when it is not. A search
    for a pattern is interrupted, too.
    """
    return limit_cpu
