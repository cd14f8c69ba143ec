"""The process behind the embedded model: started on first use, killed when it hangs, gone when idle. A fake worker."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain import worker_program as worker
from palinurus.domain.errors import EmbedderError
from palinurus.memory.embedders.embedded import (
    MOST_AT_ONCE,
    MOST_TEXTS,
    SPACE,
    EmbeddedModel,
    ModelFiles,
    batches,
    find_parts,
)

# Speaks the worker's frames; what it is asked decides how it behaves.
WORKER = f"""
import json, os, struct, sys
header = struct.Struct({worker.HEADER.format!r})
def say(number, kind, body):
    sys.stdout.buffer.write(header.pack(len(body), number, kind) + body)
    sys.stdout.buffer.flush()
weights = sys.argv[1]
with open(weights + ".starts", "a") as file:
    file.write("x")
if weights.endswith("broken"):
    say(0, {worker.FAILED}, b"ValueError: no such weights")
    sys.exit(1)
if weights.endswith("silent"):
    sys.stdin.read()
say(0, {worker.DONE}, b"")
unit = struct.pack("<384f", 1.0, *[0.0] * 383)
while head := sys.stdin.buffer.read(header.size):
    size, number, kind = header.unpack(head)
    texts = json.loads(sys.stdin.buffer.read(size))
    texts = [texts] if isinstance(texts, str) else texts
    if "die" in texts:
        os.kill(os.getpid(), 9)
    if "hang" in texts:
        continue
    if "fail" in texts:
        say(number, {worker.FAILED}, b"RuntimeError: out of words")
    elif "half" in texts:
        say(number, {worker.DONE}, unit[:-4])
    elif "environment" in texts:
        with open(weights + ".environment", "w") as file:
            file.write(" ".join(sorted(os.environ)) + f" session={{os.getsid(0) == os.getpid()}}")
        say(number, {worker.DONE}, unit)
    elif "garbage" in texts:
        sys.stdout.buffer.write(b"\\xff" * 64)
        sys.stdout.buffer.flush()
    else:
        say(number, {worker.DONE}, unit * len(texts))
"""

Made = Callable[..., EmbeddedModel]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Made]:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    made: list[EmbeddedModel] = []

    def model(weights: str = "good", **options: Any) -> EmbeddedModel:
        parts = ModelFiles(tmp_path / weights, tmp_path / "vocabulary")
        made.append(EmbeddedModel(program=(program,), **{"find": lambda: parts, **options}))
        return made[-1]

    async with asyncio.timeout(60):
        yield model
        for each in made:
            await each.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_process_starts_with_the_first_text_and_serves_the_next(make: Made) -> None:
    model = make()
    assert model.pid is None
    await model.embed_query("hello")
    pid = model.pid
    assert pid is not None
    assert len(await model.embed(["a", "b", "c"])) == 3
    assert model.pid == pid


async def test_many_who_ask_at_once_share_one_start(make: Made, tmp_path: Path) -> None:
    model = make()
    await asyncio.gather(*(model.embed_query(f"question {number}") for number in range(9)))
    assert (tmp_path / "good.starts").read_text() == "x"


async def test_one_who_leaves_does_not_stop_the_start_for_others(make: Made, tmp_path: Path) -> None:
    model = make()
    leaver = asyncio.create_task(model.embed_query("hello"))
    await asyncio.sleep(0)
    leaver.cancel()
    await model.embed_query("hello")
    assert (tmp_path / "good.starts").read_text() == "x"


async def test_it_is_gone_when_nobody_has_asked_for_a_while_and_comes_back(make: Made) -> None:
    model = make(idle_seconds=0.05)
    await model.embed_query("hello")
    first = model.pid
    assert first is not None
    await until(lambda: not alive(first))
    await model.embed_query("hello")
    assert model.pid not in (None, first)


async def test_one_that_hangs_is_killed_after_the_limit_and_the_next_question_is_answered(make: Made) -> None:
    model = make(query_seconds=2)
    await model.embed_query("hello")
    first = model.pid
    assert first is not None
    with pytest.raises(EmbedderError, match=r"silent for 2 seconds"):
        await model.embed_query("hang")
    assert not alive(first)
    await model.embed_query("hello")


async def test_a_question_does_not_wait_for_a_batch_that_hangs(make: Made) -> None:
    model = make()
    hanging = asyncio.create_task(model.embed(["hang"]))
    await until(lambda: model.pid is not None)
    await model.embed_query("hello")
    assert not hanging.done()
    hanging.cancel()


@pytest.mark.parametrize("text", ["die", "garbage"])
async def test_a_process_that_falls_over_fails_its_texts_and_is_replaced(make: Made, text: str) -> None:
    model = make()
    others = [asyncio.create_task(model.embed([each])) for each in ("hang", "hang")]
    await until(lambda: model.pid is not None)
    with pytest.raises(EmbedderError, match="the process of the embedded model ended"):
        await model.embed(["a", text])
    for other in others:
        with pytest.raises(EmbedderError, match="ended"):
            await other
    assert len(await model.embed(["a", "b"])) == 2


async def test_a_failure_of_the_model_is_told_in_its_words_and_costs_no_process(make: Made) -> None:
    model = make()
    with pytest.raises(EmbedderError, match="the embedded model failed: RuntimeError: out of words"):
        await model.embed_query("fail")
    pid = model.pid
    await model.embed_query("hello")
    assert model.pid == pid


async def test_half_a_vector_is_refused(make: Made) -> None:
    with pytest.raises(EmbedderError, match="383 dimensions instead of 384"):
        await make().embed_query("half")


@pytest.mark.parametrize(("weights", "said"), [("broken", "no such weights"), ("silent", "silent for")])
async def test_what_cannot_be_started_is_not_tried_again_with_each_question(
    make: Made, tmp_path: Path, weights: str, said: str
) -> None:
    model = make(weights, load_seconds=4.0 if weights == "silent" else 60.0)
    for _ in range(3):
        with pytest.raises(EmbedderError, match=said):
            await model.embed_query("hello")
    assert (tmp_path / f"{weights}.starts").read_text() == "x"


async def test_after_a_rest_it_is_tried_again(make: Made, tmp_path: Path) -> None:
    model = make("broken", rest_seconds=0.0)
    for _ in range(2):
        with pytest.raises(EmbedderError):
            await model.embed_query("hello")
    assert (tmp_path / "broken.starts").read_text() == "xx"


async def test_a_missing_package_is_named_with_a_hint(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.memory.embedders.embedded.RUNNERS", ("numpy", "no_such_runner"))
    with pytest.raises(EmbedderError, match=r"needs no_such_runner .*search goes by words"):
        await make(find=find_parts).embed_query("hello")


async def test_missing_weights_are_named_with_a_hint(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.memory.embedders.embedded.WEIGHTS", ("no_such_package", "model.onnx"))
    with pytest.raises(EmbedderError, match=r"needs model\.onnx of the package no_such_package"):
        await make(find=find_parts).embed_query("hello")


async def test_it_gets_no_secret_from_the_environment_and_a_session_of_its_own(
    make: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    await make().embed_query("environment")
    seen = (tmp_path / "good.environment").read_text()
    assert "API_KEY" not in seen
    assert " HOME" not in seen
    assert seen.endswith("session=True")


@pytest.mark.skipif(sys.platform == "win32", reason="processes end otherwise there")
async def test_it_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    parent = f"""
import asyncio, os, signal
from pathlib import Path
from palinurus.memory.embedders.embedded import EmbeddedModel
from palinurus.memory.embedders.embedded import ModelFiles
async def main():
    here = Path({str(tmp_path)!r})
    model = EmbeddedModel(program=(here / "worker.py",), find=lambda: ModelFiles(here / "good", here / "words"))
    await model.embed_query("hello")
    print(model.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
        pid = int(said)
        await until(lambda: not alive(pid) or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")


async def test_the_house_itself_stays_small(make: Made) -> None:
    code = "import sys, palinurus.memory.embedders.embedded; print({'numpy', 'onnxruntime'} & set(sys.modules))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert said.strip() == b"set()"


@given(st.lists(st.integers(0, 2 * MOST_AT_ONCE), max_size=60))
def test_batches_hold_every_text_once_and_are_bounded(lengths: list[int]) -> None:
    texts = ["x" * length for length in lengths]
    cut = list(batches(texts))
    assert sorted(place for batch in cut for place in batch) == list(range(len(texts)))
    for batch in cut:
        longest = max(lengths[place] for place in batch)
        assert 1 <= len(batch) <= MOST_TEXTS
        assert len(batch) == 1 or longest * len(batch) <= MOST_AT_ONCE


def test_the_space_is_named_by_model_dimensions_and_preparation() -> None:
    assert SPACE.id == "embedded/all-MiniLM-L6-v2-int8/384/mean,unit,256,tokens:6f1b7b36"
