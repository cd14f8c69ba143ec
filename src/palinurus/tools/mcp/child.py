"""A server that is a program of ours: lines of JSON on its standard streams, an end that takes all it started with it.

The package has such a transport too. Ours gives the child none of our variables, bounds the length of a line, puts what
it writes to standard error into the log, and ends it within a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palinurus.domain.errors import NotFound, PalinurusError
from palinurus.sandbox.family import Marks, alive, end_family, gone
from palinurus.tools.mcp.settings import ServerSettings

if TYPE_CHECKING:
    from mcp.client import Transport  # noqa: F401  the protocol that `child` implements
    from mcp.shared.message import SessionMessage

MAX_LINE = 8 * 1024 * 1024
LEAVES_SECONDS = 0.3  # of its own, once nobody speaks to it any more
REAPED_SECONDS = 1.0
SHOWN_COMPLAINTS = 1_000  # lines of standard error that are logged
SHOWN_OF_A_LINE = 1_000

log = logging.getLogger(__name__)


@asynccontextmanager
async def child(settings: ServerSettings, ended: Callable[[str], None]) -> AsyncIterator[tuple[Any, Any]]:
    """Start it and yield the streams to and from it. `ended` is told why when it no longer speaks.

    Raises NotFound or PalinurusError when it cannot be started.
    """
    import anyio

    program = _Program(settings)
    to_us, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    outgoing, from_us = anyio.create_memory_object_stream["SessionMessage"](0)
    try:
        await program.open()
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(program.speak, from_us)
            pumps.start_soon(program.listen, to_us, ended)
            pumps.start_soon(program.complain)
            try:
                yield incoming, outgoing
            finally:
                pumps.cancel_scope.cancel()
    finally:
        for stream in (to_us, incoming, outgoing, from_us):
            stream.close()
        try:
            with anyio.CancelScope(shield=True):
                await program.end()
        except asyncio.CancelledError:  # the whole loop is being torn down
            program.kill()
            raise


class _Program:
    """The process and our ends of its pipes."""

    def __init__(self, settings: ServerSettings) -> None:
        self._name = settings.name
        self._said = asyncio.StreamReader(limit=MAX_LINE)
        self._complained = asyncio.StreamReader(limit=65_536)
        self._transports: list[asyncio.BaseTransport] = []
        pipes = [os.pipe() for _ in range(3)]
        theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
        self._ours = (os.fdopen(pipes[0][1], "wb", 0), os.fdopen(pipes[1][0], "rb", 0), os.fdopen(pipes[2][0], "rb", 0))
        try:
            self._process = subprocess.Popen(
                [settings.command, *settings.args], env=settings.environment(), cwd=settings.cwd or None,
                start_new_session=True, stdin=theirs[0], stdout=theirs[1], stderr=theirs[2],
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._close_ours()
            raise _cannot(settings, error) from error
        finally:
            self._pipe = _name(theirs[1])
            for fd in theirs:
                os.close(fd)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        ear, *mouths = self._ours
        for reader, pipe in zip((self._said, self._complained), mouths, strict=True):
            protocol = asyncio.StreamReaderProtocol(reader)
            read, _ = await loop.connect_read_pipe(lambda: protocol, pipe)  # noqa: B023  called at once
            self._transports.append(read)
        flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        written, _ = await loop.connect_write_pipe(lambda: flow, ear)
        self._ear = asyncio.StreamWriter(written, flow, None, loop)
        self._transports.append(written)

    async def speak(self, messages: Any) -> None:
        with suppress(ConnectionError):  # it no longer listens: its output ends as well, and that is told
            async for each in messages:
                self._ear.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await self._ear.drain()

    async def listen(self, to_us: Any, ended: Callable[[str], None]) -> None:
        why = "it has ended"
        try:
            while line := await self._said.readline():
                if message := self._parsed(line):
                    await to_us.send(message)
        except ValueError:
            why = f"it sent a line longer than {MAX_LINE:,} bytes"
        finally:
            to_us.close()  # whoever waits for an answer is told at once
        ended(why)

    def _parsed(self, line: bytes) -> SessionMessage | None:
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            if line.strip():  # many programs greet whoever starts them
                self._note("it wrote what is no message", line)
            return None

    async def complain(self) -> None:
        for _ in range(SHOWN_COMPLAINTS):
            try:
                line = await self._complained.readline()
            except ValueError:
                line = b"[a line too long to be shown]"
            if not line:
                return
            self._note("says", line)
        self._note("says more than is shown", b"")
        while await self._complained.read(65_536):
            pass

    def _note(self, what: str, line: bytes) -> None:
        log.info("MCP server %s %s: %s", self._name, what, line.decode("utf-8", "replace").strip()[:SHOWN_OF_A_LINE])

    async def end(self) -> None:
        """Let it leave, then end it and whoever it started. Until it is waited for, its number is its own."""
        if self._transports:
            self._transports[-1].close()  # the end of its input asks it to leave
        if sys.platform == "linux":
            me = alive(self._process.pid)
            await gone([me] if me else [], LEAVES_SECONDS)
            if left := await end_family(Marks(self._process.pid, self._process.pid, "", self._pipe)):
                log.warning("MCP server %s: could not end process %s", self._name, ", ".join(map(str, left)))
        else:
            await asyncio.sleep(LEAVES_SECONDS)
            self.kill()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, REAPED_SECONDS)
        for transport in self._transports:
            transport.close()
        self._close_ours()

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _close_ours(self) -> None:
        for file in self._ours:
            with suppress(OSError):  # bytes that nobody reads any more
                file.close()


def _name(fd: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:  # no Linux
        return ""


def _cannot(settings: ServerSettings, error: OSError | ValueError) -> PalinurusError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if settings.cwd and not Path(settings.cwd).is_dir():
            return NotFound(f"there is no directory {settings.cwd}", hint=f"mcp.servers.{settings.name}.cwd names it")
        return NotFound(f"there is no program {settings.command!r}", hint="is it installed, and on the PATH?")
    told = error.strerror if isinstance(error, OSError) else str(error)
    return PalinurusError(f"{settings.command!r} cannot be started: {str(told).lower()}")
