"""A worker process, seen from its parent: numbered orders in, numbered answers out, several at once.

Whoever waits too long gives the whole process up: native code cannot be asked to stop, and nothing is lost by it but
the second that loading takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from palinurus.domain.errors import EmbedderError
from palinurus.memory.embedders.worker import FAILED, HEADER

_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH")  # no key, no home
_SMALL = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_ARENA_MAX": "1",  # what loading took is given back: 60 MB less, and no slower
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
_MOST_BYTES = 64 * 1024 * 1024  # of an answer; more is not one of ours
AGAIN = "search goes by words; it is tried again later"


class Child:
    """Started by `start`. When it has ended, every order fails at once."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._numbers = count(1)
        self._ready: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting = {0: self._ready}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, arguments: Sequence[str], seconds: float) -> Child:
        """A process that has loaded its model. Raises EmbedderError."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", *arguments,
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_environment(), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise EmbedderError(f"the embedder's process cannot be started: {error.strerror}", hint=AGAIN) from None
        child = cls(process)
        try:
            await child._answer(0, child._ready, seconds)
        except BaseException:
            await child.kill()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return not self._reading.done()

    async def ask(self, kind: int, texts: Sequence[str], seconds: float) -> bytes:
        """The vectors of some texts, one behind the other. Raises EmbedderError."""
        if not self.is_alive:
            raise self._ended()
        number = next(self._numbers)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        body = json.dumps(texts).encode()
        assert self._process.stdin is not None  # noqa: S101  opened with a pipe
        self._process.stdin.write(HEADER.pack(len(body), number, kind) + body)
        return await self._answer(number, future, seconds)

    def leave(self) -> None:
        """It ends when its stdin does; the loop waits for it and takes note."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def kill(self) -> None:
        self._end()
        await asyncio.shield(self._process.wait())
        await asyncio.shield(self._reading)

    async def _answer(self, number: int, future: asyncio.Future[bytes], seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as error:
            await self.kill()
            raise EmbedderError(f"the embedded model was silent for {seconds:g} seconds", hint=AGAIN) from error
        finally:
            self._waiting.pop(number, None)

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  opened with a pipe
        stdout = self._process.stdout
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size, number, kind = HEADER.unpack(await stdout.readexactly(HEADER.size))
                if size > _MOST_BYTES:
                    break
                self._heard(number, kind, await stdout.readexactly(size))
        self._end()  # it is of no use any more
        await self._process.wait()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._ended())

    def _heard(self, number: int, kind: int, body: bytes) -> None:
        future = self._waiting.get(number)
        if future is None or future.done():  # nobody waits any more
            return
        if kind == FAILED:
            future.set_exception(EmbedderError(f"the embedded model failed: {body.decode()}", hint=AGAIN))
        else:
            future.set_result(body)

    def _end(self) -> None:
        """By its number: asyncio's own kill() looks first whether it has ended, and so takes the news from the loop."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _ended(self) -> EmbedderError:
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return EmbedderError(f"the process of the embedded model ended ({how})", hint=AGAIN)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _SMALL
