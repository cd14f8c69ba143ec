"""What one message costs that comes by a chat network and is answered there, and what a connected channel weighs.

The network is the fake Telegram of the tests in a process of its own (channel_network.py), the model a process that
answers at once. Processor time is that of the gateway, of everything between: the poll, admission, the stored message,
the turn, the stored reply, its delivery and the request that sends it.

    python -m benchmarks --only channels
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from benchmarks.gateway_client import ask_all
from benchmarks.gateway_servers import Running, Server, ours
from benchmarks.model import DELTAS
from benchmarks.processes import ROOT, SECONDS, Broken

LIMIT_MS = 12
WARM_TIMES = 10
TIMES = 40  # messages of one measurement
ROUNDS = 3
SETTLE_SECONDS = 2.0
SHORT, LONG = "hello", f"{DELTAS}200"  # a reply of one piece, and one of 200 pieces and 1,000 characters
CHUNKS = {"blockStreamingChunk": {"minChars": 200, "maxChars": 400}}
MODES = {"off": SHORT, "partial": LONG, "block": LONG}

Env = Callable[[Path], Mapping[str, str]]  # of a home


class NetworkProcess:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.account: dict[str, Any] = json.loads(self._ask(""))  # it speaks first

    def talk(self, chats: int, times: int, words: str) -> int:
        """Returns how many messages of the agent were shown. Raises Broken."""
        return int(self._ask(f"{chats} {times} {words}\n"))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            raise Broken("the fake network has ended")
        return said


@contextmanager
def network_process() -> Iterator[NetworkProcess]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    argv = [sys.executable, "-m", "benchmarks.channel_network"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield NetworkProcess(process)
        finally:
            process.kill()


class Channels:
    def __init__(self, pal: Path, folder: Path, model: str, env: Env) -> None:
        self._pal = pal
        self._folder = folder
        self._model = model
        self._env = env

    def measure(self) -> list[Figure]:
        with network_process() as network:
            return asyncio.run(self._measure(network))

    async def _measure(self, network: NetworkProcess) -> list[Figure]:
        costs = {mode: await self._costs(network, mode, (1, 8) if mode == "off" else (1,)) for mode in MODES}
        alone = {"the turn alone, by HTTP": costs["off"].pop(0)}
        without, connected = await self._weigh(None), await self._weigh(network)
        return [
            Figure("channels: CPU of a message in and out, one chat", costs["off"][1], alone, LIMIT_MS),
            Figure("channels: CPU of a message in and out, 8 chats", costs["off"][8], {}, LIMIT_MS),
            *(
                Figure(f"channels: CPU with a reply in 200 pieces, streaming {mode}", costs[mode][1], {})
                for mode in ("partial", "block")
            ),
            Figure("channels: CPU of a gateway until connected", connected[0], {"no channel": without[0]}),
            Figure("channels: memory of a gateway", connected[1], {"no channel": without[1]}, unit="MB"),
        ]

    async def _costs(self, network: NetworkProcess, mode: str, levels: tuple[int, ...]) -> dict[int, float]:
        """Milliseconds of one message, by the number of chats. 0: of the same turn, asked for by HTTP."""
        running = await self._start(f"channel-{mode}", network.account | {"streaming": mode})
        try:
            network.talk(1, WARM_TIMES, MODES[mode])
            costs = {
                chats: median(self._cost(running, network, chats, MODES[mode]) for _ in range(ROUNDS))
                for chats in levels
            }
            before = running.cpu()
            await ask_all(running.port, running.server.question, f"alone{mode}", 1, TIMES)
            return costs | {0: (running.cpu() - before) * 1000 / TIMES}
        finally:
            running.stop()

    def _cost(self, running: Running, network: NetworkProcess, chats: int, words: str) -> float:
        before, times = running.cpu(), TIMES // chats
        network.talk(chats, times, words)
        return (running.cpu() - before) * 1000 / (chats * times)

    async def _weigh(self, network: NetworkProcess | None) -> tuple[float, float]:
        """Processor time until it is connected, in milliseconds, and memory in MB: the median of a few starts."""
        taken = []
        for number in range(ROUNDS):
            account = network.account if network else None
            running = await self._start(f"weighed-{'with' if network else 'without'}-{number}", account)
            await asyncio.sleep(SETTLE_SECONDS)
            taken.append((running.cpu() * 1000, running.megabytes()))
            running.stop()
        return median(cpu for cpu, _ in taken), median(size for _, size in taken)

    async def _start(self, name: str, account: Mapping[str, Any] | None) -> Running:
        home = self._folder / name
        home.mkdir()
        running = Running(_server(self._pal, account), home, self._model, self._env(home))
        await asyncio.wait_for(running.ready(), SECONDS)
        return running


def _server(pal: Path, account: Mapping[str, Any] | None) -> Server:
    server = ours(pal)
    [(path, text)] = server.files.items()
    config = json.loads(text)
    config["agents"]["defaults"] |= CHUNKS
    if account is not None:
        everybody = {"dmPolicy": "open", "allowFrom": ["*"]}
        config |= {"channels": {"telegram": everybody | account}, "session": {"dmScope": "per-channel-peer"}}
        config["commands"] = {"ownerAllowFrom": ["telegram:100"]}
    return replace(server, files={path: json.dumps(config)})
