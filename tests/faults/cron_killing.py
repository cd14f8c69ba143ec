"""Kill -9 a gateway again and again while cron jobs are due every few seconds: reminders, runs of the agent, and some
that are due once. At the end each due time has one row, which says what became of it, and what was to be told was told
once.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from homes import PATIENCE, PalHome, Talk
from palinurus.sessions.transcript import SENT
from support.wire import Behaviour, Json, Says, WireServer

START_SECONDS = 1.0  # within which a gateway has usually started
EVERY_MS = {"all": 2_000, "once": 3_000}  # of the jobs, by what is done about missed due times
OPEN = ("waiting", "running", "retry")


def _slowly(_: Json) -> Behaviour:
    return Says("The tide turns at noon, and then it goes on for a while.", chunks=12, delay=0.05)


class CronSiege:
    def __init__(self, home: PalHome, dice: random.Random, progress: Callable[[str], None]) -> None:
        self._home = home
        self._dice = dice
        self._progress = progress
        self._gateway: Talk | None = None
        self._first: dict[str, int] = {}  # when each job is due first, by its id
        self._jobs: dict[str, str] = {}  # what each does, by its id
        self._stopped: dict[str, tuple[int, int]] = {}  # between which moments it was disabled
        self.counted: Counter[str] = Counter()

    async def run(self, kills: int) -> Counter[str]:
        try:
            await self._start()
            for name, words in {
                "told": ("--cron", "*/2 * * * * *", "--reminder", "stretch", "--catch-up", "all"),
                "run": ("--cron", "*/3 * * * * *", "--message", "When does the tide turn?", "--catch-up", "once"),
            }.items():
                await self._add(name, *words)
            for number in range(kills):
                self._progress(f"kill {number + 1} of {kills}")
                await self._add("once", "--at", f"{self._dice.randint(1, 4)}s", "--reminder", "tea", "--keep")
                # No wait for something to happen: the instant of the kill is what is drawn.
                await asyncio.sleep(self._dice.uniform(0.2, 3.0))
                await self._kill()
                await self._start()
            for job, name in self._jobs.items():
                if name != "once":
                    began = _now()
                    await self._pal("cron", "disable", job)
                    self._stopped[job] = began, _now()
            await self._until_ended()
            await self._end()
        finally:
            if self._gateway is not None:
                await self._gateway.kill()
        self._check()
        return self.counted

    async def _start(self) -> None:
        while True:
            self._gateway = gateway = await self._home.start(*self._home.command, "gateway", "run", "--port", "0")
            if self._dice.random() > 0.3 or not self._jobs:
                break
            await asyncio.sleep(self._dice.uniform(0, START_SECONDS))
            await self._kill()
            self.counted["killed while starting"] += 1
        await gateway.until(lambda said: said.startswith("pal gateway at "))

    async def _kill(self) -> None:
        assert self._gateway is not None
        await self._gateway.kill()
        assert self._gateway.complaints == "", self._gateway.complaints
        self.counted["kills"] += 1

    async def _end(self) -> None:
        assert self._gateway is not None
        self._gateway.process.terminate()
        ended = await self._gateway.ended()
        assert (ended.code, ended.err) == (0, ""), ended

    async def _pal(self, *words: str) -> Any:
        ended = await self._home.pal(*words, "--json")
        assert ended.code == 0, ended
        return json.loads(ended.out)

    async def _add(self, name: str, *words: str) -> None:
        made = await self._pal("cron", "add", "--name", name, *words)
        self._first[made["id"]] = round(datetime.fromisoformat(made["nextRunAt"]).timestamp() * 1000)
        self._jobs[made["id"]] = name

    async def _until_ended(self) -> None:
        async with asyncio.timeout(PATIENCE * 2):
            while any(state in OPEN for states in self._rows().values() for _, _, state in states):
                await asyncio.sleep(0.2)

    # -- what is seen --

    def _read(self, query: str, **values: Any) -> list[Any]:
        with closing(apsw.Connection(str(self._home.database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(5_000)
            return connection.execute(query, values).fetchall()

    def _rows(self) -> dict[str, list[tuple[str, int, str]]]:
        """Of each job: id, due time and how it ended, in the order of the due times."""
        found: dict[str, list[tuple[str, int, str]]] = {job: [] for job in self._jobs}
        query = """SELECT lane, id, payload ->> '$.at', coalesce(outcome ->> '$.status', state)
            FROM jobs WHERE kind = 'schedule.due' ORDER BY 3"""
        for job, row, at, state in self._read(query):
            found[job].append((row, at, state))
        return found

    def _check(self) -> None:
        assert self._read("PRAGMA integrity_check") == [("ok",)]
        told = Counter(
            entry.split(":")[1]
            for (entry,) in self._read("SELECT id FROM entries WHERE id GLOB 'schedule.due:*'")
            if SENT in entry
        )
        for job, rows in self._rows().items():
            name = self._jobs[job]
            self._check_times(job, name, [at for _, at, _ in rows])
            last = max(at for _, at, state in rows if state == "ran")
            for row, at, state in rows:
                assert told[row] == (state == "ran"), f"{name}: {row} was told {told[row]} times"
                # A run is missed for a newer one; what waits for the run before when the job is disabled is skipped.
                is_right = state == "ran" or (name == "run" and state == ("missed" if at < last else "skipped"))
                assert is_right, (name, self._stopped.get(job), rows)
                self.counted[f"{name} {state}"] += 1

    def _check_times(self, job: str, name: str, times: list[int]) -> None:
        first = self._first[job]
        if name == "once":
            assert times == [first], f"it was due at {first}, and there are rows for {times}"
            return
        every = EVERY_MS["all" if name == "told" else "once"]
        before, after = self._stopped[job]
        wanted = list(range(first, after + 1, every))
        certain = [at for at in wanted if at <= before]
        assert times in (certain, *(wanted[:end] for end in range(len(certain), len(wanted) + 1))), (times, wanted)


def _now() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


async def kill_the_clock(
    root: Path, *, kills: int, seed: int, progress: Callable[[str], None] = lambda _: None
) -> Counter[str]:
    """What was counted. Raises AssertionError, with the seed in it, when a promise was broken."""
    async with WireServer(otherwise=_slowly) as wire:
        home = PalHome(root)
        home.set_up(wire.base_url)
        began = time.monotonic()
        try:
            counted = await CronSiege(home, random.Random(seed), progress).run(kills)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        progress(f"it took {time.monotonic() - began:.0f} s")
        return counted
