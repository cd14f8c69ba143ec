"""What was forgotten is gone as a vector too: from the file, for whoever asks by meaning, and if it was being made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import apsw
import pytest

from palinurus.config.home import Home
from palinurus.extensions.forget.operations import Forget, forget
from palinurus.memory.embedders import embedded as wired
from palinurus.memory.question import Question
from palinurus.memory.vectors import pack
from palinurus.runtime.runtime import Runtime
from palinurus.testing.fakes import HashingEmbedder, vector_of

CANARY = "The spare key of the shed lies under the zanzibar pot."
OTHER = "The boat in the harbour is called Aster."
DIMENSIONS = 64


class Gated(HashingEmbedder):
    """Waits with its vectors, once, when it is told to."""

    def __init__(self) -> None:
        super().__init__(DIMENSIONS)
        self.gate: asyncio.Event | None = None
        self.at_the_gate = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors = await super().embed(texts)
        if self.gate is not None:
            self.at_the_gate.set()
            await asyncio.wait_for(self.gate.wait(), 60)
        return vectors


@pytest.fixture
async def embedder(monkeypatch: pytest.MonkeyPatch) -> Gated:
    made = Gated()
    monkeypatch.setattr(wired, "EmbeddedModel", lambda: made)
    return made


@pytest.fixture
async def services(home: Home, embedder: Gated) -> AsyncIterator[Runtime]:
    runtime = Runtime(home, dict(os.environ))
    try:
        yield runtime
    finally:
        await runtime.close()


def written(workspace: Path) -> None:
    (workspace / "MEMORY.md").write_text(f"# Memory\n\n- {CANARY}\n- {OTHER}\n")


def index_of(runtime: Runtime) -> Path:
    return runtime.services.home.root / "derived" / "memory" / "main.sqlite"


def bytes_of(path: Path) -> bytes:
    found = [path.with_name(path.name + suffix) for suffix in ("", "-wal")]
    return b"".join(each.read_bytes() for each in found if each.exists())


def counted(path: Path) -> tuple[int, int]:
    """Vectors, and signs of them."""
    with apsw.Connection(str(path)) as other:
        other.set_busy_timeout(5000)
        ((vectors, signs),) = other.execute("SELECT (SELECT count(*) FROM vectors), (SELECT count(*) FROM signs)")
    return int(vectors), int(signs)


async def nearest(runtime: Runtime) -> list[str]:
    """What is found by words that stand nowhere but in the vector."""
    answer = await runtime.services.memory("main").search(Question("zanzibar pot shed spare key"))
    return [each.snippet for each in answer.results]


async def test_the_vector_its_signs_and_the_cached_one_are_gone(
    services: Runtime, workspace: Path, embedder: Gated
) -> None:
    written(workspace)
    memory, path = services.services.memory("main"), index_of(services)
    await memory.sync()
    meaning = next(text for texts in embedder.asked for text in texts if "zanzibar" in text)
    kept = next(text for texts in embedder.asked for text in texts if "Aster" in text)
    vectors, signs = counted(path)
    assert vectors == signs > 1
    assert pack(vector_of(meaning, DIMENSIONS), DIMENSIONS) in bytes_of(path)
    assert any("zanzibar" in snippet for snippet in await nearest(services))
    report = await forget(services.services, Forget(query="ZANZIBAR pot", apply=True))
    assert report.remains == ()
    assert [probe for probe in report.probes if probe.found] == []
    assert pack(vector_of(meaning, DIMENSIONS), DIMENSIONS) not in bytes_of(path)
    assert pack(vector_of(kept, DIMENSIONS), DIMENSIONS) in bytes_of(path)
    assert counted(path) == (vectors - 1, signs - 1)
    assert not any("zanzibar" in snippet for snippet in await nearest(services))


async def test_a_vector_that_was_being_made_meanwhile_is_not_kept(
    services: Runtime, workspace: Path, embedder: Gated
) -> None:
    written(workspace)
    memory, path = services.services.memory("main"), index_of(services)
    embedder.gate = asyncio.Event()
    filling = asyncio.create_task(memory.sync())
    await asyncio.wait_for(embedder.at_the_gate.wait(), 60)  # the words were read out of the index
    report = await forget(services.services, Forget(query="zanzibar pot", apply=True))
    assert report.remains == ()
    embedder.gate.set()  # and now their vector comes
    await asyncio.wait_for(filling, 60)
    meaning = next(text for texts in embedder.asked for text in texts if "zanzibar" in text)
    assert pack(vector_of(meaning, DIMENSIONS), DIMENSIONS) not in bytes_of(path)
    assert any("Aster" in text for texts in embedder.asked for text in texts)
    vectors, signs = counted(path)
    assert vectors == signs == (await memory.status()).pieces
