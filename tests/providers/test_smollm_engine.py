"""The process behind the small model: loaded on first use, stopped when left, gone when idle. With a fake worker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from palinurus.domain import worker_program
from palinurus.domain.errors import Failure, ProviderError
from palinurus.providers.smollm.smollm import ChatLine, ProcessEngine, Spent

# Speaks the worker's frames; what it is asked decides how it behaves.
WORKER = f"""
import json, os, struct, sys
header = struct.Struct({worker_program.HEADER.format!r})
def say(number, kind, body):
    sys.stdout.buffer.write(header.pack(len(body), number, kind) + body.encode())
    sys.stdout.buffer.flush()
weights, context, folder = sys.argv[1:]
assert os.listdir(folder) == []
if weights.endswith("broken"):
    say(0, {worker_program.FAILED}, "no such weights")
    sys.exit(1)
if weights.endswith("silent"):
    sys.stdin.read()
say(0, {worker_program.DONE}, "")
while head := sys.stdin.buffer.read(header.size):
    size, number, kind = header.unpack(head)
    wanted = json.loads(sys.stdin.buffer.read(size))
    asked = wanted["messages"][-1]["content"]
    if asked == "die":
        os.kill(os.getpid(), 9)
    if asked == "hang":
        say(number, {worker_program.PIECE}, "well")
        sys.stdin.read()
    if asked == "environment":
        say(number, {worker_program.PIECE}, " ".join(sorted(os.environ)))
    say(number, {worker_program.PIECE}, "hello ")
    say(number, {worker_program.PIECE}, str(os.getpid()))
    say(number, {worker_program.DONE}, json.dumps({{"input": 5, "output": wanted["most"], "cut": False}}))
"""

Made = Callable[..., ProcessEngine]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Made]:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    made: list[ProcessEngine] = []

    def engine(weights: str = "good", **options: float) -> ProcessEngine:
        made.append(ProcessEngine(program=(program,), find_weights=lambda: tmp_path / weights, **options))
        return made[-1]

    yield engine
    for each in made:
        await each.close()


async def said(engine: ProcessEngine, text: str = "hi") -> list[str | Spent]:
    async with asyncio.timeout(60):
        return [piece async for piece in engine.reply([ChatLine("user", text)], most=9, seed=1)]


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


async def test_nothing_runs_before_the_first_reply_and_one_process_serves_all(make: Made) -> None:
    engine = make()
    assert engine.pid is None
    first = await said(engine)
    assert first == ["hello ", str(engine.pid), Spent(5, 9)]
    assert await said(engine) == first


async def test_replies_wait_their_turn(make: Made) -> None:
    engine = make()
    one, other = await asyncio.gather(said(engine), said(engine))
    assert one == other


async def test_leaving_a_reply_kills_the_process_and_the_next_reply_has_a_new_one(make: Made) -> None:
    engine = make()
    reply = engine.reply([ChatLine("user", "hang")], most=9, seed=1)
    assert await anext(reply) == "well"
    pid = engine.pid
    assert pid is not None
    async with asyncio.timeout(60):
        await reply.aclose()
    assert not alive(pid)
    assert (await said(engine))[0] == "hello "


async def test_cancelling_a_reply_kills_the_process(make: Made) -> None:
    engine = make()
    task = asyncio.create_task(said(engine, "hang"))
    await until(lambda: engine.pid is not None)
    pid = engine.pid
    assert pid is not None
    task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert not alive(pid)
    assert engine.pid is None


async def test_a_cancellation_that_comes_together_with_a_word_is_obeyed(make: Made) -> None:
    engine = make()
    reply = engine.reply([ChatLine("user", "hang")], most=9, seed=1)

    async def listen() -> None:
        async for _ in reply:
            task.cancel()

    task = asyncio.create_task(listen())
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()
    await reply.aclose()
    assert engine.pid is None


async def test_the_process_ends_after_idle_time(make: Made) -> None:
    engine = make(idle_seconds=0.05)
    pid = int(str((await said(engine))[1]))
    await until(lambda: not alive(pid))
    assert engine.pid is None
    assert (await said(engine))[1] != str(pid)


async def test_the_process_ends_when_the_engine_is_closed(make: Made) -> None:
    engine = make()
    pid = int(str((await said(engine))[1]))
    await engine.close()
    assert not alive(pid)


async def test_the_process_is_given_no_keys(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    names = str((await said(make(), "environment"))[0]).split()
    assert "PATH" in names
    assert not {"OPENAI_API_KEY", "HOME"} & set(names)


async def test_without_weights_the_failure_says_how_to_install_it() -> None:
    with pytest.raises(ProviderError, match="not installed") as failed:
        await said(ProcessEngine(find_weights=lambda: None))
    assert failed.value.kind is Failure.MODEL_NOT_FOUND
    assert "pal models install embedded" in failed.value.hint


async def test_weights_that_cannot_be_loaded_are_told(make: Made) -> None:
    with pytest.raises(ProviderError, match="no such weights"):
        await said(make("broken"))


async def test_a_process_that_dies_is_told_and_the_next_reply_has_a_new_one(make: Made) -> None:
    engine = make()
    with pytest.raises(ProviderError, match=r"ended \(signal 9\)"):
        await said(engine, "die")
    assert (await said(engine))[0] == "hello "


@pytest.mark.parametrize(("weights", "text"), [("silent", "hi"), ("good", "hang")])
async def test_silence_has_an_end_while_loading_and_while_speaking(make: Made, weights: str, text: str) -> None:
    engine = make(weights, load_seconds=0.3 if weights == "silent" else 60, piece_seconds=0.3)
    with pytest.raises(ProviderError, match="silent for") as failed:
        await said(engine, text)
    assert failed.value.kind is Failure.TIMEOUT
    assert engine.pid is None
