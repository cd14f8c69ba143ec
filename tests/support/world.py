"""The world around a simulated house: clients, an owner who edits files and turns knobs, and weather.

Everything that happens is a step drawn by the dice; after each step the dead are revived and the witness looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import HolderLost, HomeHeld, QueueFull, StorageError, WaitTimeout
from palinurus.domain.events import Lifecycle, RunResult
from palinurus.domain.keys import SessionKey
from palinurus.memory.tools import memory_write_tool
from palinurus.providers.provider import ModelRequest
from palinurus.runtime.home_access import LOCK_SECONDS
from palinurus.sessions.store import SessionStore
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.jobs import RUN
from palinurus.testing.fakes import SeededIds
from palinurus.tools.approval import Approvals, ApprovalStore
from palinurus.tools.built_in import file_tools
from palinurus.tools.grant_issuer import GrantIssuer
from palinurus.tools.grants import GrantStore
from palinurus.tools.settings import ExecSettings
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

from .faults import CALM, Border, Power, Trace, Weather, dice_for
from .liar import LONE_SURROGATE, SECRETS, lying_tools, words
from .life import TURN_SECONDS, WINDOWS, Life, Outlives, Settings, changed_at_random
from .owner import Owner
from .shelf import MakeShelf, Shelf
from .story import KEYS, Letter
from .virtual import VirtualClock
from .witness import Witness

STOP_SECONDS = 60.0
LOSSES = ("content", "file", "log")  # of a database
REST = 4 * 3600.0  # virtual seconds in which everything must come to rest once the weather is calm


class PromiseBroken(Exception):
    """A check failed. The text says which promise, and how to see it again."""


class World:
    def __init__(self, seed: int, home: Path, make_shelf: MakeShelf) -> None:
        self.trace = Trace()
        self.lives = 0
        self._seed = seed
        self._dice = dice_for(seed, "world")
        self._weather = Weather.drawn(self._dice).with_more(dice_for(seed, "more weather"))
        workspace = home / "workspace"
        workspace.mkdir()
        self._owner = Owner(workspace, self._dice)
        self._clock = VirtualClock(asyncio.get_running_loop())
        ids = SeededIds(seed)
        self._shelf = shelf = make_shelf(self._clock, ids, home)
        self.files = shelf.files
        if self.files is not None:
            self.files.pace = self._pace
        self._view = view = self.files.view() if self.files else shelf
        self._losers: dict[Life, Shelf] = {}  # those whom another life has taken the home from, while they go on
        on_disk = SessionStore(view.database, self._clock, ids)  # which remembers nothing
        self.witness = Witness(on_disk, view.queue, SECRETS, view.audit)
        files = WorkspaceFiles(Boundary(workspace))
        note = memory_write_tool(lambda _: (files.boundary, ""), self._clock)
        tools = (*file_tools(files), note, *lying_tools(lambda: self._life.border))
        database = MemoryDatabase()
        grants = GrantStore(database)
        approvals = Approvals(ApprovalStore(database), GrantIssuer(grants, self._clock, ids, lambda _: ExecSettings()))
        self._outlives = Outlives(
            shelf.sessions,
            shelf.queue,
            files,
            self._clock,
            ids,
            shelf.audit,
            approvals,
            grants,
            self.witness.received,
            tools,
        )
        self._settings = Settings(window=dice_for(seed, "window").choice(WINDOWS))
        self._life = self._new_life()
        self._clients: set[asyncio.Task[None]] = set()
        self._unsent: list[Letter] = []
        self._started: set[Run] = set()  # runs whose turn has come
        self.steps: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (40, self._say),
            (12, self._send_again),
            (8, self._start_over),
            (4, self._compact),
            (5, self._stop),
            (2, self._ask),
            (10, self._edit),
            (6, self._configure),
            (10, self._pause),
            (3, self._sleep_long),
            (1, self._set_clock),
            (3 if self._weather.crash else 1, self._crash),
            (2, self._hand_over),
            *(((6, self._lose_lock), (6, self._lose_file)) if self.files else ()),
        )

    async def run(self, steps: int) -> None:
        self._owner.move_in()
        self._life.border.power.cut()  # what never lived is started like what has died
        await self._revive()
        weights = [weight for weight, _ in self.steps]
        for _ in range(steps):
            ((_, step),) = self._dice.choices(self.steps, weights)
            self.trace.add("step", step.__name__.lstrip("_"))
            await step()
            await asyncio.sleep(self._dice.expovariate(2.0))
            await self._revive()
            await self._check()
        await self._come_to_rest()

    # -- what happens -------------------------------------------------------------------------------------------------

    async def _say(self) -> None:
        for _ in range(self._dice.choice((1, 1, 1, 2, 3, 8))):
            self._post(words(self._dice))

    async def _start_over(self) -> None:
        self._post(words(self._dice) if self._dice.random() < 0.5 else "", command="new")

    async def _compact(self) -> None:
        self._post(self._dice.choice(("", "the stars")), command="compact")

    async def _send_again(self) -> None:
        """A client that did not hear, or is not sure, sends the same again; sometimes twice at once."""
        known = self.witness.letters[-20:]
        for letter in self._dice.sample(known, min(len(known), 2)):
            for _ in range(self._dice.choice((1, 2))):
                self._send(letter)

    async def _stop(self) -> None:
        busy = [str(run.key) for run in self._life.dispatcher.runs.active()]
        self._client(self._stops(self._life, self._dice.choice([*busy, *KEYS])))

    async def _ask(self) -> None:
        self._client(self._commands(self._life, "/help", self._dice.choice(KEYS)))

    async def _edit(self) -> None:
        self._owner.edit()

    async def _configure(self) -> None:
        self._settings = changed_at_random(self._settings, self._dice)
        self._life.configure(self._settings)

    async def _pause(self) -> None:
        await asyncio.sleep(self._dice.expovariate(0.1))

    async def _sleep_long(self) -> None:
        await asyncio.sleep(self._dice.choice((20 * 60, 5 * 3600, 30 * 3600)))

    async def _set_clock(self) -> None:
        self._clock.set_by(self._dice.choice((-7200, -5, 5, 7200)))

    async def _crash(self) -> None:
        self._life.border.power.cut()

    async def _hand_over(self) -> None:
        """The holder leaves, and has a while to finish what it accepted."""
        leaving = self._life.call(self._life.dispatcher.leave())
        await asyncio.wait({leaving}, timeout=60)
        self._life.border.power.cut()

    async def _lose_lock(self) -> None:
        """Somebody removes the file, and another process comes, before the holder looks for its lock or after."""
        assert self.files is not None
        self.files.remove_lock()
        old, shelf = self._life, self._shelf
        self._client(self._look_for_lock(old, shelf, self._dice.uniform(0, LOCK_SECONDS)))
        await asyncio.sleep(self._dice.uniform(0, LOCK_SECONDS))
        try:
            taken = self.files.open()
        except HomeHeld:
            self.trace.add("lock kept")
            return
        self.trace.add("lock taken")
        self._losers[old], self._shelf = shelf, taken
        self._life = self._new_life()
        self._client(self._leaves(old, self._life))
        await self._recover()

    async def _look_for_lock(self, life: Life, shelf: Shelf, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if life.on and not shelf.keeps_lock():
            life.border.power.cut()

    async def _leaves(self, old: Life, new: Life) -> None:
        """(6) One process writes a home: who has lost the lock notices, and goes."""
        await asyncio.sleep(2 * LOCK_SECONDS)
        if old.on and new.on:
            self.witness.broken.append("promise 6: two lives hold the home")
        await old.crash()
        self._losers.pop(old).kill()

    async def _lose_file(self) -> None:
        """(1) A home that has lost its database does not begin anew in silence."""
        assert self.files is not None
        await self._life.crash()
        await self._alone()
        self._shelf.kill()
        what = self._dice.choice(LOSSES)
        self.trace.add(f"lost {what}")
        if wrong := self.files.lose(what):
            self.witness.broken.append(f"promise 1: {wrong}")

    # -- clients ------------------------------------------------------------------------------------------------------

    def _post(self, text: str, command: str = "") -> None:
        """A new letter, sent by a client who keeps it until it is acknowledged."""
        number = len(self.witness.letters)
        if text and self._dice.random() < 0.5 * self._weather.lie:
            text = f"{text} {LONE_SURROGATE}"
        key = self._dice.choice(KEYS)
        if command == "compact":
            letter = Letter(number, key, f"/compact {text}".strip(), command)
        else:
            letter = self._letter(number, key, text, command)
        self.witness.posted(letter)
        self._send(letter)

    def _letter(self, number: int, key: str, text: str, command: str) -> Letter:
        letter = Letter(number, key, text, command)
        if text or not command:
            letter.text = f"#{number}# Remember {letter.exact}: {text}"  # so that it is worth a note
        if command:
            letter.text, letter.command = f"/new {letter.text}".strip(), "new with words" if text else "new"
        return letter

    def _send(self, letter: Letter) -> None:
        self._client(self._deliver(letter))

    def _client(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._clients.add(task)
        task.add_done_callback(self._client_done)

    def _client_done(self, task: asyncio.Future[None]) -> None:
        self._clients.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.witness.broken.append(f"promise 8: a client was told {error!r}, which is none of our errors")

    async def _deliver(self, letter: Letter) -> None:
        life = self._dice.choice((self._life, *self._losers)) if self._losers else self._life
        inbound = Inbound(letter.text, letter.idempotency_key, session_key=letter.key)
        run = life.call(life.dispatcher.submit(inbound))
        await asyncio.wait({run})
        if run.cancelled():  # the house went down: nobody knows whether it was accepted
            self._unsent.append(letter)
            return
        try:
            accepted = run.result()
        except (HolderLost, QueueFull, StorageError):
            self._unsent.append(letter)
            return
        self.witness.acknowledged(letter, accepted.id)
        self.trace.add("ack", f"{letter.number} {accepted.id}")
        await self._await_answer(life, accepted)

    async def _await_answer(self, life: Life, run: Run) -> None:
        answer = life.call(self._follow(life, run))
        await asyncio.wait({answer})
        if not answer.cancelled():
            self.trace.add("answer", f"{run.id} {answer.result().status}")
            await self.witness.answered(answer.result(), lost=life is not self._life)

    async def _follow(self, life: Life, run: Run) -> RunResult:
        """(10) Once its turn has come a run ends within its limit, whatever hangs."""
        async for event in run.events():
            if event == Lifecycle("start") and run not in self._started:
                self._started.add(run)
                self._client(self._ends_within(life, run, TURN_SECONDS + STOP_SECONDS, 10))
        return await run.wait(1)

    async def _ends_within(self, life: Life, run: Run, seconds: float, promise: int) -> None:
        ended = life.call(run.wait(seconds))
        await asyncio.wait({ended})
        late = not ended.cancelled() and isinstance(ended.exception(), WaitTimeout)
        if late and life.on:
            self.witness.broken.append(f"promise {promise}: run {run.id} goes on after {seconds:g} s")

    async def _stops(self, life: Life, key: str) -> None:
        """(9) STOP stops. A run that still waits for its turn is not counted: it ends when its turn comes."""
        going_on = [run for run in life.dispatcher.runs.active(SessionKey.parse(key)) if run in self._started]
        await self._commands(life, "/stop", key)
        for run in going_on:
            if run.stop.requested:
                await self._ends_within(life, run, STOP_SECONDS, 9)

    async def _commands(self, life: Life, text: str, key: str) -> None:
        """A command that nobody minds losing."""
        inbound = Inbound(text, f"command {self.witness.moment()}", session_key=key)
        run = life.call(life.dispatcher.submit(inbound))
        await asyncio.wait({run})
        if not run.cancelled() and not isinstance(run.exception(), HolderLost):
            run.result()

    # -- the house ----------------------------------------------------------------------------------------------------

    def _new_life(self) -> Life:
        self.lives += 1
        border = Border(Power(), self._weather, dice_for(self._seed, f"life {self.lives}"), self.trace)

        async def received(request: ModelRequest) -> None:
            if self._life.border is border:  # what one asks who has lost the home is read by nobody
                await self.witness.received(request)

        shelf = self._shelf
        outlives = msgspec.structs.replace(
            self._outlives, sessions=shelf.sessions, queue=shelf.queue, audit=shelf.audit, received=received
        )
        return Life(outlives, border, self._settings)

    def _pace(self) -> float:
        return self._dice.expovariate(3.0) if self._dice.random() < self._weather.slow else 0.0

    async def _revive(self) -> None:
        """Bury a dead life and start the next, until one has taken up what the last had accepted."""
        while not self._life.on:
            await self._life.crash()
            if self.files is not None:
                await self._alone()
                self._shelf.kill()
                self._shelf = self.files.open()
            self._life = self._new_life()
            await self._recover()
        while self._unsent and self._dice.random() < 0.7:
            self._send(self._unsent.pop(0))

    async def _recover(self) -> None:
        life = self._life
        recovery, lost = life.call(life.dispatcher.recover()), life.call(life.border.power.lost())
        await asyncio.wait({recovery, lost}, return_when=asyncio.FIRST_COMPLETED)
        if recovery.done() and recovery.exception() is not None:  # it could not read its home, and gave up
            life.border.power.cut()
        for job in await self._view.queue.open(RUN) if life.on else ():
            if run := life.dispatcher.runs.get(job.id):
                self._client(self._await_answer(life, run))

    async def _alone(self) -> None:
        while self._losers:  # they have a few seconds
            await asyncio.sleep(LOCK_SECONDS)

    def end(self) -> None:
        for shelf in (*self._losers.values(), self._shelf, self._view):
            shelf.kill()

    # -- checks -------------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        await self.witness.look()
        self._raise_if_broken()

    def _raise_if_broken(self) -> None:
        if self.witness.broken:
            raise PromiseBroken(self.witness.broken[0])

    async def _come_to_rest(self) -> None:
        """Calm weather: the present life ends what it began, and the next what no life has ended."""
        self.trace.add("step", "come to rest")
        self._weather = self._life.border.weather = CALM
        try:
            async with asyncio.timeout(REST):
                await self._alone()
                await self._rest()
                self._life.border.power.cut()
                await self._revive()
                await self._all_delivered()
                await self._rest()
        except TimeoutError:
            raise PromiseBroken(f"promise 10: no rest after {REST:g} seconds") from None
        await self._check()
        await self.witness.at_rest()
        await self.witness.all_is_written_down()
        self._raise_if_broken()
        await self._life.crash()

    async def _rest(self) -> None:
        """(6) Nothing runs any more, and nobody stands in a lane that does not move."""
        life = self._life
        idle, lost = life.call(life.dispatcher.idle()), life.call(life.border.power.lost())
        await asyncio.wait({idle, lost}, return_when=asyncio.FIRST_COMPLETED)
        if life.on and life.dispatcher.busy:
            raise PromiseBroken(f"promise 6: {life.dispatcher.busy} jobs wait and nothing runs")

    async def _all_delivered(self) -> None:
        while self._unsent or self._clients:
            for letter in self._unsent[:5]:
                self._send(letter)
            del self._unsent[:5]
            await asyncio.sleep(1)
            self._raise_if_broken()
