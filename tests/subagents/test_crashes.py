"""The process is killed at random moments, and every result of a subagent arrives exactly once in its parent."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from family import WAIT, Family, is_subagent, opened, served

from support.wire import Behaviour, Calls, Json, Says, WireServer

PROGRAM = Path(__file__).with_name("crash_home.py")


def model(children: int) -> Any:
    """Parents start so many subagents with one reply; each answers with its task."""

    def answer(text: str, body: Json) -> Behaviour:
        if is_subagent(body):
            return Says(f"result of {text.split(maxsplit=1)[0]}", delay=0.01)
        if "please" in text:
            return Calls(*(("sessions_spawn", {"task": f"task{number}"}) for number in range(children)))
        return Says("ok")

    return answer


async def lives(root: Path, parents: int, kills: int, chance: random.Random) -> int:
    """Starts the process again and again until it has finished. Returns how often it was killed."""
    killed = 0
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), str(root), str(parents), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), WAIT) == b"open\n"
        try:
            async with asyncio.timeout(chance.uniform(0.02, 0.5) if killed < kills else 20 * WAIT):
                assert await process.stdout.readline() == b"done\n"
                assert await process.wait() == 0
                return killed
        except TimeoutError:
            process.kill()
            killed += 1
            await process.wait()


async def check(pal: Family, parents: int, children: int) -> None:
    """A call that the process died in has no result, so its model does not know; what it started is announced too."""
    everyone = await pal.services.sessions.recent(limit=10_000, archived=True)
    born = [each for each in everyone if each.spawned_by]
    for number in range(parents):
        key = f"agent:main:explicit:p{number}"
        announced = await pal.announced(key)
        own = [each.key for each in born if each.spawned_by == key]
        told = [json.loads(each.text) for each in await pal.results(key) if each.text.startswith("{")]
        assert {each["childSessionKey"] for each in told} <= set(own)
        assert len(own) <= children
        times = {child: sum(child in text for text in announced) for child in own}
        assert set(times.values()) <= {1}, (key, times)
    assert born  # a kill may come before a parent's calls were made, on a busy machine to most
    assert not await pal.services.jobs.recent(kinds=["announce"], states=["failed", "ambiguous", "dropped"])
    assert not pal.services.dispatcher.busy


async def run(tmp_path: Path, server: WireServer, parents: int, children: int, kills: int, seed: int) -> int:
    async with opened(tmp_path, server):
        pass  # writes the config
    killed = await lives(tmp_path / "home", parents, kills, random.Random(seed))
    async with opened(tmp_path, server) as pal:
        await pal.rests()
        await check(pal, parents, children)
    return killed


@pytest.mark.slow
async def test_each_result_arrives_once_in_its_parent_however_often_the_process_is_killed(tmp_path: Path) -> None:
    async with served(model(3)) as server:
        assert await run(tmp_path, server, parents=6, children=3, kills=5, seed=7) > 0


async def test_a_subagent_whose_process_died_is_continued_and_announced(tmp_path: Path) -> None:
    released = asyncio.Event()
    calls: list[Json] = []

    def answer(text: str, body: Json) -> Behaviour:
        calls.append(body)
        if is_subagent(body):
            return Says("42") if released.is_set() else Says("never", delay=WAIT)
        return Calls(("sessions_spawn", {"task": "count"})) if "please" in text else Says("ok")

    async with served(answer) as server:
        async with opened(tmp_path, server) as pal:
            await pal.hears("please")
            await server.until(lambda _: any(map(is_subagent, calls)))
            await pal.services.dispatcher.abandon()
        released.set()
        async with opened(tmp_path, server) as pal:
            await pal.rests()
            [announced] = await pal.announced()
            assert "42" in announced
