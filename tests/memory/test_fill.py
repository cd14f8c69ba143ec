"""Vectors come behind the words: whatever the embedder does, what is kept is right, and a later run completes it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from palinurus.domain.errors import StorageError
from palinurus.memory.answer import Progress
from palinurus.memory.chunk import chunk
from palinurus.memory.document import DocumentRef, FileRow, MissingVector
from palinurus.memory.embedder import RETURN_SECONDS, Embedder, EmbedderChain, Space
from palinurus.memory.embedders.embedded import EmbeddedModel
from palinurus.memory.fill import FIRST_RETRY, LAST_RETRY, VectorFiller
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import HashingEmbedder, Mood, MoodyEmbedder
from support.virtual import run_virtually

SHIPS = [f"- The ship {name} sailed to {port} in May." for name in ("Ada", "Bo", "Cy") for port in ("Rome", "Oslo")]
BAD = [Mood.FAILS, Mood.HANGS, Mood.WRONG_DIMENSION, Mood.NOT_A_NUMBER, Mood.TOO_LONG, Mood.TOO_FEW]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MemoryStore]:
    made = MemoryStore(tmp_path / "memory.sqlite")
    async with asyncio.timeout(60):
        yield made
        await made.close()


async def write(store: MemoryStore, path: str, lines: list[str]) -> None:
    text = "\n".join(lines)
    cut = chunk(text, path, 400)
    row = FileRow(DocumentRef("memory", path), (len(text), 1, 0, 0), hashlib.sha256(text.encode()).digest(), 0)
    await store.put([(row, cut)])


async def missing(store: MemoryStore, embedder: Embedder) -> int:
    return len(await store.unembedded(embedder.space, 1000))


async def test_a_run_goes_on_until_every_piece_has_its_vector_and_tells_how_far_it_is(store: MemoryStore) -> None:
    await write(store, "memory/ships.md", SHIPS)
    embedder, seen = HashingEmbedder(), list[Progress]()
    filled = await VectorFiller(store, embedder, step=4).run(seen.append)
    totals = await store.totals()
    assert (filled.embedded, filled.trouble) == (len(SHIPS), "")
    assert totals.embedded == {embedder.space.id: totals.pieces}
    assert [(each.stage, each.done, each.total) for each in seen] == [
        ("vectors", 4, 6),
        ("vectors", 6, 6),
        ("vectors", 6, 6),
    ]


async def test_what_has_a_vector_is_not_embedded_again(store: MemoryStore) -> None:
    await write(store, "memory/ships.md", SHIPS)
    embedder = HashingEmbedder()
    filler = VectorFiller(store, embedder)
    await filler.run()
    await write(store, "memory/ships.md", [*SHIPS, "- The ship Di stayed at home."])
    assert (await filler.run()).embedded == 1
    assert [len(texts) for texts in embedder.asked] == [6, 1]


async def test_the_first_space_is_used_before_it_is_complete(store: MemoryStore) -> None:
    await write(store, "memory/ships.md", SHIPS)
    embedder = MoodyEmbedder(Mood.FAILS, good_for=2)
    await VectorFiller(store, embedder, step=2).run()
    assert await store.space_in_use() == embedder.space.id
    assert (await store.totals()).embedded == {embedder.space.id: 2}


@pytest.mark.parametrize("mood", BAD)
async def test_of_a_bad_batch_nothing_is_kept_what_was_good_stays_and_a_later_run_completes(
    store: MemoryStore, mood: Mood
) -> None:
    await write(store, "memory/ships.md", SHIPS)
    embedder = MoodyEmbedder(mood, good_for=2)
    filler = VectorFiller(store, embedder, step=2, step_seconds=0.1)
    filled = await filler.run()
    assert filled.embedded == 2
    assert filled.trouble
    assert "\n" not in filled.trouble
    assert filler.trouble == filled.trouble
    assert await missing(store, embedder) == 4
    embedder.mood = Mood.WELL
    assert (await filler.run()).embedded == 4
    assert (await missing(store, embedder), filler.trouble) == (0, "")


async def test_a_new_embedder_fills_a_shadow_and_takes_over_when_it_is_complete(store: MemoryStore) -> None:
    await write(store, "memory/ships.md", SHIPS)
    old, new = HashingEmbedder(32, "old"), MoodyEmbedder(Mood.FAILS, good_for=4, model="new")
    await VectorFiller(store, old).run()
    filler = VectorFiller(store, new, step=2)
    await filler.run()
    assert await store.space_in_use() == old.space.id
    assert (await store.totals()).embedded == {old.space.id: 6, new.space.id: 4}
    new.mood = Mood.WELL
    await filler.run()
    assert await store.space_in_use() == new.space.id
    assert (await store.totals()).embedded[new.space.id] == 6


async def test_in_the_background_it_fills_at_once_and_when_it_is_nudged(store: MemoryStore) -> None:
    await write(store, "memory/ships.md", SHIPS)
    embedder = HashingEmbedder()
    filler = VectorFiller(store, embedder, share=1.0)
    filler.start()
    filler.start()  # a second time does nothing
    await until_filled(store, embedder)
    await write(store, "memory/more.md", ["- The ship Ed sank."])
    filler.nudge()
    await until_filled(store, embedder)
    await filler.stop()
    await filler.stop()
    assert len(embedder.asked) == 2


async def test_a_run_is_not_held_up_by_the_background(store: MemoryStore) -> None:
    await write(store, "memory/ships.md", SHIPS)
    embedder = MoodyEmbedder(Mood.SLOW, seconds=0.2)
    filler = VectorFiller(store, embedder, share=0.0001, step=1)  # rests for twenty seconds after each text
    filler.start()
    assert (await asyncio.wait_for(filler.run(), 60)).trouble == ""
    assert await missing(store, embedder) == 0
    await filler.stop()


async def test_an_index_that_keeps_nothing_is_given_up(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: object) -> None: ...

    await write(store, "memory/ships.md", SHIPS)
    monkeypatch.setattr(store, "put_vectors", forget)
    filled = await VectorFiller(store, HashingEmbedder()).run()
    assert filled.trouble.startswith("the index does not store its vectors")


async def test_trouble_with_the_index_is_told_too(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StorageError("the disk is full", hint="make room")

    await write(store, "memory/ships.md", SHIPS)
    monkeypatch.setattr(store, "put_vectors", fail)
    assert (await VectorFiller(store, HashingEmbedder()).run()).trouble == "the disk is full (make room)"


@pytest.mark.slow
async def test_the_embedded_model_fills_an_index(store: MemoryStore) -> None:
    await write(store, "memory/ships.md", SHIPS)
    model = EmbeddedModel()
    filled = await VectorFiller(store, model).run()
    await model.close()
    assert (filled.embedded, filled.trouble) == (6, "")
    assert await store.space_in_use() == model.space.id


async def until_filled(store: MemoryStore, embedder: Embedder) -> None:
    async with asyncio.timeout(60):
        while await missing(store, embedder):
            await asyncio.sleep(0.005)


class Shelf:
    """As much of a keeper as filling needs, without threads: for virtual time."""

    def __init__(self, texts: int) -> None:
        self.missing = [MissingVector(bytes([number]), f"text {number}") for number in range(texts)]
        self.used = ""

    async def unembedded(self, space: Space, limit: int) -> list[MissingVector]:
        return self.missing[:limit]

    async def put_vectors(self, space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        kept = {digest for digest, _ in vectors}
        self.missing = [each for each in self.missing if each.digest not in kept]

    async def use_space(self, space: Space | None, *, kept: Sequence[Space] = ()) -> None:
        self.used = space.id if space else ""

    async def space_in_use(self) -> str:
        return self.used


def filler_of(shelf: Shelf, embedder: Embedder, **options: Any) -> VectorFiller:
    return VectorFiller(cast("MemoryStore", shelf), embedder, **options)


@pytest.mark.parametrize(("share", "seconds"), [(1.0, 10), (0.5, 20), (0.1, 100), (7.0, 10)])
def test_it_works_for_its_share_of_the_time(share: float, seconds: float) -> None:
    async def main() -> float:
        filler = filler_of(Shelf(10), MoodyEmbedder(Mood.SLOW, seconds=1.0), step=1)
        await filler.run(share=share)
        return asyncio.get_running_loop().time()

    assert run_virtually(main) == pytest.approx(seconds, rel=0.01)


def test_after_failures_it_rests_longer_and_longer_and_nudging_does_not_hurry_it() -> None:
    async def main() -> list[float]:
        embedder = MoodyEmbedder(Mood.FAILS)
        shelf = Shelf(3)
        filler = filler_of(shelf, embedder)
        filler.start()
        times: list[float] = []
        while asyncio.get_running_loop().time() < 3600:
            if len(embedder.asked) > len(times):
                times.append(asyncio.get_running_loop().time())
            filler.nudge()
            await asyncio.sleep(1)
        embedder.mood = Mood.WELL
        await asyncio.sleep(LAST_RETRY + 1)
        await filler.stop()
        assert shelf.missing == []
        return times

    times = run_virtually(main)
    rests = [after - before for before, after in pairwise(times)]
    assert rests == sorted(rests)
    assert rests[0] == pytest.approx(FIRST_RETRY, abs=1.5)
    assert rests[-1] == pytest.approx(LAST_RETRY, abs=1.5)
    assert len(times) < 15


def test_the_first_embedder_is_tried_again_however_often_something_changes_meanwhile() -> None:
    async def main() -> None:
        first, second = MoodyEmbedder(Mood.FAILS, model="first"), HashingEmbedder(32, "second")
        chain = EmbedderChain((first, second))
        filler = VectorFiller(cast("MemoryStore", Shelf(3)), chain)
        filler.start()
        while chain.serving is first:
            await asyncio.sleep(1)
        first.mood = Mood.WELL
        for _ in range(round(RETURN_SECONDS / 60) + 2):
            filler.nudge()
            await asyncio.sleep(60)
        await filler.stop()
        assert chain.serving is first

    run_virtually(main)
