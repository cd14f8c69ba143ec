"""Two processes on one home, many messages in several sessions, and the holder killed now and then.

Each of the two sends its own messages into every session. A killed one is started again with what it had not seen
answered, under the same idempotency keys, as a client that got no answer would.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from audit import Stored, audit, check_answered_once, check_valid

from homes import PATIENCE, PalHome, Talk, parrot
from palinurus.domain.envelope import Inbound
from support.wire import WireServer

NAMES = ("ann", "ben")


async def talk_all_at_once(
    root: Path,
    *,
    messages: int,
    sessions: int,
    kills: int,
    seed: int,
    queue: str,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Raises AssertionError, with the seed in it, when a message was lost, doubled or out of order."""
    try:
        async with WireServer(otherwise=parrot) as wire:
            home = PalHome(root)
            home.set_up(wire.base_url, queue=queue)
            crowd = _Crowd(home, random.Random(seed), progress)
            await crowd.run(_shares(messages, sessions), kills)
            crowd.check(audit(home.database), steered=queue == "steer")
            for body in wire.requests:
                check_valid(body)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


def _shares(messages: int, sessions: int) -> dict[str, list[Inbound]]:
    shares: dict[str, list[Inbound]] = {name: [] for name in NAMES}
    for number in range(messages):
        name = NAMES[number % 2]
        text = f"{'look, ' if number % 10 == 0 else ''}{name} {number}"
        key = f"agent:main:explicit:room-{number // 2 % sessions}"
        shares[name].append(Inbound(text, text, session_key=key))
    return shares


class _Crowd:
    def __init__(self, home: PalHome, dice: random.Random, progress: Callable[[str], None]) -> None:
        self._home = home
        self._dice = dice
        self._progress = progress
        self._shares: dict[str, list[Inbound]] = {}
        self._answered: set[str] = set()
        self._living: dict[str, Talk] = {}
        self._outputs: list[str] = []
        self._kills = 0
        self._news = asyncio.Event()

    async def run(self, shares: dict[str, list[Inbound]], kills: int) -> None:
        self._shares = shares
        total = sum(map(len, shares.values()))
        marks = sorted(self._dice.sample(range(total // 10, total * 9 // 10), kills))
        try:
            async with asyncio.TaskGroup() as living:
                for name in NAMES:
                    living.create_task(self._live(name))
                for mark in marks:
                    await self._until(mark)
                    await self._kill_the_holder()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        assert self._kills >= kills * 2 // 3, f"only {self._kills} of {kills} kills hit a holder"

    async def _live(self, name: str) -> None:
        """Until all of its messages are answered, however often it is killed on the way."""
        while remaining := self._unanswered(self._shares[name]):
            worker = self._living[name] = await self._home.worker(self._listen)
            try:
                for inbound in remaining:
                    await worker.say(msgspec.json.encode(inbound).decode())
                ended = await worker.leave()
            finally:
                await worker.kill()
            self._outputs.append(ended.out + ended.err)
            assert ended.code in (0, -9), ended.err or ended.out[-2000:]
            assert ended.code != 0 or not self._unanswered(remaining), "it left before everything was answered"

    def _unanswered(self, share: Sequence[Inbound]) -> list[Inbound]:
        return [inbound for inbound in share if inbound.text not in self._answered]

    def _listen(self, line: str) -> None:
        if line.startswith("done "):
            text, _, status = line.removeprefix("done ").rpartition(" ")
            # One that went down with three holders is given up, and its sender is told: that is an answer too.
            if status in ("ok", "aborted"):
                self._answered.add(text)
            self._news.set()

    async def _until(self, mark: int) -> None:
        async with asyncio.timeout(PATIENCE * 5):
            while len(self._answered) < mark:
                self._news.clear()
                await self._news.wait()

    async def _kill_the_holder(self) -> None:
        pid = self._home.holder()
        for worker in self._living.values():
            if worker.pid == pid and worker.alive:
                self._kills += 1
                self._progress(f"{len(self._answered)} answered, killing the holder {pid}")
                worker.process.kill()

    def check(self, stored: Stored, *, steered: bool) -> None:
        assert stored.pending == []
        everything = [inbound for share in self._shares.values() for inbound in share]
        assert stored.times_said() == Counter(inbound.text for inbound in everything)
        for key, story in stored.sessions.items():
            check_answered_once(story, steered=steered)
            for name, share in self._shares.items():
                sent = [inbound.text for inbound in share if inbound.session_key == key]
                assert _of(name, stored.said(key)) == sent, f"{key}: the order of {name} is not kept"
        said = "".join(self._outputs)
        assert "locked" not in said, said
        assert "Traceback" not in said, said


def _of(name: str, texts: Sequence[str]) -> list[str]:
    return [text for text in texts if name in text.split()]
