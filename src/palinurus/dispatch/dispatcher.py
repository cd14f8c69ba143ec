"""Who speaks next: every message of every door comes in here.

`submit` answers as soon as the message is a committed row; the turn itself runs in the lane of its session. What a
dead process had accepted and not finished is taken up again by `recover`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec

from palinurus.agent.agent import Agent
from palinurus.agent.streamed import SILENT
from palinurus.agent.turn import TurnRunner
from palinurus.agent.upkeep import told
from palinurus.context.opening import Spoken
from palinurus.dispatch import bindings, commands
from palinurus.dispatch.agents import Agents
from palinurus.dispatch.asides import Asides, said
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.directives import DEFAULT_MODEL, Directives, parse_directives
from palinurus.dispatch.errands import run_errand
from palinurus.dispatch.guests import Guests
from palinurus.dispatch.inbox import Inbox, RunRecord
from palinurus.dispatch.lanes import Lanes
from palinurus.dispatch.patience import TimeLimit
from palinurus.dispatch.preferences import preferred, usage_line
from palinurus.dispatch.queueing import QueueSettings, overflow_note
from palinurus.dispatch.refusals import refusal, split_model
from palinurus.dispatch.runs import Run, Runs
from palinurus.dispatch.settling import Settling
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, HolderLost, NotFound, PalinurusError, QueueFull, StorageError
from palinurus.domain.events import Lifecycle, RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Origin

T = TypeVar("T")

RESUME_WITHIN_MS = 15 * 60 * 1000  # an older message that was never answered is kept, and no model is called for it
MAX_RESUMES = 5  # a message that brings the house down is not tried for ever; bystanders of a crash count too
MAX_TEXT = 1_000_000
ALONE = QueueSettings("followup")
IN_LINE = QueueSettings("followup", cap=100, drop="new")  # programs wait their turn, or are told that it is full


class Dispatcher:
    def __init__(
        self,
        inbox: Inbox,
        turns: TurnRunner,
        agents: Agents,
        lanes: Lanes,
        clock: Clock,
        new_id: NewId,
        deliveries: Deliveries | None = None,
    ) -> None:
        self.runs = Runs()
        self._asides = Asides(self.runs, turns, agents, clock, new_id, deliveries)
        self.answers = self._asides.answers
        self.when_stopped: Callable[[str], Awaitable[object]] = _nothing  # filled by wiring: ends what a run left
        self._inbox = inbox
        self._turns = turns
        self._agents = agents
        self._lanes = lanes
        self._clock = clock
        self._new_id = new_id
        self._deliveries = deliveries  # None: every door fetches its replies itself
        self._left_out: dict[str, list[str]] = {}  # session key -> messages that the next turn is told of
        self._leaving = False
        self._settling = Settling(turns)

    async def submit(self, inbound: Inbound) -> Run:
        """Accept a message. When this returns, it is on the disk and will be answered."""
        _check(inbound)
        if self._leaving:
            raise HolderLost("this process is leaving", hint="ask again")
        key = await self.place(inbound)
        command = self._command(inbound)
        if command and command.name == "stop":
            return await self._asides.say(key, _stopped(self.stop(key)), inbound)
        if why := await self._refusal(key, inbound):
            return await self._asides.refuse(key, why, inbound)
        if command and not command.waits:
            return await self._asides.answer(key, command, inbound)
        if waiting := self.runs.asked_before(inbound.idempotency_key):
            return waiting
        directives, words = read_directives(inbound)
        if directives.at_once and not words and not inbound.images:
            return await self._asides.prefer(key, directives, inbound)
        queue = IN_LINE if inbound.plain else await self._queue(key, inbound)
        record = RunRecord(
            run_id=self._new_id(),
            idempotency_key=inbound.idempotency_key,
            session_key=str(key),
            inbound=self._turns.clean(inbound),
            accepted_at=self._clock.now_ms(),
        )
        with self._lanes.place(str(key)):
            self._make_room(key, queue)
            accepted = await self._inbox.accept(record)
            # One that was accepted before may stand in the transcript already: it joins nobody and takes nobody along.
            return self._known(accepted) or self._start(accepted, queue if accepted is record else ALONE)

    async def place(self, inbound: Inbound) -> SessionKey:
        """The session that a message belongs to. Raises NotFound for an agent that is not here."""
        key = bindings.resolve(inbound, self._agents.ids, self._agents.default)
        return await self._turns.place(inbound.session_key, key.agent) if bindings.is_name(inbound) else key

    async def recover(self) -> int:
        """Take up what another process had accepted and not finished, in its order."""
        pending = await self._inbox.pending()
        for record in pending:
            if self.runs.get(record.run_id) is None:
                run = self._start(record, ALONE, resumed=True)
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
            (run.host or run).stop.request()
        return len(runs)

    async def in_lane(self, key: SessionKey, work: Callable[[], Awaitable[T]]) -> T:
        """Do short work on a session between two of its turns. Raises what it raises, QueueFull or WaitTimeout."""
        if self._leaving:
            raise HolderLost("this process is leaving", hint="ask again")
        return await run_errand(self._lanes, str(key), work)

    def shut(self) -> None:
        """Accept nothing from now on."""
        self._leaving = True

    async def leave(self) -> None:
        """Accept nothing more and finish what was accepted."""
        self.shut()
        self._settling.hurry()
        await self._lanes.idle()

    async def abandon(self) -> None:
        """Drop what does not end, as a crash would: the rows stay, and the next holder takes them up."""
        self._leaving = True
        await self._lanes.cancel()

    async def idle(self) -> None:
        await self._lanes.idle()

    @property
    def busy(self) -> int:
        """Runs that go on or wait; the tidying behind a turn is none."""
        return len(self.runs.active())

    def _command(self, inbound: Inbound) -> commands.Command | None:
        return None if inbound.plain else commands.parse(inbound.text, self._agents.reset_triggers)

    async def _refusal(self, key: SessionKey, inbound: Inbound) -> str:
        """Why the owner's message is no command although it is written as one; in the mouth of others it is text."""
        if inbound.plain or inbound.origin != Origin.OWNER or not inbound.text.startswith("/"):
            return ""
        try:
            agent = self._agents.get(key.agent)
        except PalinurusError:  # nowhere to live: said when its turn comes
            return await refusal(inbound.text, None, self._agents.reset_triggers)
        return await refusal(inbound.text, agent, self._agents.reset_triggers)

    async def _queue(self, key: SessionKey, inbound: Inbound) -> QueueSettings:
        return preferred(self._agents.queue(inbound.channel), await self._turns.preferences(key))

    def _known(self, record: RunRecord) -> Run | None:
        run = self.runs.get(record.run_id)
        if run is not None and run.kept:
            return run
        return _ended(record, record.result) if record.result is not None else None

    def _make_room(self, key: SessionKey, queue: QueueSettings) -> None:
        """Raise QueueFull, or leave out the oldest that waits: it is kept in the transcript, and not answered."""
        waiting = [run for run in self.runs.waiting(key) if not run.stop.requested]
        if len(waiting) < queue.cap:
            return
        if queue.drop == "new":
            raise QueueFull(
                f"{queue.cap} messages already wait in {key}", hint="wait for some to be answered, or /stop"
            )
        oldest = waiting[0]
        oldest.stop.request(f"left out: more than {queue.cap} messages waited")
        if queue.drop == "summarize" and oldest.inbound is not None:
            self._left_out.setdefault(str(key), []).append(oldest.inbound.text)

    def _start(self, record: RunRecord, queue: QueueSettings, *, resumed: bool = False) -> Run:
        key = SessionKey.parse(record.session_key)
        before = self.runs.active(key)
        run = self.runs.add(Run(record.run_id, key, record.accepted_at, record.inbound))
        run.queue = queue
        self._settling.hurry(key)
        if queue.mode == "interrupt":
            for older in before:
                older.stop.request("a newer message came in")
        self._lanes.start(
            str(key),
            lambda: self._turn(run, record, resumed=resumed),
            lambda error: self._unfinished((run, *run.guests), f"the turn broke: {error!r}"),
        )
        return run

    async def _turn(self, run: Run, record: RunRecord, *, resumed: bool) -> None:
        if run.host is not None:  # answered by another's turn, or about to be
            return
        run.waits = False
        run.emit(Lifecycle("start"))
        try:
            if resumed:  # the first time, the row that accepted it says enough
                await self._inbox.begin(run.id)
            result = await self._story(run, record.inbound)
            if run.stop.requested or result.status == "aborted":  # it may have ended before the stop reached it
                await self.when_stopped(run.id)
        except StorageError as error:
            self._unfinished((run, *run.guests), str(error))
            return
        shared = [(guest, msgspec.structs.replace(result, run_id=guest.id, joined=run.id)) for guest in run.guests]
        await asyncio.gather(*(self._finish(ended, one) for ended, one in ((run, result), *shared)))
        await self._settling.after_turn(run.key, hurry=self._leaving or bool(self.runs.waiting(run.key)))

    async def _finish(self, run: Run, result: RunResult) -> None:
        deliveries, inbound = self._deliveries, run.inbound
        parcel = deliveries.reply(inbound, result) if deliveries and inbound else None
        try:
            kept = await self._inbox.finish(result, parcel)
        except StorageError as error:
            self._unfinished((run,), str(error))
        else:
            run.end(result)
            if deliveries and kept:
                deliveries.expect(kept)

    def _unfinished(self, runs: Iterable[Run], why: str) -> None:
        """The messages stay in the inbox, for whoever asks again and for the next holder."""
        for run in runs:
            run.kept = False
            run.end(self._failed(run, why))

    async def _story(self, run: Run, inbound: Inbound) -> RunResult:
        command = self._command(inbound)
        if command and command.name == "new":
            words, begun = await self._begin_anew(run, command.rest)
            if not words:
                return self._said(run, begun)
            inbound = msgspec.structs.replace(inbound, text=words)
        if command and command.name == "compact":
            return await self._compact(run, command.rest)
        directives, words = await self._meant(run.key, inbound)
        spoken = Spoken(run.id, msgspec.structs.replace(inbound, text=words), thinking=directives.thinking or "")
        try:
            agent = self._agents.get(run.key.agent)
            if directives.any and not words and not inbound.images:
                return self._said(run, await self._asides.choose(run, agent, directives))
            if directives.model:
                await self._asides.choose(run, agent, Directives(model=directives.model))
            return await self._answered(run, agent, spoken)
        except StorageError:
            raise
        except PalinurusError as error:  # no agent, no workspace: the message is kept with the reason
            await self._turns.keep(run.key, spoken, str(error))
            return self._failed(run, str(error))

    async def _begin_anew(self, run: Run, rest: str) -> tuple[str, str]:
        """Reset the session, with another model if one is named; the message that follows, and what was done."""
        agent = self._agent(run.key)
        await self._turns.reset(run.key, "new", run.id, agent, run.stop)
        told = "A fresh start{}. What was said before stays in the transcript."
        if agent is None:  # said when the message is answered
            return rest, told.format("")
        model, words = await split_model(rest, agent)
        if model:
            await self._turns.choose(run.key, run.id, model=model, thinking=None)
        return words, told.format(f" with {model}" if model else "")

    async def _meant(self, key: SessionKey, inbound: Inbound) -> tuple[Directives, str]:
        """The directives of a message. In the middle of a sentence `/model` and a word that is no model are words."""
        directives, words = read_directives(inbound)
        name = directives.model
        if not name or name.lower() == DEFAULT_MODEL or not words or inbound.text.lstrip().startswith("/"):
            return directives, words
        try:
            await self._agents.get(key.agent).find_model(name)
        except PalinurusError:
            return parse_directives(inbound.text, models=False)
        return directives, words

    async def _compact(self, run: Run, focus: str) -> RunResult:
        try:
            agent = self._agents.get(run.key.agent)
        except StorageError:
            raise
        except PalinurusError as error:
            return self._failed(run, str(error))
        with TimeLimit(run, agent.timeout_seconds) as limit:
            done = await self._turns.compact(agent, run.key, run.id, focus, run.stop, limit.emit)
        if done is None:
            return self._said(run, "There is nothing to sum up yet.")
        return self._said(run, f"{told(done).capitalize()}. Everything stays in the transcript.")

    async def _answered(self, run: Run, agent: Agent, spoken: Spoken) -> RunResult:
        guests = Guests(self.runs, run, self._clock, twelve_hours=agent.context.twelve_hours)
        spoken = await guests.collect(spoken)
        heard = bool(spoken.inbound.text) and not run.stop.requested
        if heard and (left_out := self._left_out.pop(str(run.key), None)):
            spoken = msgspec.structs.replace(spoken, notes=(ContextNote("notice", overflow_note(left_out)),))
        with TimeLimit(run, agent.timeout_seconds) as limit:
            result = await self._turns.run(agent, run.key, spoken, run.stop, limit.emit, guests)
        if result.text.strip().upper() == SILENT:
            return msgspec.structs.replace(result, text="")
        shown = (await self._turns.preferences(run.key)).response_usage
        return msgspec.structs.replace(result, footer=usage_line(shown, result, agent.cost))

    def _agent(self, key: SessionKey) -> Agent | None:
        try:
            return self._agents.get(key.agent)
        except StorageError:
            raise
        except PalinurusError:  # a fresh start needs none
            return None

    def _said(self, run: Run, text: str) -> RunResult:
        return said(run, text, self._clock)

    def _failed(self, run: Run, why: str) -> RunResult:
        return RunResult(run.id, str(run.key), "", "error", error=why)


async def _nothing(_: str) -> None: ...


def _stopped(count: int) -> str:
    return f"Stopped {count} run{'s' if count != 1 else ''}." if count else "Nothing was running."


def read_directives(inbound: Inbound) -> tuple[Directives, str]:
    """Only the owner's words change how a session is run; in the mouth of others they are words."""
    if inbound.plain or inbound.origin != Origin.OWNER:
        return Directives(), inbound.text
    return parse_directives(inbound.text)


def _check(inbound: Inbound) -> None:
    if not inbound.text.strip() and not inbound.images and not inbound.results:
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
