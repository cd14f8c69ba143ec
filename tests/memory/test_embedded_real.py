"""The embedded model with its real weights and its real process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from palinurus.domain.errors import EmbedderError
from palinurus.domain.worker_program import NICE
from palinurus.memory.embedders.embedded import EmbeddedModel, find_parts
from palinurus.memory.late import CODE_BYTES, QueryTokens, late_scores

pytestmark = pytest.mark.slow


@pytest.fixture
async def model() -> AsyncIterator[EmbeddedModel]:
    made = EmbeddedModel()
    async with asyncio.timeout(60):
        yield made
        await made.close()


def niceness(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sorted(int((task / "stat").read_text().rpartition(")")[2].split()[16]) for task in tasks)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own elsewhere")
async def test_only_the_thread_that_fills_in_is_nice(model: EmbeddedModel) -> None:
    await model.embed(["a line"])
    assert model.pid is not None
    nice = niceness(model.pid)
    assert nice[-1] == NICE
    assert set(nice[:-1]) == {nice[0]}
    assert nice[0] < NICE


async def test_a_question_passes_the_lines_that_are_being_filled_in(model: EmbeddedModel) -> None:
    await model.embed_query("load")
    filling = asyncio.create_task(model.embed([f"{'many words ' * 30}{number}" for number in range(200)]))
    await asyncio.sleep(0)
    await model.embed_query("When did Anna buy the bicycle?")
    assert not filling.done()
    filling.cancel()


async def test_other_weights_than_those_of_the_space_are_not_loaded(tmp_path: Path) -> None:
    weights = tmp_path / "model.onnx"
    weights.write_bytes(find_parts().weights.read_bytes()[:-1] + b"?")
    parts = msgspec.structs.replace(find_parts(), weights=weights)
    model = EmbeddedModel(find=lambda: parts)
    async with asyncio.timeout(60):
        with pytest.raises(EmbedderError, match=r"model\.onnx is not the file it should be"):
            await model.embed_query("hello")
    await model.close()


async def test_every_telling_word_has_a_code_and_a_question_has_the_states(model: EmbeddedModel) -> None:
    size = model.space.dimensions * 4
    lines = await model.embed(["The physician is here!", "- :"])
    assert [len(line) - size for line in lines] == [2 * CODE_BYTES, 0]
    asked = QueryTokens.read((await model.embed_query("Who is the physician?"))[size:])
    assert asked is not None
    assert asked.words == ("who", "physician")
    near = await model.embed(["the doctor came", "a bicycle"])
    found = late_scores(asked, {}, 9, {at * 9: line[size:] for at, line in enumerate(near)}, {0: 1, 9: 1})
    assert found[0] > found[9]
