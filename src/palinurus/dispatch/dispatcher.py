"""Who speaks next: every message of every door comes in here.

`submit` answers as soon as the message is a committed row; the turn itself runs in the lane of its session. What a
dead process had accepted and not finished is taken up again by `recover`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from palinurus.agent.turn import Agent, TurnRunner
from palinurus.dispatch import bindings, commands
from palinurus.dispatch.inbox import Inbox, RunRecord
from palinurus.dispatch.lanes import Lanes
from palinurus.dispatch.runs import Run, Runs
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, HolderLost, NotFound, PalinurusError, StorageError
from palinurus.domain.events import Lifecycle, RunResult
from palinurus.domain.keys import SessionKey

RESUME_WITHIN_MS = 15 * 60 * 1000  # an older message that was never answered is kept, and no model is called for it
MAX_RESUMES = 5  # a message that brings the house down is not tried for ever; bystanders of a crash count too
MAX_TEXT = 1_000_000


class Agents(Protocol):
    """Who lives here. Asked anew for every turn, because config may have changed between two."""

    @property
    def ids(self) -> Collection[str]: ...

    @property
    def default(self) -> str: ...

    @property
    def reset_triggers(self) -> Sequence[str]: ...

    def get(self, agent_id: str) -> Agent: ...


Answer = Callable[[SessionKey, str], Awaitable[str]]
"""Answers a command that only looks: the session it was asked in, and the words behind the command."""


class Dispatcher:
    def __init__(
        self, inbox: Inbox, turns: TurnRunner, agents: Agents, lanes: Lanes, clock: Clock, new_id: NewId
    ) -> None:
        self.runs = Runs()
        self.answers: dict[str, Answer] = {}  # filled by wiring: /status, /context
        self._inbox = inbox
        self._turns = turns
        self._agents = agents
        self._lanes = lanes
        self._clock = clock
        self._new_id = new_id
        self._leaving = False

    async def submit(self, inbound: Inbound) -> Run:
        """Accept a message. When this returns, it is on the disk and will be answered."""
        _check(inbound)
        if self._leaving:
            raise HolderLost("this process is leaving", hint="ask again")
        key = bindings.resolve(inbound, self._agents.ids, self._agents.default)
        command = commands.parse(inbound.text, self._agents.reset_triggers)
        if command and not command.waits:
            return await self._answer(key, command)
        if waiting := self.runs.asked_before(inbound.idempotency_key):
            return waiting
        record = RunRecord(
            run_id=self._new_id(),
            idempotency_key=inbound.idempotency_key,
            session_key=str(key),
            inbound=self._turns.clean(inbound),
            accepted_at=self._clock.now_ms(),
        )
        with self._lanes.place(str(key)):
            accepted = await self._inbox.accept(record)
            return self._known(accepted) or self._start(accepted)

    async def recover(self) -> int:
        """Take up what another process had accepted and not finished, in its order."""
        pending = await self._inbox.pending()
        for record in pending:
            if self.runs.get(record.run_id) is None:
                run = self._start(record, resumed=True)
                if record.attempts >= MAX_RESUMES or self._clock.now_ms() - record.accepted_at > RESUME_WITHIN_MS:
                    run.stop.request("interrupted before it was answered")
        return len(pending)

    async def find(self, run_id: str) -> Run:
        """A run of this process, or one of the past by its row."""
        run = self.runs.get(run_id)
        if run is not None:
            return run
        record = await self._inbox.find(run_id)
        if record is None or record.result is None:
            raise NotFound(f"there is no run {run_id!r}", hint="`pal sessions show` lists what was said")
        return _ended(record, record.result)

    def stop(self, key: SessionKey | None = None, run_id: str = "") -> int:
        """Stop one run, or all of a session: those that go on and those that wait."""
        runs = [run for run in self.runs.active(key) if run_id in ("", run.id)]
        for run in runs:
            run.stop.request()
        return len(runs)

    async def leave(self) -> None:
        """Accept nothing more and finish what was accepted."""
        self._leaving = True
        await self._lanes.idle()

    async def idle(self) -> None:
        await self._lanes.idle()

    @property
    def busy(self) -> int:
        return self._lanes.busy

    def _known(self, record: RunRecord) -> Run | None:
        run = self.runs.get(record.run_id)
        if run is not None and run.kept:
            return run
        return _ended(record, record.result) if record.result is not None else None

    def _start(self, record: RunRecord, *, resumed: bool = False) -> Run:
        key = SessionKey.parse(record.session_key)
        run = self.runs.add(Run(record.run_id, key, record.accepted_at, record.idempotency_key))
        self._lanes.start(
            str(key),
            lambda: self._turn(run, record, resumed=resumed),
            lambda error: self._unfinished(run, f"the turn broke: {error!r}"),
        )
        return run

    async def _turn(self, run: Run, record: RunRecord, *, resumed: bool) -> None:
        run.emit(Lifecycle("start"))
        try:
            if resumed:  # the first time, the row that accepted it says enough
                await self._inbox.begin(run.id)
            result = await self._story(run, record.inbound)
            await self._inbox.finish(result)
        except StorageError as error:
            self._unfinished(run, str(error))
        else:
            run.end(result)

    def _unfinished(self, run: Run, why: str) -> None:
        """The message stays in the inbox, for whoever asks again and for the next holder."""
        run.kept = False
        run.end(self._failed(run, why))

    async def _story(self, run: Run, inbound: Inbound) -> RunResult:
        command = commands.parse(inbound.text, self._agents.reset_triggers)
        if command and command.name == "new":
            await self._turns.reset(run.key, "new", run.id)
            if not command.rest:
                return self._said(run, "A fresh start. What was said before stays in the transcript.")
            inbound = msgspec.structs.replace(inbound, text=command.rest)
        try:
            agent = self._agents.get(run.key.agent)
            with _time_limit(run, agent.timeout_seconds):
                result = await self._turns.run(agent, run.key, run.id, inbound, run.stop, run.emit)
        except StorageError:
            raise
        except PalinurusError as error:  # no agent, no workspace: the message is kept with the reason
            await self._turns.keep(run.key, run.id, inbound, str(error))
            return self._failed(run, str(error))
        silent = result.text.strip().upper() == "NO_REPLY"
        return msgspec.structs.replace(result, text="") if silent else result

    async def _answer(self, key: SessionKey, command: commands.Command) -> Run:
        run = Run(self._new_id(), key, self._clock.now_ms())
        if command.name == "stop":
            stopped = self.stop(key)
            text = f"Stopped {stopped} run{'s' if stopped != 1 else ''}." if stopped else "Nothing was running."
        elif command.name in self.answers:
            text = await self.answers[command.name](key, command.rest)
        else:
            text = commands.help_text()
        run.end(self._said(run, text))
        return self.runs.add(run)

    def _said(self, run: Run, text: str) -> RunResult:
        return RunResult(run.id, str(run.key), "", "ok", text, duration_ms=self._clock.now_ms() - run.accepted_at)

    def _failed(self, run: Run, why: str) -> RunResult:
        return RunResult(run.id, str(run.key), "", "error", error=why)


@contextmanager
def _time_limit(run: Run, seconds: float) -> Iterator[None]:
    """A turn that takes too long is stopped like one that somebody stops: what it had said is kept."""
    if seconds <= 0:
        yield
        return
    reason = f"took longer than {seconds:g} s"
    alarm = asyncio.get_running_loop().call_later(seconds, run.stop.request, reason)
    try:
        yield
    finally:
        alarm.cancel()


def _check(inbound: Inbound) -> None:
    if not inbound.text.strip() and not inbound.images:
        raise BadRequest("the message is empty", hint="say something")
    if len(inbound.text) > MAX_TEXT:
        raise BadRequest(
            f"the message has {len(inbound.text):,} characters, the limit is {MAX_TEXT:,}",
            hint="put long text into a file of the workspace and name it",
        )
    if not inbound.idempotency_key:
        raise BadRequest("the message has no idempotency key", hint="any text that is new for each message")


def _ended(record: RunRecord, result: RunResult) -> Run:
    run = Run(record.run_id, SessionKey.parse(record.session_key), record.accepted_at)
    run.end(result)
    return run
