"""The small model as an engine: words in, words out, one reply at a time.

The process behind it is started on first use, ends after some idle minutes, and is killed when a reply is given up:
nothing is lost by that but the second that loading takes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure, ProviderError
from palinurus.providers.smollm import worker
from palinurus.providers.smollm.packages import weights_file

WINDOW = worker.CONTEXT
IDLE_SECONDS = 300.0
LOAD_SECONDS = 60.0
PIECE_SECONDS = 30.0  # reading a full prompt takes several on a slow core
INSTALL = "`pal models install embedded` installs it"
CHECK = "`pal models install embedded` checks it"
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH")  # no key, no home


class Line(Struct, frozen=True):
    """One thing said, as the model is shown it."""

    role: Literal["system", "user", "assistant"]
    content: str


class Spent(Struct, frozen=True):
    """The end of a reply: tokens read and written, and whether it was cut off."""

    input: int = 0
    output: int = 0
    cut: bool = False


class Engine(Protocol):
    """Writes one reply at a time; others wait their turn."""

    def reply(self, lines: Sequence[Line], *, most: int, seed: int) -> AsyncGenerator[str | Spent]:
        """Words as they come, and Spent as the last. Raises ProviderError. Closing the generator stops the work."""

    async def close(self) -> None:
        """Give back what it holds. It may be used again."""


class _Order(Struct, frozen=True):
    messages: Sequence[Line]
    most: int
    seed: int


class _Said(Struct, frozen=True):
    """A line of the worker."""

    ready: bool = False
    text: str = ""
    done: Spent | None = None
    error: str = ""


class ProcessEngine:
    """Implements Engine with worker.py in a process of its own."""

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        load_seconds: float = LOAD_SECONDS,
        piece_seconds: float = PIECE_SECONDS,
        program: Path = Path(worker.__file__),
        find_weights: Callable[[], Path | None] = weights_file,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._load_seconds = load_seconds
        self._piece_seconds = piece_seconds
        self._program = program
        self._find_weights = find_weights
        self._one_at_a_time = asyncio.Lock()
        self._process: Process | None = None
        self._unloading: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that holds the model, while there is one."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def reply(self, lines: Sequence[Line], *, most: int, seed: int) -> AsyncGenerator[str | Spent]:
        async with self._one_at_a_time:
            self._keep()
            finished = False
            try:
                process = await self._started()
                await _write(process, msgspec.json.encode(_Order(lines, most, seed)) + b"\n")
                while not finished:
                    said = await _heard(process, self._piece_seconds)
                    finished = said.done is not None
                    yield said.text if said.done is None else said.done
            finally:
                if not finished:
                    await self._stop()
                self._unload_later()

    async def close(self) -> None:
        self._keep()
        await self._stop()

    async def _started(self) -> Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        weights = self._find_weights()
        if weights is None:
            raise ProviderError("the small embedded model is not installed", kind=Failure.MODEL_NOT_FOUND, hint=INSTALL)
        with tempfile.TemporaryDirectory(prefix="pal-", ignore_cleanup_errors=True) as folder:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", str(self._program), str(weights), folder,
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_environment(),
            )  # fmt: skip
            await _heard(self._process, self._load_seconds)
        return self._process

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())

    def _unload_later(self) -> None:
        if self._process is not None:
            self._unloading = asyncio.get_running_loop().call_later(self._idle_seconds, self._unload)

    def _unload(self) -> None:
        """The worker ends when its stdin does; the loop waits for it and takes note."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _keep(self) -> None:
        if self._unloading is not None:
            self._unloading.cancel()
            self._unloading = None


async def _write(process: Process, order: bytes) -> None:
    assert process.stdin is not None  # noqa: S101  opened with a pipe
    try:
        process.stdin.write(order)
        async with asyncio.timeout(PIECE_SECONDS):
            await process.stdin.drain()
    except (OSError, TimeoutError) as error:
        raise await _broken(process) from error


async def _heard(process: Process, seconds: float) -> _Said:
    """The worker's next line. Raises ProviderError for an error, an end, and silence."""
    assert process.stdout is not None  # noqa: S101  opened with a pipe
    try:
        async with asyncio.timeout(seconds):  # not wait_for, which forgets a stop that comes together with a line
            line = await process.stdout.readline()
    except TimeoutError as error:
        said = f"the small embedded model was silent for {seconds:g} seconds"
        raise ProviderError(said, kind=Failure.TIMEOUT, hint="the machine may be busy; try again") from error
    if not line:
        raise await _broken(process)
    said_line = msgspec.json.decode(line, type=_Said)
    if said_line.error:
        raise ProviderError(f"the small embedded model failed: {said_line.error}", kind=Failure.MALFORMED, hint=CHECK)
    return said_line


async def _broken(process: Process) -> ProviderError:
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await process.wait()
    code = process.returncode
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return ProviderError(f"the process of the small embedded model ended ({how})", kind=Failure.MALFORMED, hint=CHECK)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
