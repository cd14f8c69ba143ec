"""A crowd at the gateway for a long time: many clients that only listen, some that talk, and all the while some go
without a word and others come.

The gateway must not grow, and nothing that it does may hold its event loop: both are read from the process and from
its own `/metrics` after a while of warming up, and again at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from homes import PATIENCE, PalHome, Talk, parrot
from support.wire import WireServer

SPEAKERS = 8
TURNS_OF_A_SESSION = 4
TURNS_OF_A_VISIT = 25
PACE = (0.05, 0.25)  # seconds between two turns of a speaker, once warm: a crowd that talks, not one that shouts
GROWTH = 1.05
AT_ONCE = 16  # clients that arrive at the same time
USUAL_FILES = 1024  # that a process may have open, on most systems
SLOW = re.compile(r"^pal_loop_slow_callbacks_total (\d+)", re.MULTILINE)


async def besiege(
    root: Path,
    *,
    clients: int,
    seconds: float,
    warm_turns: int,
    seed: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """What was counted; memory in KiB. Raises AssertionError when a client was left without an answer or shown out."""
    _allow_files(clients)
    async with WireServer(otherwise=parrot) as wire:
        # The gateway gets the usual limit of files, and must know how to help itself.
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_FILES, _files()[1]))  # noqa: E731
        home = PalHome(root, spawn={"preexec_fn": limit})
        home.set_up(wire.base_url)
        async with home.talking("gateway", "run", "--port", "0") as talk:
            line = await talk.until(lambda said: said.startswith("pal gateway at "))
            crowd = _Crowd(talk, line.split()[3], (home.root / "gateway.token").read_text().strip(), seed, progress)
            forgetful = asyncio.create_task(_forget(wire))
            try:
                await crowd.stay(clients, seconds, warm_turns)
            finally:
                forgetful.cancel()
            talk.process.terminate()
            ended = await talk.ended()
            assert (ended.code, ended.err) == (0, ""), ended
    return crowd.counted


def check_steady(counted: Counter[str]) -> None:
    """It has not grown, and nothing has held its event loop."""
    before, after = counted["KiB before"], counted["KiB after"]
    assert after <= before * GROWTH, f"it has grown from {before:,} KiB to {after:,} KiB"
    assert counted["slow callbacks"] == 0, f"{counted['slow callbacks']} callbacks took more than 50 ms of its thread"


class _Crowd:
    def __init__(self, talk: Talk, url: str, token: str, seed: int, progress: Callable[[str], None]) -> None:
        self.counted: Counter[str] = Counter()
        self._talk = talk
        self._url = url
        self._token = token
        self._dice = random.Random(seed)
        self._progress = progress
        self._warm_turns = 0  # without a pause, so that whatever is kept for a while is full
        self._warm = asyncio.Event()
        self._leaving = False
        self._door = asyncio.Semaphore(AT_ONCE)
        self._listening: list[tuple[ClientConnection, asyncio.Task[None]]] = []

    async def stay(self, clients: int, seconds: float, warm_turns: int) -> None:
        self._warm_turns = warm_turns
        self._listening = list(await asyncio.gather(*(self._arrive() for _ in range(clients))))
        self._progress(f"{clients} clients listen: {self._kib():,} KiB")
        async with asyncio.TaskGroup() as group:
            for number in range(SPEAKERS):
                group.create_task(self._speak(number))
            group.create_task(self._come_and_go())
            async with asyncio.timeout(PATIENCE * 10):  # every turn has a limit of its own, and the machine other work
                await self._warm.wait()
            self.counted["KiB before"] = self._kib()
            slow = await self._slow()
            await self._watch(seconds)
            self.counted["KiB after"] = self._kib()
            self.counted["slow callbacks"] = await self._slow() - slow
            self._leaving = True
        alive = sum(not ears.done() for _, ears in self._listening)
        assert alive == clients, f"{clients - alive} of those who only listened were shown out"
        for socket, ears in self._listening:
            ears.cancel()
            socket.transport.abort()

    async def _watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(30.0, left))
            counted = ", ".join(f"{count:,} {what}" for what, count in self.counted.items())
            self._progress(f"{until - time.monotonic():.0f} s to go: {self._kib():,} KiB, {counted}")

    async def _speak(self, number: int) -> None:
        """Turns without end. One that is not answered in time fails the run."""
        turns = itertools.count()
        while not self._leaving:
            socket = await self._connected()
            for turn in itertools.takewhile(lambda _: not self._leaving, itertools.islice(turns, TURNS_OF_A_VISIT)):
                key = f"agent:main:explicit:soak-{number}-{turn // TURNS_OF_A_SESSION}"
                async with asyncio.timeout(PATIENCE):
                    await self._turn(socket, key, f"{number} says {turn}")
                self.counted["turns"] += 1
                if self.counted["turns"] >= self._warm_turns:
                    self._warm.set()
                    await asyncio.sleep(self._dice.uniform(*PACE))
            socket.transport.abort()

    async def _turn(self, socket: ClientConnection, key: str, words: str) -> None:
        said = {"sessionKey": key, "message": words, "idempotencyKey": words}
        await socket.send(json.dumps({"type": "req", "id": words, "method": "chat.send", "params": said}))
        while True:
            frame = json.loads(await socket.recv())
            assert frame.get("ok", True), frame
            payload = frame.get("payload", {})
            if payload.get("state") == "final" and payload["sessionKey"] == key:
                assert payload["message"]["content"][0]["text"] == f"heard: {words}", payload
                return

    async def _come_and_go(self) -> None:
        while not self._leaving:
            place = self._dice.randrange(len(self._listening))
            socket, ears = self._listening[place]
            ears.cancel()
            if self._dice.random() < 0.5:
                socket.transport.abort()
            else:
                await socket.close()
            self._listening[place] = await self._arrive()
            self.counted["came and went"] += 1
            await asyncio.sleep(self._dice.uniform(0, 0.1))

    async def _arrive(self) -> tuple[ClientConnection, asyncio.Task[None]]:
        async with self._door:
            socket = await self._connected()
        return socket, asyncio.create_task(_listen(socket))

    async def _connected(self) -> ClientConnection:
        async with asyncio.timeout(PATIENCE):
            socket = await connect(self._url.replace("http", "ws"), proxy=None, ping_interval=None, max_size=None)
            asked = {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": self._token}}
            await socket.send(json.dumps({"type": "req", "id": "hello", "method": "connect", "params": asked}))
            frame: dict[str, Any] = {}
            while frame.get("id") != "hello":
                frame = json.loads(await socket.recv())
            assert frame["ok"], frame
        return socket

    def _kib(self) -> int:
        status = Path(f"/proc/{self._talk.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]  # it is always there

    async def _slow(self) -> int:
        """Callbacks so far that held the loop, as the gateway has counted them."""
        told = SLOW.search(await asyncio.to_thread(self._metrics))
        assert told, "/metrics does not tell of slow callbacks"
        return int(told[1])

    def _metrics(self) -> str:
        place = urlsplit(self._url)
        connection = HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._token}"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()


async def _listen(socket: ClientConnection) -> None:
    async for _ in socket:
        pass


async def _forget(wire: WireServer) -> None:
    """The model's server keeps what it was asked, for those who want to see it. Here nobody does."""
    while True:
        await asyncio.sleep(5.0)
        for kept in (wire.requests, wire.raw, wire.headers, wire.paths):
            kept.clear()


def _files() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _allow_files(clients: int) -> None:
    """This process has as many sockets as the gateway."""
    soft, hard = _files()
    wanted = clients + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
