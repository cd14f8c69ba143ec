"""Running and recent runs: their events and results, and which messages join a running one.

A run stores the log of its events; followers read that log from any position, so a slow follower costs nothing and a
late one misses nothing. Above a limit deltas are no longer logged (the transcript has the reply), and the last event
says how many were left out.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import takewhile

import msgspec

from palinurus.agent.loop import Interjection
from palinurus.agent.reply import Stop
from palinurus.context.assemble import TurnInput, user_message
from palinurus.dispatch import commands
from palinurus.dispatch.directives import parse_directives
from palinurus.dispatch.queue import QueueSettings
from palinurus.domain.clock import Clock, local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import WaitTimeout
from palinurus.domain.events import (
    AssistantDelta,
    Lifecycle,
    ModelAnswered,
    ModelCalled,
    Notice,
    RunEvent,
    RunResult,
    ThinkingDelta,
    ToolStarted,
)
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.storage.jobs import Job
from palinurus.storage.transaction import decoded

log = logging.getLogger(__name__)

LOG_CAP = 100_000

MOST_ENDED = 200  # runs that are remembered

Listener = Callable[["Run", RunEvent], None]
"""Called with each event as it happens. Must neither block nor raise."""


def _ignore(_: Run, __: RunEvent) -> None: ...


class Run:
    """A run that this process knows."""

    def __init__(self, run_id: str, key: SessionKey, accepted_at: int, inbound: Inbound | None = None) -> None:
        self.id = run_id
        self.key = key
        self.accepted_at = accepted_at
        self.inbound = inbound  # None: answered at once, or known from its row only
        self.queue = QueueSettings()
        self.waits = True  # until its turn starts
        self.host: Run | None = None  # the run that also answers this one
        self.joined: list[Run] = []  # runs that this one also answers
        self.awaits: set[SessionKey] = set()  # sessions whose replies its tools wait for
        self.stop = Stop()
        self.result: RunResult | None = None
        self.job: Job | None = None  # of an accepted message
        self.is_stored = True  # False: the disk failed, the job has no result, and a repeated query retries
        self.listener: Listener = _ignore
        self.step = ""  # what it does at this moment: a tool, or the model
        self.usage = Usage()  # of its model calls so far
        self._log: list[RunEvent] = [Lifecycle("accepted")]
        self._dropped = 0
        self._news: asyncio.Event | None = None  # set while a follower waits for more
        self._over = asyncio.Event()

    def emit(self, event: RunEvent) -> None:
        if len(self._log) >= LOG_CAP and isinstance(event, AssistantDelta | ThinkingDelta):
            self._dropped += 1
            return
        self._log.append(event)
        self._tell()
        self._note_step(event)
        self.listener(self, event)
        if isinstance(event, Lifecycle):
            self._note(logging.INFO, f"run {event.phase} {event.detail}".rstrip())
        elif isinstance(event, Notice):
            self._note(logging.WARNING, event.text)

    def end(self, result: RunResult) -> None:
        if self.result is None:
            self.result = result
            phase = {"ok": "end", "error": "error", "aborted": "aborted"}[result.status]
            left_out = f" ({self._dropped} deltas were not logged)" if self._dropped else ""
            last = Lifecycle(phase, result.error + left_out)  # type: ignore[arg-type]  # the three above
            self._log.append(last)
            self._tell()
            self._over.set()
            self.listener(self, last)
            line = f"run {phase} after {result.duration_ms} ms, {result.model or 'no model'}"
            line = ": ".join(part for part in (line, result.error_kind, result.error) if part)
            self._note(logging.ERROR if result.status == "error" else logging.INFO, line)

    def _note_step(self, event: RunEvent) -> None:
        match event:
            case ToolStarted():
                self.step = event.name
            case ModelCalled():
                self.step = "model"
            case ModelAnswered():
                self.usage += event.usage

    def _note(self, level: int, text: str) -> None:
        log.log(level, "%s", text, extra={"run": self.id, "session": str(self.key)})

    def _tell(self) -> None:
        if self._news is not None:  # wakes all waiting followers; later ones create a new event
            self._news.set()
            self._news = None

    async def events(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """All events from position `after` of the log to the end of the run."""
        while news := await self.more(after):
            after += len(news)
            for event in news:
                yield event

    async def more(self, after: int) -> Sequence[RunEvent]:
        """All events from position `after` of the log, once there are some; empty at the end."""
        while after >= len(self._log) and self.result is None:
            self._news = self._news or asyncio.Event()
            await self._news.wait()
        return self._log[after:]

    async def wait(self, timeout: float | None = None) -> RunResult:
        """The result. Waiting never cancels the run."""
        try:
            async with asyncio.timeout(timeout):
                await self._over.wait()
        except TimeoutError:
            raise WaitTimeout(f"run {self.id} is still going on after {timeout:g} s", hint="wait again") from None
        assert self.result is not None  # noqa: S101  # set before `_over`
        return self.result


def result_of(job: Job) -> RunResult | None:
    """None: it has not ended. Raises StorageDamaged."""
    return None if job.outcome is None else decoded(bytes(job.outcome), RunResult, f"the result of run {job.id}")


class Runs:
    """The runs that this process knows: all running ones, and the last that ended."""

    def __init__(self) -> None:
        self._going: dict[str, Run] = {}  # in order of arrival
        self._of_session: dict[SessionKey, dict[str, Run]] = {}  # the same runs, by session
        self._by_message: dict[str, Run] = {}  # the same runs, by idempotency key
        self._ended: OrderedDict[str, Run] = OrderedDict()
        self._listeners: list[Listener] = []  # of all runs

    def add(self, run: Run) -> Run:
        run.listener = self._pass_on
        self._going[run.id] = run
        self._of_session.setdefault(run.key, {})[run.id] = run
        if run.inbound is not None:
            self._by_message.setdefault(run.inbound.idempotency_key, run)
        if run.result is not None:
            self._put_away(run)
        return run

    def _put_away(self, run: Run) -> None:
        if self._going.get(run.id) is run:
            del self._going[run.id]
            self._leave_session(run)
            self._ended[run.id] = run
        while len(self._ended) > MOST_ENDED:
            self._ended.popitem(last=False)

    def _leave_session(self, run: Run) -> None:
        others = self._of_session[run.key]
        del others[run.id]
        if not others:
            del self._of_session[run.key]
        if run.inbound is not None and self._by_message.get(run.inbound.idempotency_key) is run:
            del self._by_message[run.inbound.idempotency_key]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """From now on calls the listener with the events of all runs, until what it returns is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _pass_on(self, run: Run, event: RunEvent) -> None:
        if run.result is not None:
            self._put_away(run)
        for listener in tuple(self._listeners):
            listener(run, event)

    def get(self, run_id: str) -> Run | None:
        return self._going.get(run_id) or self._ended.get(run_id)

    def find_active(self, idempotency_key: str) -> Run | None:
        """The running or waiting run with this key."""
        run = self._by_message.get(idempotency_key)
        return run if run is not None and run.result is None else None

    def waiting(self, key: SessionKey) -> list[Run]:
        """Runs of a session that have not started and have joined no other, oldest first."""
        return [run for run in self.active(key) if run.waits and run.host is None]

    def active(self, key: SessionKey | None = None) -> list[Run]:
        runs = self._going if key is None else self._of_session.get(key, {})
        return [run for run in runs.values() if run.result is None]


_COMMAND = re.compile(r"/\w[\w-]*(?:\s|$)", re.ASCII)


class JoinedRuns:
    """Runs whose messages join the turn of another run, the host. Implements agent.loop.Steer."""

    def __init__(self, runs: Runs, host: Run, clock: Clock, *, twelve_hours: bool = False) -> None:
        self._runs = runs
        self._host = host
        self._clock = clock
        self._twelve_hours = twelve_hours

    def waiting(self) -> bool:
        """Not for a program's message: no tool call is skipped for it."""
        return any(run.inbound is not None and not run.inbound.steers for run in self._joining("steer"))

    def take(self) -> Interjection | None:
        runs = self._who("steer")
        if not runs:
            return None
        turn = self._together(runs)
        return Interjection(turn.run_id, user_message(turn, local_time(self._clock), twelve_hours=self._twelve_hours))

    async def collect(self, turn: TurnInput) -> TurnInput:
        """The message together with those that wait after it, after a pause without another."""
        if self._host.queue.mode != "collect" or _COMMAND.match(turn.inbound.text):
            return turn
        before = -1
        while not self._host.stop.requested and (now := len(self._who("collect"))) not in (0, before):
            before = now
            await asyncio.sleep(self._host.queue.debounce)  # waits for a pause without new messages
        runs = self._who("collect")
        if not runs:
            return turn
        joined = self._together(runs)
        inbound = _in_one([turn.inbound, joined.inbound])
        return msgspec.structs.replace(turn, inbound=inbound, also=(joined.run_id, *joined.also))

    def _who(self, mode: str) -> list[Run]:
        """The runs that join as one message: those of one speaker."""
        joining = self._joining(mode)
        return list(takewhile(lambda run: _same_speaker(run.inbound, joining[0].inbound), joining))

    def _joining(self, mode: str) -> list[Run]:
        """The runs that may join, up to the first that may not: the order of messages stays."""
        waiting = [run for run in self._runs.waiting(self._host.key) if run is not self._host]
        return list(takewhile(lambda run: self._may_join(run, mode), waiting))

    def _may_join(self, run: Run, mode: str) -> bool:
        return (
            run.queue.mode == mode
            and run.inbound is not None
            and not run.stop.requested
            and (run.inbound.steers or self._is_spoken_on(run.inbound))
        )

    def _is_spoken_on(self, inbound: Inbound) -> bool:
        """Whether the sender of the host's message says more, and only that."""
        has_own_turn = inbound.plain or bool(inbound.notes)  # notes belong to a message of their own
        return not has_own_turn and _plain(inbound) and _same_speaker(inbound, self._host.inbound)

    def _together(self, runs: list[Run]) -> TurnInput:
        """One message from all of them; from now on they belong to the host."""
        for run in runs:
            run.host = self._host
            run.emit(Lifecycle("start", f"joined {self._host.id}"))
        self._host.joined += runs
        inbound = _in_one([run.inbound for run in runs if run.inbound is not None])
        return TurnInput(runs[0].id, inbound, also=tuple(run.id for run in runs[1:]))


def _in_one(inbounds: Sequence[Inbound]) -> Inbound:
    """The first message, with the text and images of all."""
    text = "\n\n".join(inbound.text for inbound in inbounds if inbound.text)
    images = tuple(image for inbound in inbounds for image in inbound.images)
    return msgspec.structs.replace(inbounds[0], text=text, images=images)


def _plain(inbound: Inbound) -> bool:
    """Whether it is only text: a message that changes the session, or may call a skill, gets its own turn."""
    if commands.parse(inbound.text) is not None or _COMMAND.match(inbound.text):
        return False
    return not parse_directives(inbound.text)[0].any


def _same_speaker(one: Inbound | None, other: Inbound | None) -> bool:
    """Messages of two people are not joined."""
    return one is not None and other is not None and _speaker(one) == _speaker(other)


def _speaker(inbound: Inbound) -> tuple[object, ...]:
    return inbound.channel, inbound.sender, inbound.origin, inbound.sources, inbound.steers
