"""Kill -9 a gateway with a channel, again and again, while people write to it and their network has faults.

Several people and a group write; the model repeats what each said, in one to three messages of the network. Kills come
while the gateway starts, when a message is written, when the model is asked, and in the very moment in which a message
of the agent was shown and the gateway has not been told. At the end each part of each answer was shown once, or its
delivery is ambiguous or failed and says why; then a person decides, and only a part that was in doubt may come twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from channels.network import FakeNetwork, Fault, SentMessage
from channels.networks.discord import FakeDiscord
from channels.networks.email import FakeMail
from channels.networks.slack import FakeSlack
from channels.networks.telegram import FakeTelegram
from channels.networks.webhook import FakeProgram
from channels.networks.whatsapp import FakeWhatsApp
from homes import PATIENCE, PalHome, Talk
from palinurus.config.home import find_home
from palinurus.dispatch.delivery import DeliveryJob, delivery_of
from palinurus.operations.jobs import retry_delivery
from palinurus.runtime.home_access import HomeAccess
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, JobQueue, State
from support.behaviours import Behaviour, Calls, Json, Says
from support.wire import WireServer

T = TypeVar("T")
NETWORKS: Mapping[str, Callable[[], FakeNetwork]] = {
    "telegram": FakeTelegram,
    "discord": FakeDiscord,
    "slack": FakeSlack,
    "whatsapp": FakeWhatsApp,
    "email": FakeMail,
    "custom": FakeProgram,
}
PEOPLE = {"slack": "U042", "email": "42@people.example"}  # the owner; the others have the next numbers
OWNER = "42"  # where PEOPLE says nothing else
GROUPS = {"custom": "harbour", "telegram": "-1007", "discord": "700", "slack": "C007"}
FRIENDS = 6
CHATS = FRIENDS + 1
SENDING: Sequence[Fault] = (
    "rate-limit", "rate-limit", "rate-limit", "server-error", "cut-before", "cut-after", "malformed", "gone",
    "no-parse", "long-rate-limit",
)  # fmt: skip
DOUBTFUL = {"server-error", "cut-before", "cut-after", "malformed"}
SAID = re.compile(r"(\w+) says (\d+)")
SHOWN = re.compile(r"(\w+) says (\d+), part (\d+) of \d+")
FILLER = "The harbour master notes the tide, the wind and every sail that he sees. "
OPEN: Sequence[State] = ("waiting", "retry", "running")
ALL = 1_000_000
RUNS = "SELECT count(*), coalesce(sum(state = 'running'), 0) FROM jobs WHERE kind = 'run'"
CURSORS = "SELECT count(*) FROM channel_cursors"
STALLED = 3.0  # seconds in which the moment of a kill should have come
START_SECONDS = 1.5  # within which a gateway has usually started


class Words(Struct, frozen=True, order=True):
    """What somebody wrote."""

    chat: str
    number: int

    @property
    def parts(self) -> int:
        return 1 + self.number % 3

    @property
    def text(self) -> str:
        return f"{self.chat} says {self.number}"

    def answer(self) -> str:
        """Each paragraph is a message of its own."""
        return "\n\n".join(f"{self.text}, part {each + 1} of {self.parts}\n{FILLER * 2}" for each in range(self.parts))


class KillMoment(Struct, frozen=True):
    """When to kill: at the so-many-eth time that something happens, and perhaps a little later."""

    what: str  # written | asked | shown
    times: int
    seconds: float

    @classmethod
    def drawn(cls, dice: random.Random, written: int) -> KillMoment:
        what = dice.choice(("written", "asked", "asked", "shown", "shown", "shown"))
        return cls(what, dice.randint(1, max(1, written)), dice.choice((0.0, dice.uniform(0, 0.03))))


class ShownMessages(list[SentMessage]):
    """What the network has shown, with a listener."""

    def __init__(self, on_shown: Callable[[], None]) -> None:
        super().__init__()
        self._on_shown = on_shown

    def append(self, message: SentMessage, /) -> None:
        super().append(message)
        self._on_shown()


async def kill_a_channel(
    root: Path,
    network: str,
    *,
    messages: int,
    kills: int,
    seed: int,
    streaming: str = "off",
    progress: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """What was counted. Raises AssertionError, with the seed in it, when a promise was broken."""
    fake = NETWORKS[network]()
    await fake.start()
    try:
        siege = _ChannelSiege(PalHome(root), fake, random.Random(seed), streaming, progress)
        async with WireServer(otherwise=siege.reply) as wire:
            siege.configure(wire.base_url)
            await siege.run(messages, kills)
    except AssertionError as error:
        raise AssertionError(f"{network}, seed {seed}: {error}") from error
    else:
        return siege.counted
    finally:
        await fake.stop()


class _ChannelSiege:
    def __init__(
        self,
        home: PalHome,
        network: FakeNetwork,
        dice: random.Random,
        streaming: str,
        progress: Callable[[str], None],
    ) -> None:
        self.counted: Counter[str] = Counter()
        self._home = home
        self._network = network
        self._dice = dice
        self._streaming = streaming
        self._progress = progress
        network.sent = ShownMessages(lambda: self._happens("shown"))
        self._gateway: Talk | None = None
        self._written: list[Words] = []
        self._asked: set[Words] = set()
        self._moment: KillMoment | None = None
        self._seen: Counter[str] = Counter()
        self._reached = asyncio.Event()

    # The world

    def configure(self, base_url: str) -> None:
        name, owner = self._network.channel, _person(self._network.channel, 0)
        account = self._network.config() | {
            "dmPolicy": "open",
            "allowFrom": ["*"],
            "groupPolicy": "open",
            "chunkMode": "newline",
            "streaming": self._streaming,
        }
        self._home.set_up(base_url, agents={"blockStreamingChunk": {"minChars": 50, "maxChars": 300}})
        path = self._home.root / "palinurus.json"
        config = json.loads(path.read_text()) | {
            "channels": {name: account},
            "commands": {"ownerAllowFrom": [f"{name}:{owner}"]},
            "session": {"dmScope": "per-channel-peer"},
            "messages": {"queue": {"mode": "followup", "cap": 100}},
        }
        path.write_text(json.dumps(config))

    def reply(self, body: Json) -> Behaviour:
        """The model. Now and then it looks around first."""
        users = [str(message["content"]) for message in body["messages"] if message["role"] == "user"]
        chat, number = SAID.findall(users[-1])[-1]
        words = Words(chat, int(number))
        if words not in self._asked:
            self._asked.add(words)
            self._happens("asked")
        if words.number % 7 == 6 and body["messages"][-1]["role"] == "user":
            return Calls(("ls", {"path": "."}), text="Looking.")
        return Says(words.answer(), chunks=6, delay=0.004)

    async def _write(self, number: int) -> None:
        channel = self._network.channel
        place = self._dice.randrange(CHATS if channel in GROUPS else FRIENDS)
        name = f"p{place}" if place < FRIENDS else "g"
        words = Words(name, number)
        if self._dice.random() < 0.3:
            fault = self._dice.choice(SENDING)
            self._network.fail(fault)
            self.counted[fault] += 1
        self._written.append(words)
        sender = _person(channel, place if name != "g" else self._dice.randrange(FRIENDS))
        chat = GROUPS[channel] if name == "g" else ""
        thread = name if channel == "email" else ""  # each thread of mails is a session of its own
        await self._network.write(
            words.text, sender=sender, sender_name="Ada", chat=chat, thread=thread, mention=name == "g"
        )
        self._happens("written")
        await self._disturb()

    async def _disturb(self) -> None:
        drawn = self._dice.random()
        if drawn < 0.08:
            await self._network.repeat()
            self.counted["repeated"] += 1
        elif drawn < 0.12:
            await self._network.disconnect()
            self.counted["disconnected"] += 1
        elif drawn < 0.14:
            await self._network.garble()
            self.counted["garbled"] += 1
        elif drawn < 0.18 and isinstance(self._network, FakeTelegram):
            code = self._dice.choice((429, 500, 502))
            self._network.refuse("getUpdates", code, "trouble", **({"retry_after": 0.01} if code == 429 else {}))

    # The kills

    async def run(self, messages: int, kills: int) -> None:
        try:
            await self._start()
            while isinstance(self._network, FakeMail) and not await self._read_home(
                lambda database: database.read(lambda tx: tx.execute(CURSORS).fetchone()[0])
            ):
                await asyncio.sleep(0.05)  # mail that was there before an account is none of the agent's
            for number in range(kills):
                count = messages * (number + 1) // kills - len(self._written)
                self._progress(f"kill {number + 1} of {kills}, after {len(self._written)} messages")
                await self._round(count)
                await self._start()
            await self._drain()
            before = await self._deliveries()
            self._check(before)
            await self._decide(before)
            await self._drain()
            self._check_decided(before, await self._deliveries())
            await self._end()
        finally:
            if self._gateway is not None:
                await self._gateway.kill()

    async def _round(self, count: int) -> None:
        self._seen.clear()
        self._reached.clear()
        self._moment = KillMoment.drawn(self._dice, count)
        for _ in range(count):
            await self._write(len(self._written))
            # Not a wait for something to happen: the pace at which people write.
            await asyncio.sleep(self._dice.uniform(0, 0.03))
        try:
            async with asyncio.timeout(STALLED):
                await self._reached.wait()
        except TimeoutError:
            self.counted["killed at rest"] += 1
        await self._kill()

    def _happens(self, what: str) -> None:
        self._seen[what] += 1
        moment = self._moment
        if moment is None or what != moment.what or self._seen[what] < moment.times or self._reached.is_set():
            return
        self._reached.set()
        if moment.seconds:
            asyncio.get_running_loop().call_later(moment.seconds, self._strike)
        else:
            self._strike()  # nothing that was under way in this instant is answered any more

    def _strike(self) -> None:
        gateway = self._gateway
        if gateway is not None and gateway.alive:
            os.kill(gateway.pid, signal.SIGKILL)

    async def _kill(self) -> None:
        assert self._gateway is not None
        if self._moment is not None and self._moment.seconds:
            await asyncio.sleep(self._moment.seconds)
        self._moment = None
        await self._gateway.kill()
        assert "Traceback" not in self._gateway.complaints, self._gateway.complaints
        self.counted["kills"] += 1

    async def _start(self) -> None:
        while True:
            self._gateway = await self._home.start(*self._home.command, "gateway", "run", "--port", "0")
            if self._dice.random() > 0.15 or not self._written:
                break
            # Not a wait for something to happen: one that is killed while it starts is the fault that is tried.
            await asyncio.sleep(self._dice.uniform(0, START_SECONDS))
            await self._kill()
            self.counted["killed while starting"] += 1
        line = await self._gateway.until(lambda said: said.startswith("pal gateway at "))
        if isinstance(self._network, FakeProgram | FakeWhatsApp):
            self._network.gateway_url = line.split()[3].rstrip("/")

    async def _end(self) -> None:
        """Let it go in peace."""
        assert self._gateway is not None
        self._gateway.process.terminate()
        ended = await self._gateway.ended()
        assert ended.code == 0, ended
        assert "Traceback" not in ended.err, ended

    async def _drain(self) -> None:
        """Until every message has an answer, and nothing waits to be sent. A connection ends long pauses."""
        async with asyncio.timeout(PATIENCE * 4):
            while heads := await self._open():
                if None not in heads and all(job.state == "retry" for job in heads if job):
                    await self._end()
                    await self._start()
                    while await self._open() == heads:
                        await asyncio.sleep(0.05)
                await asyncio.sleep(0.05)

    async def _open(self) -> list[Job | None]:
        """The first delivery of each chat that is not done; None for messages without a reply."""
        runs, going = await self._read_home(lambda database: database.read(lambda tx: tx.execute(RUNS).fetchone()))
        waiting = await self._read_home(
            lambda database: JobQueue(database).recent(kinds=["delivery:*"], states=OPEN, limit=ALL)
        )
        heads = {job.lane: job for job in waiting}  # newest first, so that the oldest of each stays
        return [*heads.values(), *([None] if going or runs < len(self._written) else [])]

    async def _read_home(self, read: Callable[[Database], Awaitable[T]]) -> T:
        database = Database(self._home.database, "home", readonly=True)
        try:
            return await read(database)
        finally:
            await database.close()

    # What must be true

    async def _deliveries(self) -> list[DeliveryJob]:
        kept = await self._read_home(lambda database: JobQueue(database).recent(kinds=["delivery:*"], limit=ALL))
        return [delivery_of(job) for job in reversed(kept)]

    def _shown(self) -> dict[tuple[Words, int], list[SentMessage]]:
        shown: dict[tuple[Words, int], list[SentMessage]] = {}
        for message in self._network.sent:
            for found in SHOWN.finditer(message.text):
                words, part = Words(found[1], int(found[2])), int(found[3])
                assert words in self._asked, f"an answer to nobody: {message.text}"
                assert message.chat == self._chat_of(words), f"{words} was answered in {message.chat}"
                shown.setdefault((words, part), []).append(message)
        return shown

    def _chat_of(self, words: Words) -> str:
        channel = self._network.channel
        return GROUPS[channel] if words.chat == "g" else _person(channel, int(words.chat[1:]))

    def _check(self, deliveries: Sequence[DeliveryJob]) -> None:
        assert set(self._asked) == set(self._written), set(self._written) - set(self._asked)
        shown, orphans = self._shown(), 0
        for words in self._written:
            own = [each for each in deliveries if f"{words.text}, part" in each.text]
            assert own, f"{words} has no answer"
            for part in range(1, words.parts + 1):
                times = len(shown.get((words, part), ()))
                named = [each for each in own if f"{words.text}, part {part} of" in each.text]
                assert named, f"part {part} of the answer to {words} was left out"
                if times == 0:
                    assert any(each.state in ("ambiguous", "failed") for each in named), (words, part, named)
                orphans += max(0, times - 1)
                assert times <= 1 or (self._streaming == "partial" and part == 1), (words, part, times)
        for each in deliveries:
            self.counted[each.state] += 1
            is_in_reply = each.state == "dropped" and each.block is not None  # the reply says it
            assert each.state == "sent" or is_in_reply or each.trouble, each
            assert each.state in ("sent", "ambiguous", "failed") or is_in_reply, each
        assert self.counted["ambiguous"] <= self._most_doubtful(), self.counted
        assert orphans <= self._most_doubtful(), orphans
        self.counted["previews left behind"] = orphans
        self.counted["messages"] = len(self._written)
        self._check_order()

    def _most_doubtful(self) -> int:
        """Each fault makes one message doubtful, each kill those that are on their way: one in each chat."""
        return sum(self.counted[fault] for fault in DOUBTFUL) + CHATS * self.counted["kills"]

    def _check_order(self) -> None:
        for chat in {words.chat for words in self._written}:
            order = [key for key in self._shown() if key[0].chat == chat]
            assert order == sorted(order), f"{chat}: {order}"

    async def _decide(self, deliveries: Sequence[DeliveryJob]) -> None:
        """A person has everything sent again that is in doubt."""
        async with HomeAccess(find_home(self._home.env), self._home.env, "test", warn=self._progress) as access:
            for each in deliveries:
                if each.state == "ambiguous":
                    await access.call(retry_delivery, retry_delivery.params(each.id), f"again:{each.id}")

    def _check_decided(self, before: Sequence[DeliveryJob], after: Sequence[DeliveryJob]) -> None:
        """Only the part that was in doubt may have come twice."""
        left = {each.id for each in after if each.state != "sent"}
        doubtful = {each.run_id for each in before if each.state == "ambiguous"}
        assert {each.id for each in after if each.state == "ambiguous"} <= {each.id for each in before}
        for words in self._written:
            own = [each for each in after if f"{words.text}, part" in each.text]
            counts = [len(self._shown().get((words, part), ())) for part in range(1, words.parts + 1)]
            if not any(each.id in left for each in own):
                assert min(counts) >= 1, (words, counts)
            if self._streaming == "off":
                doubled = sum(max(0, times - 1) for times in counts)
                assert doubled <= sum(each.run_id in doubtful for each in own), (words, counts)


def _person(channel: str, place: int) -> str:
    return re.sub(r"\d+", lambda own: f"{int(own[0]) + place:0{len(own[0])}}", PEOPLE.get(channel, OWNER), count=1)
