"""Runs our Python programs in separate processes, so that native or slow code can be stopped and cannot crash the
caller.

`run_program` gives one request to a program that ends with its answer. `Worker` keeps a program running (see
worker_program.py): it starts on first use and ends after some idle time. Orders are numbered, so several may be in
progress. A timeout kills the process: native code cannot be interrupted, and a start costs a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, suppress
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.domain import worker_program
from palinurus.domain.worker_program import DONE, FAILED, HEADER

PROGRAM = worker_program.__file__
MAX_ANSWER = 64 * 1024 * 1024  # bytes; a longer frame is invalid
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH")  # no keys, no home


class WorkerFailed(Exception):
    """The worker failed. `silent`: it sent nothing in time and was killed."""

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class AnswerPart(Struct, frozen=True):
    """A piece of an answer, or its end."""

    body: bytes
    is_last: bool


async def run_program(
    arguments: Sequence[str | Path], request: bytes, *, seconds: float, env: Mapping[str, str] | None = None
) -> bytes:
    """Returns what a Python program writes for a request. Raises TimeoutError, and WorkerFailed if it fails."""
    process = await _start_process(arguments, safe_environment() if env is None else env)
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await process.communicate(request)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise WorkerFailed(_how_it_ended("the program", process))
    return answer


def safe_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


async def _start_process(arguments: Sequence[str | Path], env: Mapping[str, str]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, start_new_session=True
        )
    except OSError as error:
        raise WorkerFailed(f"the process cannot be started: {error.strerror}") from None


def _how_it_ended(what: str, process: Process) -> str:
    code = process.returncode
    return f"{what} ended ({f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'})"


class WorkerProcess:
    """A started process. When it ends, every open order fails at once."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Queue[tuple[int, bytes] | None]] = {0: asyncio.Queue()}
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return not self._reading.done()

    async def wait_until_ready(self, seconds: float) -> None:
        """Raises WorkerFailed after killing the process."""
        try:
            async for _ in self._receive(0, seconds):
                pass
        except BaseException:
            await self.kill()
            raise

    async def ask(self, kind: int, order: Any, seconds: float) -> AsyncGenerator[AnswerPart]:
        """Yields the pieces of an answer and its end. Raises WorkerFailed, also after `seconds` without output."""
        if not self.is_alive:
            raise self._ended()
        number = next(self._numbers)
        self._answers[number] = asyncio.Queue()
        body = json.dumps(order).encode()
        assert self._process.stdin is not None  # noqa: S101  opened with a pipe
        self._process.stdin.write(HEADER.pack(len(body), number, kind) + body)
        async with aclosing(self._receive(number, seconds)) as parts:
            async for part in parts:
                yield part

    def leave(self) -> None:
        """Closes stdin, which ends the process; the event loop reaps it."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def kill(self) -> None:
        self._signal_end()
        await asyncio.shield(self._process.wait())
        await asyncio.shield(self._reading)

    async def _receive(self, number: int, seconds: float) -> AsyncGenerator[AnswerPart]:
        frames = self._answers[number]
        is_last = False
        try:
            while not is_last:
                async with asyncio.timeout(seconds):
                    frame = await frames.get()
                if frame is None:
                    raise self._ended()
                kind, body = frame
                if kind == FAILED:
                    raise WorkerFailed(f"{self._name} failed: {body.decode()}")
                is_last = kind == DONE
                yield AnswerPart(body, is_last)
        except TimeoutError:
            await self.kill()
            raise WorkerFailed(f"{self._name} was silent for {seconds:g} seconds", silent=True) from None
        finally:
            del self._answers[number]

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101  opened with a pipe
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size, number, kind = HEADER.unpack(await stdout.readexactly(HEADER.size))
                if size > MAX_ANSWER:
                    break
                body = await stdout.readexactly(size)
                if number in self._answers:  # else the caller no longer waits
                    self._answers[number].put_nowait((kind, body))
        self._signal_end()  # it can no longer be used
        await self._process.wait()
        for frames in self._answers.values():
            frames.put_nowait(None)

    def _signal_end(self) -> None:
        """Kills by pid: asyncio's own kill() polls the process first and would take its exit status from the loop."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _ended(self) -> WorkerFailed:
        return WorkerFailed(_how_it_ended(f"the process of {self._name}", self._process))


class Worker(Struct, eq=False):
    """A worker process that runs while it is needed.

    `arguments` gives Python's arguments within a context that lasts until the program is ready; `ask` raises what it
    raises. After a failed start there is no other start for `rest_seconds`.
    """

    name: str
    arguments: Callable[[], AbstractContextManager[Sequence[str | Path]]]
    idle_seconds: float
    load_seconds: float
    rest_seconds: float = 0.0
    env: Mapping[str, str] = {}
    _starting: asyncio.Task[WorkerProcess] | None = None
    _failure: tuple[float, Exception] | None = None  # no start until then, and why
    _users: int = 0
    _unloading: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the process, if one is ready."""
        process = self._running()
        return process.pid if process else None

    async def ask(self, kind: int, order: Any, seconds: float) -> AsyncGenerator[AnswerPart]:
        """Yields the pieces of an answer and its end. Raises WorkerFailed."""
        self._users += 1
        self._cancel_unloading()
        try:
            process = await self._started()
            async with aclosing(process.ask(kind, order, seconds)) as parts:
                async for part in parts:
                    yield part
        finally:
            self._users -= 1
            if not self._users:
                self._unloading = asyncio.get_running_loop().call_later(self.idle_seconds, self._unload)

    async def stop(self) -> None:
        """Kills the process, if any. The next order starts another."""
        self._cancel_unloading()
        starting, self._starting = self._starting, None
        if starting is None:
            return
        starting.cancel()  # cancelling a finished task does nothing
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().kill()

    async def _started(self) -> WorkerProcess:
        """Starts the process. All waiting callers share one start, which continues when one of them is cancelled."""
        if process := self._running():
            return process
        if self._starting is None or self._starting.done():
            if self._failure and asyncio.get_running_loop().time() < self._failure[0]:
                raise self._failure[1].with_traceback(None)
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._starting)

    async def _start(self) -> WorkerProcess:
        try:
            with self.arguments() as arguments:
                started = await _start_process(("-P", *arguments), safe_environment() | dict(self.env))
                process = WorkerProcess(started, self.name)
                await process.wait_until_ready(self.load_seconds)
        except Exception as error:
            self._failure = (asyncio.get_running_loop().time() + self.rest_seconds, error)
            raise
        return process

    def _running(self) -> WorkerProcess | None:
        task = self._starting
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        process = task.result()
        return process if process.is_alive else None

    def _cancel_unloading(self) -> None:
        if self._unloading is not None:
            self._unloading.cancel()

    def _unload(self) -> None:
        if process := self._running():
            self._starting = None
            process.leave()
