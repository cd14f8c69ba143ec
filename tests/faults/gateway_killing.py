"""Kill -9 the gateway again and again while many clients talk to it over WebSockets, each in its own session.

The clients come back by themselves (returning.py). After each kill, what was acknowledged must be in the file; at the
end every message has one place in its transcript, in the order in which it was said, and one answer, which is the one
that its client heard.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator

from audit import Stored, audit, check_answered_once, check_valid
from killing import slow_parrot
from returning import ReturningClient

from homes import PATIENCE, PalHome, Talk
from palinurus.domain.messages import AssistantMessage, UserMessage
from support.wire import WireServer

START_SECONDS = 1.0  # within which a gateway has usually started


async def kill_the_gateway(
    home: PalHome, *, kills: int, sessions: int, seed: int, progress: Callable[[str], None] = lambda _: None
) -> Counter[str]:
    """What was counted. Raises AssertionError, with the seed in it, when a promise was broken."""
    try:
        async with WireServer(otherwise=slow_parrot) as wire:
            home.set_up(wire.base_url, agents={"maxConcurrent": sessions})
            siege = _Siege(home, wire, random.Random(seed), progress)
            await siege.run(kills, sessions)
            return siege.counted
    except* AssertionError as group:
        failed: BaseException = group
        while isinstance(failed, BaseExceptionGroup):
            failed = failed.exceptions[0]
        raise AssertionError(f"seed {seed}: {failed}") from failed
    raise AssertionError("not reached")  # for the type checker


def _words(name: str, dice: random.Random) -> Iterator[str]:
    """Each is said once, so that it can be its own idempotency key. Some have tools used."""
    for number in itertools.count():
        yield f"{'look, ' if dice.random() < 0.2 else ''}{name} says {number}"


class _Siege:
    """Implements returning.House."""

    def __init__(self, home: PalHome, wire: WireServer, dice: random.Random, progress: Callable[[str], None]) -> None:
        self.token = ""
        self.counted: Counter[str] = Counter()
        self._home = home
        self._wire = wire
        self._dice = dice
        self._progress = progress
        self._clients: list[ReturningClient] = []
        self._gateway: Talk | None = None
        self._address = ""  # empty while there is no gateway
        self._started = 0
        self._moved = asyncio.Condition()
        self._replies = 0
        self._news = asyncio.Event()

    async def address(self, after: int) -> tuple[int, str]:
        try:
            async with asyncio.timeout(PATIENCE), self._moved:
                await self._moved.wait_for(lambda: self._address and self._started > after)
        except TimeoutError:
            gateway = self._gateway
            seen = f"alive {gateway.alive}, said {gateway.heard} {gateway.complaints}" if gateway else "none"
            raise AssertionError(f"no gateway after number {after}; now number {self._started}: {seen}") from None
        return self._started, self._address

    async def run(self, kills: int, sessions: int) -> None:
        await self._start()
        for number in range(sessions):
            name, method = f"c{number:02}", ("chat.send", "agent")[number % 2]
            words = _words(name, random.Random(self._dice.random()))
            self._clients.append(ReturningClient(name, self, words, method, self._on_reply))
        try:
            async with asyncio.TaskGroup() as living:
                for client in self._clients:
                    living.create_task(client.live())
                for number in range(kills):
                    self._progress(f"kill {number + 1} of {kills}, after {self._replies:,} replies")
                    await self._until_busy(sessions)
                    await self._kill()
                    await self._start()
                for client in self._clients:
                    client.leave()
            await self._end()
        finally:
            if self._gateway is not None:
                await self._gateway.kill()
        self._check()

    async def _start(self) -> None:
        while True:
            self._gateway = gateway = await self._home.start(*self._home.command, "gateway", "run", "--port", "0")
            if self._dice.random() > 0.2 or not self._clients:
                break
            # Not a wait for something to happen: one that is killed while it starts is the fault that is tried.
            await asyncio.sleep(self._dice.uniform(0, START_SECONDS))
            await self._kill()
            self.counted["killed while starting"] += 1
        line = await gateway.until(lambda said: said.startswith("pal gateway at "))
        self.token = (self._home.root / "gateway.token").read_text().strip()
        async with self._moved:
            self._started += 1
            self._address = line.split()[3].replace("http", "ws")
            self._moved.notify_all()

    def _on_reply(self) -> None:
        self._replies += 1
        self._news.set()

    async def _until_busy(self, sessions: int) -> None:
        """So many replies later that everybody talks again; then a moment more, so that any instant may be hit."""
        enough = self._replies + self._dice.randint(sessions, 3 * sessions)
        async with asyncio.timeout(PATIENCE * 2):
            while self._replies < enough:
                self._news.clear()
                await self._news.wait()
        await asyncio.sleep(self._dice.uniform(0, 0.03))

    async def _kill(self) -> None:
        assert self._gateway is not None
        self._address = ""
        await self._gateway.kill()
        assert self._gateway.complaints == "", self._gateway.complaints
        self.counted["kills"] += 1
        acknowledged = [text for client in self._clients for text in client.acknowledged]
        if (file := self._home.stored()) is not None:
            audit(file).check_kept(acknowledged)
        for body in self._wire.requests:
            check_valid(body)
        self._wire.requests.clear()
        self._wire.raw.clear()

    async def _end(self) -> None:
        """Let it go in peace."""
        assert self._gateway is not None
        self._gateway.process.terminate()
        ended = await self._gateway.ended()
        assert (ended.code, ended.err) == (0, ""), ended

    def _check(self) -> None:
        file = self._home.stored()
        assert file is not None
        stored = audit(file)
        assert stored.pending == []
        messages = [message for client in self._clients for message in client.messages]
        assert stored.times_said() == Counter(message.text for message in messages)
        for client in self._clients:
            self._check_client(client, stored)
        self.counted["messages"] = len(messages)
        self.counted["came back"] = sum(len(client.lost) for client in self._clients)
        self.counted["looked up"] = sum("wait" in dict(message.answers) for message in messages)

    def _check_client(self, client: ReturningClient, stored: Stored) -> None:
        said = [message.text for message in client.messages]
        assert stored.said(client.session) == said, f"{client.name}: the order is not kept"
        twice = [run for run, times in client.finals.items() if times > 1]
        assert not twice, f"{client.name}: told twice how they ended: {twice}"
        story = stored.sessions[client.session]
        check_answered_once(story)
        replies = _replies(story)
        for message in client.messages:
            heard = {words for _, words in message.answers}
            assert heard == {replies[message.text]}, f"{message} is answered by {replies[message.text]!r}"
        told = [text for role, text in client.history if role == "user"]
        assert told == said[-len(told) :], f"{client.name}: its history is another one"


def _replies(story: list[object]) -> dict[str, str]:
    """What was said last before the next user's message, by the words that it answers."""
    found, words = {}, ""
    for message in story:
        if isinstance(message, UserMessage):
            words = message.text
        elif isinstance(message, AssistantMessage) and not message.calls:
            found[words] = message.text
    return found
