"""Commands that run, kept by id: what they wrote, how they ended, and a way to end them.

A command belongs to the session that started it; no other sees it. One that goes on in the background outlives the run
that started it, unless that run is stopped. Everything is bounded: memory for output, commands in the background for
each agent, how long and how many ended ones are remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.plan import Where
from palinurus.domain.tool import ToolOutput
from palinurus.sandbox.sandbox import Ended, Process
from palinurus.tools.exec.command_files import CommandFiles
from palinurus.tools.exec.output import Output

BACKGROUND = 16  # of one agent at the same time
REMEMBERED = 50  # ended ones, of the whole house
REMEMBERED_MS = 3_600_000
KILL_SECONDS = 5.0
DRAIN_SECONDS = 0.5  # for output that is still in the pipe when the command has ended
FLOOD = 64 * 1024 * 1024  # bytes after which a command that only writes is read slowly

log = logging.getLogger(__name__)


class About(Struct, frozen=True):
    """Whose command it is and what it does."""

    key: SessionKey
    run_id: str
    command: str
    where: Where
    origin: Origin = Origin.AGENT  # of what it writes
    terminal: bool = False
    listens: bool = False  # whether its standard input stays open
    free: bool = False  # on the host: whether it was started where nobody needs to be asked
    network: bool = False  # in the sandbox: whether it has one
    guarded: bool = False  # in the sandbox: whether it can only read what conversations begin with
    files: CommandFiles | None = None  # what it reads and writes in the workspace


class Job:
    """One command, while it runs and for a while after."""

    def __init__(self, process_id: str, about: About, process: Process, clock: Clock) -> None:
        self.id = process_id
        self.about = about
        self.output = Output(terminal=about.terminal)
        self.ended: Ended | None = None
        self.background = False
        self.seen = 0  # how far into the output the model has been told
        self.started_at = clock.now_ms()
        self.ended_at: int | None = None
        self._process = process
        self._clock = clock
        self._stir = asyncio.Event()
        self._watching = asyncio.create_task(self._watch(), name=f"process {process_id}")

    @property
    def seconds(self) -> float:
        return ((self.ended_at or self._clock.now_ms()) - self.started_at) / 1000

    async def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        await asyncio.wait({self._watching}, timeout=seconds)
        if self._watching.done():
            self._watching.result()  # it fails only by a mistake of ours, which must not look like an end
        return self._watching.done()

    def tell_end(self, told: Callable[[], None]) -> None:
        """Call this once, when it has ended and all it left behind is gone."""
        self._watching.add_done_callback(lambda _: told())

    async def stirs(self, seconds: float) -> None:
        """Wait until there is something that was not seen yet, or it ended, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.ended is None and self.output.boundary() <= self.seen:
                    self._stir.clear()
                    await self._stir.wait()

    def news(self) -> str:
        """What it wrote since it was last asked."""
        until = self.output.total if self.ended else self.output.boundary()
        text = self.output.text(self.seen, until)
        self.seen = until
        return text

    def state(self) -> str:
        """How it stands, for a line below its output: `exit 0 · 1.2 s · sandbox`."""
        how = "running" if self.ended is None else self.ended.reason or f"exit {self.ended.code}"
        return f"{how} · {self.seconds:.1f} s · {self.about.where}"

    def told(self, text: str) -> ToolOutput:
        """A result of this text and how the command stands. Only what we ended counts as a mistake."""
        told = text if not text or text.endswith("\n") else f"{text}\n"
        place = f" · process {self.id}" if self.background else ""
        details = {
            "exitCode": self.ended.code if self.ended else None,
            "seconds": round(self.seconds, 3),
            "where": self.about.where,
            **({"processId": self.id} if self.background else {}),
        }
        stopped = self.ended is not None and bool(self.ended.reason)
        return ToolOutput(f"{told}[{self.state()}{place}]", stopped, self.about.origin, details)

    async def tell(self, text: str, *, or_else: str = "", then: str = "") -> ToolOutput:
        """A result of what it wrote, with where that comes from; `or_else` when it wrote nothing."""
        told = self.told(f"{text or or_else}{then}")
        if self.about.files is None:
            return told
        if self.ended is None:
            await self.about.files.enter()
        sources = await self.about.files.sources(text)
        return replace(told, origin=Origin.OUTSIDE, sources=sources) if sources else told

    async def write(self, data: bytes, *, close: bool = False) -> None:
        if self.ended is not None:
            raise BadRequest(f"process {self.id} has ended", hint="start it again")
        if not self.about.listens:
            raise BadRequest(f"process {self.id} does not listen", hint="start it with background or pty")
        await self._process.write(data, close=close)

    async def end_input(self) -> None:
        """For a command that nobody will write to: what it reads ends at once."""
        with contextlib.suppress(BadRequest):  # it has ended already
            await self._process.write(b"", close=True)

    async def kill(self, reason: str = "stopped") -> None:
        """End it and everything it started. Goes on to its end when the caller is cancelled meanwhile."""
        await asyncio.shield(asyncio.ensure_future(self._kill(reason)))

    async def end(self) -> None:
        """The same for those who must go on whatever comes of it, such as a stop."""
        try:
            await self.kill()
        except PalinurusError as error:
            log.error("process %s did not end: %s", self.id, error)  # noqa: TRY400  the sentence says it all

    async def _kill(self, reason: str) -> None:
        await self._process.kill(reason)
        await self.wait(KILL_SECONDS)

    async def _watch(self) -> None:
        reading = asyncio.create_task(self._read(), name=f"output of process {self.id}")
        try:
            ended = await self._process.wait()
            await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
            if self.about.where == "host" or not reading.done():
                await self._sweep()
                await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
        finally:
            reading.cancel()
        await self._enter_files()
        self.ended_at = self._clock.now_ms()
        self.ended = ended
        self._stir.set()

    async def _enter_files(self) -> None:
        """Before anybody hears that it has ended."""
        try:
            if self.about.files is not None:
                await self.about.files.end()
        except PalinurusError as error:
            log.error("what process %s has changed could not be entered: %s", self.id, error)  # noqa: TRY400

    async def _sweep(self) -> None:
        """End what it left behind: nobody could find it any more. A sandbox ends with its first process."""
        try:
            await self._process.kill()
        except PalinurusError as error:
            log.warning("process %s has ended and left something behind: %s", self.id, error)

    async def _read(self) -> None:
        while data := await self._process.read():
            self.output.add(data)
            self._stir.set()
            # Reading more slowly holds the writer back; else one `yes` would keep the event loop busy for good.
            await asyncio.sleep(0 if self.output.total < FLOOD else 0.005)


class Processes:
    """All commands of a house."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._clock = clock
        self._new_id = new_id
        self._known: dict[str, Job] = {}  # in the order of their start
        self._closed = False
        self.walls_missed = False  # whether somebody was told that commands run without a sandbox

    async def start(self, about: About, start: Callable[[], Awaitable[Process]]) -> Job:
        """Start a command and keep an eye on it. A caller who is cancelled meanwhile leaves nothing running."""
        if self._is_closed():
            raise PalinurusError("no command is started any more: the house is closing")
        self._forget()
        starting = asyncio.ensure_future(start())
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(_undo(starting)))
            raise
        job = Job(self._id(), about, process, self._clock)
        self._known[job.id] = job
        if self._is_closed():  # while it was starting
            await job.kill()
        return job

    def of(self, key: SessionKey) -> list[Job]:
        """The background commands of a session, oldest first."""
        self._forget()
        return [each for each in self._known.values() if each.about.key == key and each.background]

    def get(self, key: SessionKey, process_id: str) -> Job:
        """Raises NotFound, also for the command of another session."""
        found = next((each for each in self.of(key) if each.id == process_id), None)
        if found is None:
            raise NotFound(f"there is no process {process_id[:40]!r} here", hint="action list shows those there are")
        return found

    def has_room(self, agent: str) -> bool:
        """Whether one more command of this agent may go on in the background."""
        return sum(each.background and each.ended is None for each in self._of_agent(agent)) < BACKGROUND

    def drop(self, job: Job) -> None:
        """Forget one whose whole story has been told."""
        self._known.pop(job.id, None)

    async def stop_run(self, run_id: str) -> int:
        """End everything that a run has started, also what went on in the background. Says how many there were."""
        return await self._stop([each for each in self._known.values() if each.about.run_id == run_id])

    async def close(self) -> None:
        """End all. Nothing can be started any more."""
        self._closed = True
        await self._stop(self._known.values())

    async def _stop(self, some: Iterable[Job]) -> int:
        alive = [each for each in some if each.ended is None]
        if not alive:
            return 0
        done, late = await asyncio.wait([asyncio.ensure_future(each.kill()) for each in alive], timeout=KILL_SECONDS)
        if failures := [str(each.exception()) for each in done if each.exception()] + ["takes too long"] * len(late):
            log.error("%d of %d commands did not end: %s", len(failures), len(alive), failures[0])
        return len(alive)

    def _is_closed(self) -> bool:
        return self._closed

    def _of_agent(self, agent: str) -> list[Job]:
        return [each for each in self._known.values() if each.about.key.agent == agent]

    def _id(self) -> str:
        """Short enough to be typed; longer only if that one is taken."""
        whole = self._new_id()
        return next(whole[:length] for length in range(6, len(whole) + 1) if whole[:length] not in self._known)

    def _forget(self) -> None:
        """What never went to the background is told by who waits for it, and is of no use to others."""
        oldest = self._clock.now_ms() - REMEMBERED_MS
        ended = [each for each in self._known.values() if each.ended_at is not None]
        kept = [each for each in ended if each.background and (each.ended_at or 0) >= oldest]
        for each in {*ended} - {*kept[-REMEMBERED:]}:
            del self._known[each.id]


async def _undo(starting: asyncio.Future[Process]) -> None:
    """Let a start come to its end, then end what it started."""
    with contextlib.suppress(PalinurusError):  # it did not start: nothing is left
        process = await starting
        await process.kill()
