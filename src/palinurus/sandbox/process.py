"""A running command: its streams, its end, its time limit.

Nothing is buffered here. The output stays in a kernel pipe until it is read, so a command that writes too much waits
instead of filling our memory. A pidfd reports its end where the system has pidfds, so no thread waits and no signal
handler is set.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from palinurus.domain.errors import BadRequest, SandboxError
from palinurus.sandbox.sandbox import Process, ProcessEnd
from palinurus.sandbox.spawn import SpawnedProcess
from palinurus.sandbox.totals import FIRST_SECONDS, UsageTotals

LINGER_SECONDS = 0.2
"""Processes left behind may keep the output open for ever; after the command's end we wait no longer than this."""

EndAll = Callable[[bool], Awaitable[list[int]]]
"""Ends everything the command has started. The argument says whether the command itself has ended; returns the pids
left."""


class RunningProcess:
    """A Process over file descriptors. Create it on the loop that will use it, in the loop's thread.

    All descriptors are closed when the output was read to its end and the command ended, or by `kill`.
    """

    def __init__(self, spawned: SpawnedProcess, end_all: EndAll, wall_seconds: float) -> None:
        self._totals: UsageTotals | None = None
        self._excess = ""  # the limit that was exceeded
        self._loop = asyncio.get_running_loop()
        self._child = spawned.child
        self._output: int | None = spawned.output
        self._input: int | None = spawned.input
        self._terminal = spawned.terminal
        self._end_all = end_all
        self._rest = b""
        self._reason = ""
        self._ended: asyncio.Future[ProcessEnd] = self._loop.create_future()
        self._killing: asyncio.Task[None] | None = None
        self._reading, self._writing = asyncio.Lock(), asyncio.Lock()
        self._timers: list[asyncio.TimerHandle] = []
        if wall_seconds:
            self._timers.append(self._loop.call_later(wall_seconds, self._end, f"took longer than {wall_seconds:g} s"))
        _watch(self._child, self._loop, self._on_end)

    @property
    def pid(self) -> int:
        return self._child.pid

    def watch(self, totals: UsageTotals) -> None:
        """Starts checking its total use, from a moment later until its end."""
        self._totals = totals
        if not self._ended.done():
            self._timers.append(self._loop.call_later(FIRST_SECONDS, totals.start, self._exceed))

    async def read(self, size: int = 65_536) -> bytes:
        async with self._reading:
            while self._output is not None:
                try:
                    data = os.read(self._output, size)
                except BlockingIOError:
                    if await self._ready(self._output, reading=True):
                        continue
                    data = b""
                except OSError:  # EIO: the last process has closed the terminal
                    data = b""
                if data:
                    return data
                self._close_output()
            data, self._rest = self._rest[:size], self._rest[size:]
            return data

    async def write(self, data: bytes, *, close: bool = False) -> None:
        async with self._writing:
            left = memoryview(data + b"\x04" if close and self._terminal else data)  # a terminal reads it as the end
            while left:
                if self._input is None:
                    raise _deaf()
                try:
                    left = left[os.write(self._input, left) :]
                except BlockingIOError:
                    await self._ready(self._input)
                except OSError:
                    self._close_input()
                    raise _deaf() from None
            if close:
                self._close_input()

    async def wait(self) -> ProcessEnd:
        return await asyncio.shield(self._ended)

    async def kill(self, reason: str = "stopped") -> None:
        await asyncio.shield(self._end(reason))  # the caller may be cancelled; the ending continues

    async def _kill(self, reason: str) -> None:
        if self._child.poll() is None:  # one that has just ended by itself was not ended by us
            self._reason = reason
        left = await self._end_all(self._ended.done())
        if left:
            raise SandboxError(f"could not end process {', '.join(map(str, left))}", hint="end it manually")
        await asyncio.shield(self._ended)
        self._drain()
        self._close_input()

    def _drain(self) -> None:
        """Reads what the pipe still has, at most its capacity, and closes the descriptor."""
        while self._output is not None:
            try:
                data = os.read(self._output, 65_536)
            except OSError:
                data = b""
            self._rest += data
            if not data or len(self._rest) > 1_048_576:  # a writer that was not found could fill it again and again
                self._close_output()

    def _end(self, reason: str) -> asyncio.Task[None]:
        if self._killing is None:
            self._killing = self._loop.create_task(self._kill(reason))
        return self._killing

    def _exceed(self, reason: str) -> None:
        """Called in the thread that checks the totals."""
        self._excess = reason
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._end, reason)

    def _on_end(self) -> None:
        code = self._child.wait()
        for timer in self._timers:
            timer.cancel()
        self._close_input()
        if self._totals is not None:
            self._totals.stop()
            last = self._totals.last()
            self._excess = self._excess or last
        if not self._ended.done():
            self._ended.set_result(ProcessEnd(code if code >= 0 else 128 - code, self._excess or self._reason))

    async def _ready(self, fd: int, *, reading: bool = False) -> bool:
        """Waits for a descriptor; returns False if the command has ended and nothing came for a moment."""
        ready: asyncio.Future[None] = self._loop.create_future()
        (self._loop.add_reader if reading else self._loop.add_writer)(fd, _settle, ready)
        try:
            if not self._ended.done():
                await asyncio.wait((ready, self._ended), return_when=asyncio.FIRST_COMPLETED)
                return True
            done, _ = await asyncio.wait((ready,), timeout=LINGER_SECONDS)
            return bool(done)
        finally:
            if fd == (self._output if reading else self._input):  # otherwise closed meanwhile, and the number reused
                (self._loop.remove_reader if reading else self._loop.remove_writer)(fd)
            ready.cancel()

    def _close_output(self) -> None:
        if self._output is not None:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = None

    def _close_input(self) -> None:
        if self._input is not None:
            self._loop.remove_writer(self._input)
            os.close(self._input)
            self._input = None


async def read_whole(process: Process, most: int = 1_048_576) -> bytes:
    """Returns all output until its end, for our own commands with little output. Output beyond `most` is discarded."""
    output = b""
    while piece := await process.read():
        output = (output + piece)[:most]
    await process.wait()
    return output


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _deaf() -> BadRequest:
    return BadRequest("the command no longer reads its standard input", hint="it has ended, or its input was closed")


def _watch(child: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
    """Calls `on_end` on the loop once the child has ended."""
    try:
        fd = os.pidfd_open(child.pid)
    except (AttributeError, OSError):  # not Linux, or an old kernel

        def wait() -> None:
            child.wait()
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(on_end)

        threading.Thread(target=wait, name=f"wait-{child.pid}", daemon=True).start()
        return

    def ended() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        on_end()

    loop.add_reader(fd, ended)
