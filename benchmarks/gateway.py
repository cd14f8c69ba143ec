"""The gateway beside other servers: how soon it is ready, what it weighs, and what a turn through it costs.

All are started, and asked at `/v1/chat/completions`, one after the other in every round, ours again between any two of
them, so that a slow minute of the machine is slow for all. Every session is new and has as many turns for one server
as for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure
from benchmarks.gateway_client import Crowd, ask_all
from benchmarks.gateway_servers import PEERS, Running, Server, ours
from benchmarks.processes import Broken

STARTS = 2  # that are measured, after one that makes the home
LEVELS = {1: 8, 8: 4, 32: 4, 128: 1}  # sessions at once, and turns of each
AT_LEAST = 1.5  # seconds of asking, before a figure is taken from it
SETTLE_SECONDS = 2.0
LONG = (128, 8)  # sessions and turns of the run that counts what is refused, lost or out of order
OURS = "pal"

Note = Callable[[str], None]
Env = Callable[[Path], Mapping[str, str]]  # of a home


class Gateways:
    def __init__(
        self, pal: Path, folder: Path, model: str, env: Callable[[Path], Mapping[str, str]], note: Note
    ) -> None:
        self._pal = pal
        self._folder = folder
        self._model = model
        self._env = env
        self._note = note
        self._running: dict[str, Running] = {}
        self._taken: dict[str, dict[str, list[float]]] = {}
        self._crowds = 0

    async def measure(self, *, peers: bool) -> list[Figure]:
        servers = [ours(self._pal), *(PEERS if peers else ())]
        try:
            for number in range(STARTS + 1):
                for server in servers:
                    await self._start(server, measured=number > 0)
            await asyncio.sleep(SETTLE_SECONDS)
            self._weigh("idle")
            await self._ask_all(servers)
            self._weigh("afterwards")
            return [*self._figures(), await self._long_run()]
        finally:
            for running in self._running.values():
                running.stop()

    async def _start(self, server: Server, *, measured: bool) -> None:
        if not Path(server.argv[0]).exists():
            return self._leave_out(server.name, "it is not installed")
        if server.name in self._running:
            self._running.pop(server.name).stop()
        elif measured:
            return None  # it was left out
        home = self._folder / f"gateway-{server.name}"
        home.mkdir(exist_ok=True)
        running = self._running[server.name] = Running(server, home, self._model, self._env(home))
        try:
            seconds, cpu = await running.ready()
        except Broken as error:
            return self._leave_out(server.name, str(error))
        if measured:
            self._take(server.name, "ready wall", seconds * 1000)
            self._take(server.name, "ready CPU", cpu * 1000)
        return None

    async def _ask_all(self, servers: Sequence[Server]) -> None:
        mine, *others = (server for server in servers if server.name in self._running)
        for server in (mine, *others):
            await self._ask(server.name, 1, 2, kept=False)
        for sessions, turns in LEVELS.items():
            await self._ask(mine.name, sessions, turns)
            for other in others:
                await self._ask(other.name, sessions, turns)
                await self._ask(mine.name, sessions, turns)

    async def _ask(self, name: str, sessions: int, turns: int, *, kept: bool = True) -> None:
        running = self._running.get(name)
        if running is None:
            return None
        seconds, done, before = 0.0, 0, running.cpu()
        while seconds < AT_LEAST:
            crowd = await self._crowd(running, sessions, turns)
            if crowd.refused or crowd.wrong:
                told = f"{crowd.refused} refused, {crowd.wrong} with turns lost or out of order"
                self._note(f"{name}: {sessions} sessions: {told}: {''.join(crowd.complaints[:1])}")
                if name == OURS or not crowd.turns:
                    return self._leave_out(name, "it does not answer")
            seconds, done = seconds + crowd.seconds, done + crowd.turns
        if kept:
            self._take(name, f"turns {sessions}", done / seconds)
            self._take(name, f"CPU {sessions}", (running.cpu() - before) * 1000 / done)
        return None

    async def _crowd(self, running: Running, sessions: int, turns: int) -> Crowd:
        self._crowds += 1
        return await ask_all(running.port, running.server.question, f"crowd{self._crowds}", sessions, turns)

    async def _long_run(self) -> Figure:
        """In one session nothing may be lost or change places, however many others talk."""
        crowd = await self._crowd(self._running[OURS], *LONG)
        missing = LONG[0] * LONG[1] - crowd.turns + crowd.wrong
        name = f"gateway: refused, lost or out of order in {LONG[0]} × {LONG[1]} turns"
        return Figure(name, missing, {}, 0, unit="turns")

    def _weigh(self, when: str) -> None:
        for name, running in self._running.items():
            self._take(name, f"MB {when}", running.megabytes())

    def _take(self, name: str, what: str, value: float) -> None:
        self._taken.setdefault(what, {}).setdefault(name, []).append(value)

    def _leave_out(self, name: str, why: str) -> None:
        if name == OURS:
            raise SystemExit(f"our gateway does not run: {why}")
        self._note(f"{name}: its server is left out: {why}")
        if name in self._running:
            self._running.pop(name).stop()

    def _figures(self) -> list[Figure]:
        def figure(name: str, what: str, limit: float | None = None, **more: object) -> Figure:
            found = {who: median(values) for who, values in self._taken[what].items()}
            return Figure(f"gateway: {name}", found.pop(OURS), found, limit, **more)  # type: ignore[arg-type]

        return [
            figure("CPU until ready", "ready CPU", 2 / 3, limit_is_ratio=True, against="hermes"),
            figure("wall until ready", "ready wall"),
            figure("memory when idle", "MB idle", 80, unit="MB"),
            figure("memory afterwards", "MB afterwards", unit="MB"),
            *(figure(f"CPU of a turn, {_sessions(level)}", f"CPU {level}", 6) for level in LEVELS),
            *(
                figure(
                    f"turns in a second, {_sessions(level)}",
                    f"turns {level}",
                    20 if level == 32 else None,
                    limit_is_ratio=True,
                    more_is_better=True,
                    against="nanobot",
                    unit="/s",
                )
                for level in LEVELS
            ),
        ]


def _sessions(count: int) -> str:
    return f"{count} session{'s' if count > 1 else ''}"
