"""The hands of a whole house: stop_runs by the front door, and a group that may run commands."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunEvent, ToolFinished
from palinurus.operations.runs import StopRuns, converse, stop_runs
from palinurus.operations.table import LocalCaller
from palinurus.runtime.runtime import Runtime
from support.wire import Behaviour, Calls, Hangs, Json, Says, WireServer

SECONDS = 60.0
NAP = f"7{os.getpid()}.5"
FAMILY = f"sleep {NAP} & setsid sleep {NAP} & (setsid nohup sleep {NAP} >/dev/null 2>&1 &); sleep {NAP}"


def model(body: Json) -> Behaviour:
    last = body["messages"][-1]
    if last["role"] == "tool":
        return Hangs("and now ") if "goes on in the background" in str(last["content"]) else Says("done")
    command: dict[str, Any] = {"command": "cat MEMORY.md"} if "memory" in str(last["content"]) else {"command": FAMILY}
    return Calls(("exec", {**command, "background": "behind" in str(last["content"])}))


@asynccontextmanager
async def living(tmp_path: Path, **config: Any) -> AsyncIterator[Runtime]:
    async with WireServer(otherwise=model) as server:
        root = tmp_path / "home"
        (root / "workspace").mkdir(parents=True)
        (root / "workspace" / "MEMORY.md").write_text("the owner likes figs\n")
        provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
        own = {"agents": {"defaults": {"model": "mine/test"}}, "models": {"providers": {"mine": provider}}, **config}
        (root / "palinurus.json").write_text(json.dumps(own))
        env = {"PALINURUS_HOME": str(root), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        runtime = Runtime(find_home(env), env)
        try:
            walls = await runtime.services.toolsets.sandbox("main").check()
            if not walls.works:
                pytest.skip(f"bubblewrap does not work here: {walls.why}")
            yield runtime
        finally:
            await runtime.close()


def sleepers() -> int:
    lines = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            state = (place.parent / "stat").read_text().rpartition(")")[2].split()[0]
            lines += [place.read_bytes()] if state != "Z" else []
        except OSError:
            continue
    return lines.count(f"sleep\0{NAP}\0".encode())


@pytest.mark.slow
@pytest.mark.parametrize("words", ["sleep", "sleep behind my back"])
async def test_stop_ends_a_command_with_all_its_children(tmp_path: Path, words: str) -> None:
    async with living(tmp_path) as runtime:
        caller = LocalCaller(runtime.services)
        work = asyncio.create_task(converse(caller, Inbound(words, "m1"), lambda _: None))
        async with asyncio.timeout(SECONDS):
            while sleepers() < 4:
                await asyncio.sleep(0.01)
        began = time.monotonic()
        assert (await caller.call(stop_runs, StopRuns(session_key="agent:main:main"))).count == 1
        result = await asyncio.wait_for(work, SECONDS)
        assert (result.status, sleepers()) == ("aborted", 0)
        assert time.monotonic() - began < 30


@pytest.mark.slow
async def test_a_group_that_may_run_commands_does_not_see_what_is_the_owners_alone(tmp_path: Path) -> None:
    group = "agent:main:telegram:group:7"
    async with living(tmp_path, tools={"profile": "coding"}) as runtime:
        for key, seen in ((group, False), ("agent:main:main", True)):
            heard: list[RunEvent] = []
            await converse(
                LocalCaller(runtime.services), Inbound("look at memory", f"m {key}", session_key=key), heard.append
            )
            (finished,) = (event for event in heard if isinstance(event, ToolFinished))
            assert finished.where == "sandbox"
            assert ("figs" in finished.text) is seen
