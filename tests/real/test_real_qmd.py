"""The real qmd as the memory backend: the contract of every backend by words, and kills in the middle of a query.

`embed`, `vsearch` and `query` download models, which tests cannot: tests/memory/test_qmd.py has a stand-in for them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import pytest
from msgspec.structs import replace

from support.backend_contract import LIMITS, BackendContract, Kept

sys.path.insert(0, str(Path(__file__).parent.parent / "memory"))
from test_backends import TestBuiltin as Builtin

from palinurus.extensions.qmd.backend import open_qmd
from palinurus.memory.backend import BUILTIN, BackendPlace, FallbackMemory, MemoryBackend
from palinurus.memory.memory import Memory
from palinurus.memory.question import Question
from palinurus.testing.fakes import FakeClock, SeededIds

PLACE = Path(__file__).parents[2] / ".peers" / "qmd"
COMMAND = PLACE / "node_modules" / ".bin" / "qmd"
ENV = {"PATH": f"{PLACE / 'node' / 'bin'}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
KILLS, SECONDS = 20, 4.0

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (PLACE / ".installed").exists(), reason="qmd is not installed; `sh tools/qmd` does it"),
]


class TestQmd(BackendContract):
    config: ClassVar = {"memory": {"qmd": {"command": str(COMMAND)}}}

    def open(self, place: BackendPlace) -> MemoryBackend:
        return open_qmd(replace(place, env=ENV))

    async def test_an_embedding_that_cannot_be_made_harms_no_search(self, kept: Kept, backend: MemoryBackend) -> None:
        backend.start()
        assert (await self.find(backend, "rudder"))[0].path == "memory/2026-11-14.md"
        assert (await backend.status()).trouble == ""


@pytest.fixture
async def memory(tmp_path: Path, clock: FakeClock, new_id: SeededIds) -> AsyncIterator[FallbackMemory]:
    kept = Kept(tmp_path, clock, new_id, TestQmd.config)
    builtin = Builtin().open(replace(kept.place, folder=tmp_path / "builtin"))
    assert isinstance(builtin, Memory)
    made = FallbackMemory("qmd", builtin, lambda _: open_qmd(replace(kept.place, env=ENV)), clock)
    yield made
    await made.close()


async def test_killed_in_the_middle_of_twenty_queries_each_is_answered_within_its_limit(
    memory: FallbackMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    question = Question("rudder", replace(LIMITS, seconds=SECONDS))
    async with asyncio.timeout(60):
        assert (await memory.search(Question("rudder", LIMITS))).backend == "qmd"
        took, killed = list[float](), 0
        for number in range(KILLS):
            began = perf_counter()
            answering = asyncio.create_task(memory.search(question))
            while not answering.done() and not (pids := await asyncio.to_thread(_searching)):
                await asyncio.sleep(0.005)
            await asyncio.sleep(number * 0.005)  # each at another moment of its life
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            answer = await answering
            took.append(perf_counter() - began)
            killed += answer.backend == BUILTIN
            assert answer.results[0].path == "memory/2026-11-14.md"
            assert "`qmd search` ended with signal 9" in answer.freshness.why
            assert (await memory.status()).backend == BUILTIN
        assert (await memory.search(question)).backend == "qmd"
    with capsys.disabled():
        print(f"\n{killed} of {KILLS} killed; answered in {max(took):.2f} s at most, limit {SECONDS} s")
    assert killed == KILLS
    assert max(took) < SECONDS


def _searching() -> list[int]:
    """Processes of ours that are in a search of qmd."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if b"search" in words and any(b"qmd" in word for word in words) and parent == os.getpid():
            found.append(int(place.name))
    return found
