"""The dispatcher: accepts messages from every surface, queues them in the lane of their session, and answers them.

An accepted message is a job of the kind "run", whose id is the run's. `submit` returns when it is committed; this
process owns it from then on, and its turn runs in the lane of its session. When the turn starts, the message enters the
transcript under the run's id, so that a second start cannot store it twice; when the turn ends, the job stores the
result, so that a repeated query gets the same answer and not a second turn. `recover` continues unfinished messages of
a dead process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Raw

from palinurus.agent.agent import Agent
from palinurus.agent.reply import SILENT
from palinurus.agent.turn import TurnRunner
from palinurus.context.assemble import TurnInput
from palinurus.dispatch import commands
from palinurus.dispatch.agents import Agents, names_session, session_key_of
from palinurus.dispatch.commands import refusal, split_model
from palinurus.dispatch.delivery import MOST_WAITING, Deliveries
from palinurus.dispatch.directives import DEFAULT_MODEL, Directives, parse_directives, preferred, usage_line
from palinurus.dispatch.hook_contexts import command_facts, end_facts, received_facts, reset_event, sent_facts
from palinurus.dispatch.immediate import ImmediateCommands, make_result
from palinurus.dispatch.lanes import Lanes, PostTurnWork, TimeLimit, run_in_lane
from palinurus.dispatch.queue import QueueSettings, overflow_note
from palinurus.dispatch.runs import JoinedRuns, Run, Runs, result_of
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, HolderLost, NotFound, PalinurusError, QueueFull, StorageError
from palinurus.domain.events import Lifecycle, Notice, RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Origin
from palinurus.sessions.names import place_session
from palinurus.storage.jobs import RUN, Job, JobQueue, start_attempt
from palinurus.storage.transaction import decoded

T = TypeVar("T")

CRON_CHANNEL = "cron"
RESUME_WITHIN_MS = 15 * 60 * 1000  # an older unanswered message is stored, without a model call; not one of a cron job
MAX_RESUMES = 5  # a message that crashes the process is not retried forever; other runs of that time are counted too
MAX_TEXT = 1_000_000
LONGEST_LEFT_OUT = 500  # characters of a dropped message that are held until the next turn
ALONE = QueueSettings("followup")
IN_LINE = QueueSettings("followup", cap=100, drop="new")  # of programs
STEERING = QueueSettings("steer", cap=100, drop="new")


class Dispatcher:
    def __init__(
        self,
        queue: JobQueue,
        turns: TurnRunner,
        agents: Agents,
        lanes: Lanes,
        clock: Clock,
        new_id: NewId,
        deliveries: Deliveries | None = None,
    ) -> None:
        self.runs = Runs()
        self._immediate = ImmediateCommands(self.runs, turns, agents, clock, new_id, deliveries)
        self.answers = self._immediate.answers
        self.when_stopped: Callable[[str], Awaitable[object]] = _nothing  # set by runtime: cleans up after a run
        self._queue = queue
        self._turns = turns
        self._agents = agents
        self._lanes = lanes
        self._clock = clock
        self._new_id = new_id
        self._deliveries = deliveries  # None: every surface fetches its replies itself
        self._left_out: dict[str, list[str]] = {}  # session key -> dropped messages that the next turn is informed of
        self._leaving = False
        self._post_turn = PostTurnWork(turns)

    async def submit(self, inbound: Inbound) -> Run:
        """Accepts a message. When this returns, it is on the disk and will be answered."""
        _check(inbound)
        if self._leaving:
            raise HolderLost("this process is shutting down", hint="ask again")
        key = await self.place(inbound)
        command = self._command(inbound)
        if command and command.name == "stop":
            self._turns.hooks.observe("command:stop", key, lambda: command_facts(inbound))
            return await self._immediate.reply(key, _stopped(self.stop(key)), inbound)
        if why := await self._refusal(key, inbound):
            return await self._immediate.refuse(key, why, inbound)
        if command and not command.waits:
            return await self._immediate.answer(key, command, inbound)
        if waiting := self.runs.find_active(inbound.idempotency_key):
            return waiting
        directives, words = read_directives(inbound)
        if directives.at_once and not words and not inbound.images:
            return await self._immediate.prefer(key, directives, inbound)
        queueing = await self._queueing(key, inbound)
        inbound = self._turns.history.clean(inbound)
        job = run_job(self._new_id(), key, inbound, self._clock.now_ms())
        with self._lanes.place(str(key)):
            self._make_room(key, queueing)
            accepted = await self._queue.add(job, 0)  # lanes have their own limit
            if run := self._known(accepted):  # also if the same message came twice at once, and the other is ahead
                return run
            if accepted is job:
                return self._start(job, inbound, queueing)
            # One that was accepted before may be in the transcript already: it neither joins a run nor is joined.
            return self._start(accepted, _message(accepted), ALONE)

    async def place(self, inbound: Inbound) -> SessionKey:
        """The session of a message. Raises NotFound for an unknown agent."""
        key = session_key_of(inbound, self._agents.ids, self._agents.default)
        if not names_session(inbound):
            return key
        return await place_session(self._turns.history.sessions, inbound.session_key, agent=key.agent)

    async def recover(self) -> int:
        """Continues what another process had accepted and not finished, in order."""
        pending = await self._queue.open(RUN)
        for job in pending:
            if self.runs.get(job.id) is None:
                inbound = _message(job)
                run = self._start(job, inbound, ALONE, resumed=True)
                is_late = self._clock.now_ms() - job.added_at > RESUME_WITHIN_MS and inbound.channel != CRON_CHANNEL
                if is_late or job.attempts > MAX_RESUMES:
                    run.stop.request("interrupted before it was answered")
        return len(pending)

    async def find(self, run_id: str) -> Run:
        """A run of this process, or an earlier one from its row."""
        run = self.runs.get(run_id)
        if run is not None:
            return run
        job = await self._queue.find(run_id)
        ended = _ended(job) if job is not None and job.kind == RUN else None
        if ended is None:
            raise NotFound(f"there is no run {run_id!r}", hint="`pal sessions show` lists what was said")
        return ended

    def stop(self, key: SessionKey | None = None, run_id: str = "") -> int:
        """Stops one run, or all of a session: running and waiting ones, and the subagents that they started."""
        runs = [run for run in self.runs.active(key) if run_id in ("", run.id)]
        parents = {run_id} if run_id else {str(key)} if key else set()
        runs += [run for run in self.runs.active() if run not in runs and _is_descendant(run, parents)]
        for run in runs:
            (run.host or run).stop.request()
        return len(runs)

    async def in_lane(self, key: SessionKey, work: Callable[[], Awaitable[T]]) -> T:
        """Does short work on a session between two turns. Raises what it raises, QueueFull or WaitTimeout."""
        if self._leaving:
            raise HolderLost("this process is shutting down", hint="ask again")
        return await run_in_lane(self._lanes, str(key), work)

    def limit_subagents(self, at_once: int) -> None:
        self._lanes.set_limit("subagents", at_once)

    def limit_scheduled(self, at_once: int) -> None:
        self._lanes.set_limit("scheduled", at_once)

    def shut(self) -> None:
        """Accepts nothing from now on."""
        self._leaving = True

    async def leave(self) -> None:
        """Accepts nothing more and finishes what was accepted."""
        self.shut()
        self._post_turn.hurry()
        await self._lanes.idle()

    async def abandon(self) -> None:
        """Drops what does not end, as a crash would: the rows stay, and the next holder continues them."""
        self._leaving = True
        await self._lanes.cancel()

    async def idle(self) -> None:
        await self._lanes.idle()

    @property
    def busy(self) -> int:
        """Running and waiting runs, without work after a turn."""
        return len(self.runs.active())

    def _command(self, inbound: Inbound) -> commands.Command | None:
        return None if inbound.plain else commands.parse(inbound.text, self._agents.reset_triggers)

    async def _refusal(self, key: SessionKey, inbound: Inbound) -> str:
        """Why the owner's message is not a valid command; messages of others are text."""
        if inbound.plain or inbound.origin != Origin.OWNER or not inbound.text.startswith("/"):
            return ""
        try:
            agent = self._agents.get(key.agent)
        except PalinurusError:  # no workspace: reported when its turn comes
            return await refusal(inbound.text, None, self._agents.reset_triggers)
        return await refusal(inbound.text, agent, self._agents.reset_triggers)

    async def _queueing(self, key: SessionKey, inbound: Inbound) -> QueueSettings:
        if inbound.plain:
            return STEERING if inbound.steers else IN_LINE
        return preferred(self._agents.queue(inbound.channel), await self._turns.history.preferences(key))

    def _known(self, job: Job) -> Run | None:
        run = self.runs.get(job.id)
        return run if run is not None and run.is_stored else _ended(job)

    def _make_room(self, key: SessionKey, queue: QueueSettings) -> None:
        """Raises QueueFull, or drops the oldest waiting message: it is stored in the transcript, and not answered."""
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
            self._left_out.setdefault(str(key), []).append(oldest.inbound.text[:LONGEST_LEFT_OUT])

    def _start(self, job: Job, inbound: Inbound, queueing: QueueSettings, *, resumed: bool = False) -> Run:
        key = SessionKey.parse(job.lane)
        before = self.runs.active(key)
        run = self.runs.add(Run(job.id, key, job.added_at, inbound))
        run.job, run.queue = job, queueing
        if inbound.by_person and not resumed:
            self._turns.hooks.observe("message:received", key, lambda: received_facts(inbound, run.id))
        self._post_turn.hurry(key)
        if queueing.mode == "interrupt":
            for older in before:
                older.stop.request("a newer message came in")
        self._lanes.start(
            str(key),
            lambda: self._turn(run, inbound, resumed=resumed),
            lambda error: self._unfinished((run, *run.joined), f"the turn broke: {error!r}"),
            {"subagent": "subagents", "cron": "scheduled"}.get(key.kind, "main"),
        )
        return run

    async def _turn(self, run: Run, inbound: Inbound, *, resumed: bool) -> None:
        if run.host is not None:  # answered by another run's turn, or about to be
            return
        run.waits = False
        run.emit(Lifecycle("start"))
        try:
            if resumed and run.job is not None:  # the first attempt was counted on acceptance
                run.job = await self._queue.change(run.job, start_attempt(run.job, 0, 0)) or run.job
            result = await self._handle(run, inbound)
            if run.stop.requested or result.status == "aborted":  # it may have ended before the stop arrived
                await self.when_stopped(run.id)
        except StorageError as error:
            self._unfinished((run, *run.joined), str(error))
            return
        shared = [(other, msgspec.structs.replace(result, run_id=other.id, joined=run.id)) for other in run.joined]
        await asyncio.gather(*(self._finish(ended, one) for ended, one in ((run, result), *shared)))
        await self._post_turn.run(run.key, hurry=self._leaving or bool(self.runs.waiting(run.key)))

    async def _finish(self, run: Run, result: RunResult) -> None:
        deliveries, inbound = self._deliveries, run.inbound
        reply = deliveries.reply(inbound, result) if deliveries and inbound else None
        assert run.job is not None  # noqa: S101  # it was accepted
        try:
            stored = await self._queue.finish(run.job, result, reply, MOST_WAITING)
        except StorageError as error:
            self._unfinished((run,), str(error))
        else:
            run.end(result)
            if deliveries and stored:
                deliveries.expect(stored)
            elif inbound and inbound.by_person and result.status == "ok" and result.text and not result.joined:
                sent = sent_facts(inbound.channel, inbound.sender, result.text, run.id)
                self._turns.hooks.observe("message:sent", run.key, lambda: sent)

    def _unfinished(self, runs: Iterable[Run], why: str) -> None:
        """The jobs stay open, for a repeated query and for the next holder."""
        for run in runs:
            run.is_stored = False
            run.end(self._failed(run, why))

    async def _handle(self, run: Run, inbound: Inbound) -> RunResult:
        command = self._command(inbound)
        if command and command.name == "new":
            event, facts = reset_event(inbound.text), partial(command_facts, inbound)
            told = await self._turns.hooks.collect_messages(event, run.key, facts)
            text, report = await self._reset(run, command.rest)
            if not text:
                return self._result(run, "\n\n".join((report, *told)))
            for each in told:
                run.emit(Notice(each))
            inbound = msgspec.structs.replace(inbound, text=text)
        if command and command.name == "compact":
            return await self._compact(run, command.rest)
        directives, words = await self._find_directives(run.key, inbound)
        turn = TurnInput(
            run.id, msgspec.structs.replace(inbound, text=words), thinking=directives.thinking or inbound.thinking
        )
        try:
            agent = self._agents.get(run.key.agent)
            if directives.any and not words and not inbound.images:
                return self._result(run, await self._immediate.choose(run, agent, directives))
            if directives.model:
                await self._immediate.choose(run, agent, Directives(model=directives.model))
            return await self._run_turn(run, agent, turn)
        except StorageError:
            raise
        except PalinurusError as error:  # no agent, no workspace: the message is stored with the reason
            await self._turns.history.store_unanswered(run.key, turn, str(error))
            return self._failed(run, str(error))

    async def _reset(self, run: Run, rest: str) -> tuple[str, str]:
        """Resets the session, with another model if one is named; returns the message that follows, and the result."""
        agent = self._agent(run.key)
        await self._turns.maintenance.reset(run.key, "new", run.id, agent, run.stop)
        report = "The session was reset{}. Earlier messages stay in the transcript."
        if agent is None:  # added when the message is answered
            return rest, report.format("")
        model, words = await split_model(rest, agent)
        if model:
            await self._turns.history.choose(run.key, run.id, model=model, thinking=None)
        return words, report.format(f" with {model}" if model else "")

    async def _find_directives(self, key: SessionKey, inbound: Inbound) -> tuple[Directives, str]:
        """The directives of a message. Inside a sentence, `/model` with an unknown model is text."""
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
            done = await self._turns.maintenance.compact(agent, run.key, run.id, focus, run.stop, limit.emit)
        if done is None:
            return self._result(run, "There is nothing to summarise yet.")
        return self._result(run, f"{done.notice.capitalize()}. Everything stays in the transcript.")

    async def _run_turn(self, run: Run, agent: Agent, turn: TurnInput) -> RunResult:
        joining = JoinedRuns(self.runs, run, self._clock, twelve_hours=agent.context.twelve_hours)
        turn = await joining.collect(turn)
        is_read = bool(turn.inbound.text) and not run.stop.requested
        if is_read and (left_out := self._left_out.pop(str(run.key), None)):
            turn = msgspec.structs.replace(turn, notes=(ContextNote("notice", overflow_note(left_out)),))
        seconds = turn.inbound.timeout_seconds
        with TimeLimit(run, agent.timeout_seconds if seconds is None else seconds) as limit:
            result = await self._turns.run(agent, run.key, turn, run.stop, limit.emit, joining)
        self._turns.hooks.observe("agent_end", run.key, lambda: end_facts(result))
        if result.text.strip().upper() == SILENT:
            return msgspec.structs.replace(result, text="")
        shown = (await self._turns.history.preferences(run.key)).response_usage
        return msgspec.structs.replace(result, footer=usage_line(shown, result, agent.cost))

    def _agent(self, key: SessionKey) -> Agent | None:
        try:
            return self._agents.get(key.agent)
        except StorageError:
            raise
        except PalinurusError:  # a reset needs none
            return None

    def _result(self, run: Run, text: str) -> RunResult:
        return make_result(run, text, self._clock)

    def _failed(self, run: Run, why: str) -> RunResult:
        return RunResult(run.id, str(run.key), "", "error", error=why)


async def _nothing(_: str) -> None: ...


def _is_descendant(run: Run, parents: set[str]) -> bool:
    """Whether it is a subagent's, started by one of these sessions or runs, however far up."""
    spawn = run.inbound.spawn if run.inbound is not None else None
    return spawn is not None and not parents.isdisjoint((*spawn.lineage, spawn.run))


def _stopped(count: int) -> str:
    return f"Stopped {count} run{'s' if count != 1 else ''}." if count else "Nothing was running."


def read_directives(inbound: Inbound) -> tuple[Directives, str]:
    """Only the owner's directives change how a session runs; messages of others are text."""
    if inbound.plain or inbound.origin != Origin.OWNER:
        return Directives(), inbound.text
    return parse_directives(inbound.text)


def _check(inbound: Inbound) -> None:
    if not inbound.text.strip() and not inbound.images and not inbound.results:
        raise BadRequest("the message is empty", hint="write a message")
    if len(inbound.text) > MAX_TEXT:
        raise BadRequest(
            f"the message has {len(inbound.text):,} characters, the limit is {MAX_TEXT:,}",
            hint="put long text into a file of the workspace and name it",
        )
    if not inbound.idempotency_key:
        raise BadRequest("the message has no idempotency key", hint="any text that is new for each message")


def run_job(run_id: str, key: SessionKey, inbound: Inbound, now: int) -> Job:
    """The job of an accepted message. Its first attempt begins at once: only this process knows its lane position."""
    payload = Raw(msgspec.json.encode(inbound))
    return Job(
        run_id, RUN, str(key), inbound.idempotency_key, payload, added_at=now, due_at=now,
        state="running", attempts=1, fence=1,
    )  # fmt: skip


def _message(job: Job) -> Inbound:
    return decoded(bytes(job.payload), Inbound, f"the message of run {job.id}")


def _ended(job: Job) -> Run | None:
    """None: it has not ended."""
    if (result := result_of(job)) is None:
        return None
    run = Run(job.id, SessionKey.parse(job.lane), job.added_at)
    run.end(result)
    return run
