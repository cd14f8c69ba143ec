"""The small model itself: it loads, chats, stops when told, and gives its memory back."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.domain.clock import SystemClock
from palinurus.domain.messages import UserMessage
from palinurus.providers.provider import Head, ModelRequest, ReplyDone, TextDelta
from palinurus.providers.smollm.packages import weights_file
from palinurus.providers.smollm.smollm import LABEL, MOST_BYTES, ChatLine, ProcessEngine, SmolLM, Spent, lines_of

WEIGHTS = weights_file({})
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.skipif(WEIGHTS is None, reason="the small model is not installed (`pal models install embedded`)"),
]


@pytest.fixture
async def engine() -> AsyncIterator[ProcessEngine]:
    made = ProcessEngine(find_weights=lambda: WEIGHTS, load_seconds=300, piece_seconds=300)
    yield made
    await made.close()


async def chat(engine: ProcessEngine, *texts: str) -> list[str]:
    provider = SmolLM(SystemClock(), lambda: engine)
    said = []
    async with asyncio.timeout(300):
        for text in texts:
            done = [event async for event in provider.stream(ModelRequest("smollm2", Head("x"), (UserMessage(text),)))]
            last = done[-1]
            assert isinstance(last, ReplyDone), last
            assert last.message.usage.output > 0
            said.append(last.message.text)
    return said


@pytest.mark.shows("SmolLM2", "small talk")
async def test_it_chats_in_short_labelled_sentences(engine: ProcessEngine) -> None:
    for said in await chat(engine, "hello!", "how are you?", "tell me a joke"):
        assert said.startswith(f"{LABEL}\n")
        assert 2 <= len(said.removeprefix(LABEL).split()) <= 60


@pytest.mark.shows("SmolLM2", "stopping a reply")
async def test_cancelling_stops_it_at_once(engine: ProcessEngine) -> None:
    first = asyncio.Event()

    async def listen() -> None:
        async for piece in engine.reply([ChatLine("user", "Write a very long story.")], most=2000, seed=1):
            first.set()
            assert not isinstance(piece, Spent)

    task = asyncio.create_task(listen())
    await asyncio.wait_for(first.wait(), 300)
    pid = engine.pid
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()
    assert len(await chat(engine, "hi")) == 1


@pytest.mark.parametrize("sign", ["x", "\u0301"])
async def test_the_longest_that_it_is_shown_fits_into_its_window(engine: ProcessEngine, sign: str) -> None:
    lines = lines_of([UserMessage(sign * MOST_BYTES)])
    async with asyncio.timeout(300):
        pieces = [piece async for piece in engine.reply(lines, most=2, seed=1)]
    assert isinstance(pieces[-1], Spent)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_it_takes_one_core_and_little_memory_and_can_be_reached_by_nobody(engine: ProcessEngine) -> None:
    await chat(engine, "hi")
    status = Path(f"/proc/{engine.pid}/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    assert resident < 300
    opened = [str(link.readlink()) for link in Path(f"/proc/{engine.pid}/fd").iterdir()]
    inodes = {name.removeprefix("socket:[").rstrip("]") for name in opened if name.startswith("socket:")}
    assert inodes
    listening = [line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if " 0A " in line]
    assert not inodes & set(listening)
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in inodes and len(fields) > 7:
            with socket.socket(socket.AF_UNIX) as probe, pytest.raises(OSError, match="No such file"):
                probe.connect(fields[7])


def test_scout_greets_with_it_through_the_front_door_and_facts_stay_quotes(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PALINURUS_HOME": str(tmp_path / "home")}
    config = '{"agents": {"defaults": {"model": "embedded/scout"}}}'
    (tmp_path / "home" / "workspace").mkdir(parents=True)
    (tmp_path / "home" / "palinurus.json").write_text(config)

    def said(lines: str) -> str:
        chat = [sys.executable, "-m", "palinurus", "chat"]
        ended = subprocess.run(chat, env=env, input=lines, capture_output=True, text=True, timeout=500, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    heard = said("hello\nremember that my bicycle is green\nwhat colour is my bicycle?\n")
    assert heard.startswith(f"{LABEL}\n")
    assert "What I can do:" in heard
    assert "> my bicycle is green (memory/" in heard
    (tmp_path / "home" / "palinurus.json").write_text(config[:-1] + ', "models": {"smallTalk": false}}')
    assert LABEL not in said("hello\n")


async def test_text_comes_in_pieces(engine: ProcessEngine) -> None:
    provider = SmolLM(SystemClock(), lambda: engine)
    async with asyncio.timeout(300):
        events = [event async for event in provider.stream(ModelRequest("smollm2", Head(""), (UserMessage("hello"),)))]
    assert sum(isinstance(event, TextDelta) for event in events) > 2
