"""Kill -9 at random moments of a streaming turn, again and again on one home: nothing acknowledged is lost.

Each round starts a worker, has one turn answered (whatever the last kill left behind), begins another and kills it at
a moment that the seed decides: while the process starts, when the message is on its way, when it was accepted, between
two pieces of the reply, or between a tool call and its result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from audit import audit, check_answered_once, check_valid

from homes import PalHome, Talk, heard
from palinurus.domain.envelope import Inbound
from support.behaviours import Behaviour, Calls, Json, Says
from support.wire import WireServer

SESSION = "agent:main:main"
CHUNKS = 12
START_SECONDS = 1.0  # within which a worker has usually started


@dataclass(frozen=True)
class Moment:
    """When to kill: so many seconds after the worker has said a word so many times."""

    word: str  # start | sent | accepted | tool | delta
    times: int
    seconds: float

    @classmethod
    def drawn(cls, dice: random.Random) -> Moment:
        word = dice.choice(("start", "sent", "accepted", "tool", "delta", "delta", "delta"))
        seconds = dice.uniform(0, START_SECONDS) if word == "start" else dice.uniform(0, 0.012)
        return cls(word, dice.randint(1, CHUNKS) if word == "delta" else 1, seconds)


def slow_parrot(body: Json) -> Behaviour:
    """Streams its reply in pieces; looks around first when it was asked to look."""
    words = heard(body)
    if words.startswith("look") and body["messages"][-1]["role"] == "user":
        return Calls(("ls", {"path": "."}), ("read", {"path": "SOUL.md"}), text="Looking.")
    return Says(f"heard: {words}, and went on about it for a while", chunks=CHUNKS, delay=0.002)


async def kill_again_and_again(
    home: PalHome, *, kills: int, seed: int, queue: str, progress: Callable[[str], None] = lambda _: None
) -> None:
    """Raises AssertionError, with the seed in it, when a promise was broken."""
    try:
        async with WireServer(otherwise=slow_parrot) as wire:
            await _Rounds(home, wire, random.Random(seed), queue, progress).run(kills)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


class _Rounds:
    def __init__(
        self, home: PalHome, wire: WireServer, dice: random.Random, queue: str, progress: Callable[[str], None]
    ) -> None:
        self._home = home
        self._home.set_up(wire.base_url, queue=queue)
        self._steered = queue == "steer"
        self._wire = wire
        self._dice = dice
        self._progress = progress
        self._acknowledged: list[str] = []

    async def run(self, kills: int) -> None:
        for number in range(kills):
            moment = Moment.drawn(self._dice)
            self._progress(f"kill {number + 1} of {kills}: {moment}")
            await self._round(number, moment)
            self._check()
        worker = await self._home.worker()
        await self._whole_turn(worker, "the last words")
        ended = await worker.leave()
        assert (ended.code, ended.err) == (0, ""), ended
        self._check()
        file = self._home.stored()
        assert file is not None
        stored = audit(file)
        assert stored.pending == []
        check_answered_once(stored.sessions[SESSION], steered=self._steered)

    async def _round(self, number: int, moment: Moment) -> None:
        worker = await self._home.worker()
        try:
            if moment.word != "start":
                await self._whole_turn(worker, f"turn {number} is whole")
                text = f"{'look, ' if moment.word == 'tool' or self._dice.random() < 0.3 else ''}turn {number} is cut"
                await worker.say(_line(text))
                await self._reached(worker, text, moment)
            # Not a wait for something to happen: the length of this pause is the fault that is tried.
            await asyncio.sleep(moment.seconds)
        finally:
            await worker.kill()
        assert worker.complaints == "", worker.complaints
        if moment.word != "start":
            self._note(worker, text)

    async def _reached(self, worker: Talk, text: str, moment: Moment) -> None:
        """Until the moment; or until the turn is over, when it has fewer pieces than that."""
        if moment.word == "sent":
            return
        line, over = f"{moment.word} {text}", f"done {text} ok"
        await worker.until(lambda said: said == over or worker.heard.count(line) >= moment.times)

    async def _whole_turn(self, worker: Talk, text: str) -> None:
        await worker.say(_line(text))
        ended = await worker.until(lambda said: said.startswith(f"done {text}"))
        assert ended == f"done {text} ok", ended
        self._note(worker, text)

    def _note(self, worker: Talk, text: str) -> None:
        if f"accepted {text}" in worker.heard:
            self._acknowledged.append(text)

    def _check(self) -> None:
        if (file := self._home.stored()) is not None:  # the first kill may come before anything was stored
            audit(file).check_kept(self._acknowledged)
        for body in self._wire.requests:
            check_valid(body)
        self._wire.requests.clear()
        self._wire.raw.clear()


def _line(text: str) -> str:
    """The text is its own idempotency key: each is said once."""
    return msgspec.json.encode(Inbound(text, text, session_key=SESSION)).decode()
