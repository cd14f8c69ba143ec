"""Running commands by id: their output, their end, and a way to end them.

A command belongs to the session that started it; no other session sees it. A background command outlives the run that
started it, unless that run is stopped. Everything is bounded: memory for output, background commands per agent, and how
long and how many ended commands are stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator

from msgspec import Struct, structs

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.events import Where
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.tool import ToolOutput
from palinurus.sandbox.sandbox import Process, ProcessEnd
from palinurus.tools.exec.command_files import CommandFiles

HEAD = TAIL = 1024 * 1024  # bytes
# Terminal sequences that a reader does not need: colours, cursor moves, titles, and controls except \t, \n and \r.
_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
BACKGROUND = 16  # per agent at the same time
REMEMBERED = 50  # ended commands, for the whole home
REMEMBERED_MS = 3_600_000
KILL_SECONDS = 5.0
DRAIN_SECONDS = 0.5  # for output that is still in the pipe when the command has ended
FLOOD = 64 * 1024 * 1024  # bytes after which the output of a command is read slowly

log = logging.getLogger(__name__)


class CommandOutput:
    """The output of a command within fixed memory: its start, its end, and a count of the rest.

    Positions are counted in bytes from the first byte ever written, whether it is still stored or not.
    """

    def __init__(self, *, terminal: bool = False, head: int = HEAD, tail: int = TAIL) -> None:
        self._terminal = terminal
        self._most_head = head
        self._most_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        left = self._most_head - len(self._head)
        self._head += data[:left]
        self._tail += data[left:]
        if len(self._tail) > 2 * self._most_tail:  # not at every byte: moving the tail costs more than storing it
            del self._tail[: -self._most_tail]

    def text(self, since: int = 0, until: int | None = None) -> str:
        """Returns the output between two positions; a line replaces what is no longer stored."""
        until = self.total if until is None else until
        tail = bytes(self._tail[-self._most_tail :])
        begin = self.total - len(tail)  # where the tail begins
        first = bytes(self._head[since:until])
        last = tail[max(since - begin, 0) : max(until - begin, 0)]
        lost = max(min(begin, until) - max(since, len(self._head)), 0)
        if not lost:
            return self._readable(first + last)
        return f"{self._readable(first)}\n[… {lost:,} bytes not kept …]\n{self._readable(last)}"

    def boundary(self) -> int:
        """Returns the last position that splits no character."""
        recent = (bytes(self._head[-3:]) + bytes(self._tail[-3:]))[-3:]
        for back, byte in enumerate(reversed(recent), start=1):
            if byte >= 0xC0:  # the first byte of a character says how many bytes it has
                needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                return self.total - back if needed > back else self.total
            if byte < 0x80:
                break
        return self.total

    def _readable(self, data: bytes) -> str:
        text = data.decode("utf-8", "replace")
        if self._terminal:  # of a line that is overwritten, such as a progress bar, the last version remains
            text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
        return _CONTROLS.sub("", text)


class CommandInfo(Struct, frozen=True):
    """The owner and properties of a command."""

    key: SessionKey
    run_id: str
    command: str
    where: Where
    origin: Origin = Origin.AGENT  # of its output
    terminal: bool = False
    listens: bool = False  # whether its standard input stays open
    free: bool = False  # on the host: whether it was started where no approval is needed
    network: bool = False  # in the sandbox: whether it has a network
    guarded: bool = False  # in the sandbox: whether files that later sessions start with are read-only
    files: CommandFiles | None = None  # the workspace files that it reads and writes


class RunningCommand:
    """One command, while it runs and for a while after."""

    def __init__(self, process_id: str, info: CommandInfo, process: Process, clock: Clock) -> None:
        self.id = process_id
        self.info = info
        self.output = CommandOutput(terminal=info.terminal)
        self.ended: ProcessEnd | None = None
        self.background = False
        self.seen = 0  # how far the model has read the output
        self.started_at = clock.now_ms()
        self.ended_at: int | None = None
        self._process = process
        self._clock = clock
        self._changed = asyncio.Event()
        self._watching = asyncio.create_task(self._watch(), name=f"process {process_id}")

    @property
    def seconds(self) -> float:
        return ((self.ended_at or self._clock.now_ms()) - self.started_at) / 1000

    async def wait(self, seconds: float) -> bool:
        """Returns whether it ended within that time."""
        await asyncio.wait({self._watching}, timeout=seconds)
        if self._watching.done():
            self._watching.result()  # an error here is a bug of ours and must not look like the end of the command
        return self._watching.done()

    def call_when_ended(self, callback: Callable[[], None]) -> None:
        """Calls this once, when the command and everything it left behind have ended."""
        self._watching.add_done_callback(lambda _: callback())

    async def wait_for_news(self, seconds: float) -> None:
        """Waits until there is unread output, the command ended, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.ended is None and self.output.boundary() <= self.seen:
                    self._changed.clear()
                    await self._changed.wait()

    def news(self) -> str:
        """Returns the output since the last call."""
        until = self.output.total if self.ended else self.output.boundary()
        text = self.output.text(self.seen, until)
        self.seen = until
        return text

    def state(self) -> str:
        """Returns its state, as a line below the output: `exit 0 · 1.2 s · sandbox`."""
        how = "running" if self.ended is None else self.ended.reason or f"exit {self.ended.code}"
        return f"{how} · {self.seconds:.1f} s · {self.info.where}"

    def result(self, text: str) -> ToolOutput:
        """Returns a result of this text and the state of the command. Only a command that we ended counts as an
        error."""
        shown = text if not text or text.endswith("\n") else f"{text}\n"
        place = f" · process {self.id}" if self.background else ""
        details = {
            "exitCode": self.ended.code if self.ended else None,
            "seconds": round(self.seconds, 3),
            "where": self.info.where,
            **({"processId": self.id} if self.background else {}),
        }
        stopped = self.ended is not None and bool(self.ended.reason)
        return ToolOutput(f"{shown}[{self.state()}{place}]", stopped, self.info.origin, details)

    async def output_result(self, text: str, *, or_else: str = "", then: str = "") -> ToolOutput:
        """Returns a result of the output with its sources; `or_else` if there is no output."""
        result = self.result(f"{text or or_else}{then}")
        if self.info.files is None:
            return result
        if self.ended is None:
            await self.info.files.enter()
        sources = await self.info.files.sources(text)
        return structs.replace(result, origin=Origin.OUTSIDE, sources=sources) if sources else result

    async def write(self, data: bytes, *, close: bool = False) -> None:
        if self.ended is not None:
            raise BadRequest(f"process {self.id} has ended", hint="start it again")
        if not self.info.listens:
            raise BadRequest(f"process {self.id} does not read input", hint="start it with background or pty")
        await self._process.write(data, close=close)

    async def end_input(self) -> None:
        """Closes the input of a command that will get none."""
        with contextlib.suppress(BadRequest):  # it has ended already
            await self._process.write(b"", close=True)

    async def kill(self, reason: str = "stopped") -> None:
        """Ends it and everything it started. Completes even if the caller is cancelled."""
        await asyncio.shield(asyncio.ensure_future(self._kill(reason)))

    async def end(self) -> None:
        """Ends it like `kill`, but logs errors instead of raising them, for callers that must continue."""
        with self._failures_logged("did not end"):
            await self.kill()

    async def _kill(self, reason: str) -> None:
        await self._process.kill(reason)
        await self.wait(KILL_SECONDS)

    async def _watch(self) -> None:
        reading = asyncio.create_task(self._read(), name=f"output of process {self.id}")
        try:
            ended = await self._process.wait()
            await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
            if self.info.where == "host" or not reading.done():
                # End the processes that it left behind. A sandbox ends with its first process.
                with self._failures_logged("has ended and left something behind"):
                    await self._process.kill()
                await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
        finally:
            reading.cancel()
        if self.info.files is not None:  # before its end is visible
            with self._failures_logged("changed files that could not be recorded"):
                await self.info.files.end()
        self.ended_at = self._clock.now_ms()
        self.ended = ended
        self._changed.set()

    @contextlib.contextmanager
    def _failures_logged(self, what: str) -> Iterator[None]:
        try:
            yield
        except PalinurusError as error:
            log.error("process %s %s: %s", self.id, what, error)  # noqa: TRY400  the sentence says it all

    async def _read(self) -> None:
        while data := await self._process.read():
            self.output.add(data)
            self._changed.set()
            # Reading more slowly slows the writer; otherwise one `yes` would keep the event loop busy.
            await asyncio.sleep(0 if self.output.total < FLOOD else 0.005)


class Processes:
    """All commands of a home."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._clock = clock
        self._new_id = new_id
        self._known: dict[str, RunningCommand] = {}  # in start order
        self._closed = False
        self.sandbox_notice_given = False  # whether the notice about commands without a sandbox was shown

    async def start(self, info: CommandInfo, start: Callable[[], Awaitable[Process]]) -> RunningCommand:
        """Starts a command and tracks it. If the caller is cancelled meanwhile, nothing is left running."""
        if self._is_closed():
            raise PalinurusError("no command can be started: pal is shutting down")
        self._forget()
        starting = asyncio.ensure_future(start())
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(_undo(starting)))
            raise
        running = RunningCommand(self._id(), info, process, self._clock)
        self._known[running.id] = running
        if self._is_closed():  # while it was starting
            await running.kill()
        return running

    def of(self, key: SessionKey) -> list[RunningCommand]:
        """Returns the background commands of a session, oldest first."""
        self._forget()
        return [each for each in self._known.values() if each.info.key == key and each.background]

    def get(self, key: SessionKey, process_id: str) -> RunningCommand:
        """Returns a command. Raises NotFound, also for a command of another session."""
        found = next((each for each in self.of(key) if each.id == process_id), None)
        if found is None:
            raise NotFound(f"there is no process {process_id[:40]!r} here", hint="action list shows the existing ones")
        return found

    def has_room(self, agent: str) -> bool:
        """Returns whether one more command of this agent may run in the background."""
        own = (each for each in self._known.values() if each.info.key.agent == agent)
        return sum(each.background and each.ended is None for each in own) < BACKGROUND

    def drop(self, running: RunningCommand) -> None:
        """Removes a command whose complete output was returned."""
        self._known.pop(running.id, None)

    async def stop_run(self, run_id: str) -> int:
        """Ends everything that a run has started, including background commands. Returns how many there were."""
        return await self._stop([each for each in self._known.values() if each.info.run_id == run_id])

    async def close(self) -> None:
        """Ends all commands. No more can be started."""
        self._closed = True
        await self._stop(self._known.values())

    def _is_closed(self) -> bool:
        return self._closed

    async def _stop(self, some: Iterable[RunningCommand]) -> int:
        alive = [each for each in some if each.ended is None]
        if not alive:
            return 0
        done, late = await asyncio.wait([asyncio.ensure_future(each.kill()) for each in alive], timeout=KILL_SECONDS)
        if failures := [str(each.exception()) for each in done if each.exception()] + ["takes too long"] * len(late):
            log.error("%d of %d commands did not end: %s", len(failures), len(alive), failures[0])
        return len(alive)

    def _id(self) -> str:
        """Returns an id short enough to type; longer only if that one is taken."""
        whole = self._new_id()
        return next(whole[:length] for length in range(6, len(whole) + 1) if whole[:length] not in self._known)

    def _forget(self) -> None:
        """Removes ended commands. One that never ran in the background is returned to its waiting run and needs no
        entry."""
        oldest = self._clock.now_ms() - REMEMBERED_MS
        ended = [each for each in self._known.values() if each.ended_at is not None]
        kept = [each for each in ended if each.background and (each.ended_at or 0) >= oldest]
        for each in {*ended} - {*kept[-REMEMBERED:]}:
            del self._known[each.id]


async def _undo(starting: asyncio.Future[Process]) -> None:
    """Waits for a start to complete, then ends what it started."""
    with contextlib.suppress(PalinurusError):  # it did not start: nothing is left
        process = await starting
        await process.kill()
