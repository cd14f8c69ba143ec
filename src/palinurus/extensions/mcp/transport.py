"""The streams to and from a server: a program that we start, or an address.

A program exchanges lines of JSON on its standard streams; when it is ended, so are all processes that it started.
The package has such a transport too. Ours gives the child none of our variables, limits the length of a line, logs
what it writes to standard error, and ends it within a second. An address is used by streamable HTTP through the
package, with an HTTP client of ours that limits the size of answers.
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
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from palinurus.domain.errors import BadRequest
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.sandbox.family import Marks, alive, end_family, gone
from palinurus.sandbox.spawn import pipe_name, start_error

if TYPE_CHECKING:
    import httpx2
    from mcp.client import Transport  # noqa: F401  the protocol that `child` implements
    from mcp.shared.message import SessionMessage

MAX_LINE = 8 * 1024 * 1024
LEAVES_SECONDS = 0.3  # time to end by itself after its input is closed
REAPED_SECONDS = 1.0
SHOWN_COMPLAINTS = 1_000  # lines of standard error that are logged
SHOWN_OF_A_LINE = 1_000
log = logging.getLogger(__name__)
CONNECT_SECONDS = 10.0
SILENT_SECONDS = 300.0  # an event stream may be silent for long
IDENTITY = {"Accept-Encoding": "identity"}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@asynccontextmanager
async def child_streams(settings: ServerSettings, ended: Callable[[str], None]) -> AsyncIterator[tuple[Any, Any]]:
    """Starts it and yields the streams to and from it. `ended` is called with the reason when it stops.

    Raises NotFound or PalinurusError if it cannot be started.
    """
    import anyio

    program = _Program(settings)
    to_us, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    outgoing, from_us = anyio.create_memory_object_stream["SessionMessage"](0)
    try:
        await program.open()
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(program.send_messages, from_us)
            pumps.start_soon(program.read_messages, to_us, ended)
            pumps.start_soon(program.log_errors)
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
        except asyncio.CancelledError:  # the whole loop is being closed
            program.kill()
            raise


class _Program:
    """The process and our ends of its pipes."""

    def __init__(self, settings: ServerSettings) -> None:
        self._name = settings.name
        self._output = asyncio.StreamReader(limit=MAX_LINE)
        self._errors = asyncio.StreamReader(limit=65_536)
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
            raise start_error(settings.command, settings.cwd or None, error) from error
        finally:
            self._pipe = pipe_name(theirs[1])
            for fd in theirs:
                os.close(fd)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        input_pipe, *output_pipes = self._ours
        for reader, pipe in zip((self._output, self._errors), output_pipes, strict=True):
            protocol = asyncio.StreamReaderProtocol(reader)
            read, _ = await loop.connect_read_pipe(lambda: protocol, pipe)  # noqa: B023  called at once
            self._transports.append(read)
        flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        written, _ = await loop.connect_write_pipe(lambda: flow, input_pipe)
        self._input = asyncio.StreamWriter(written, flow, None, loop)
        self._transports.append(written)

    async def send_messages(self, messages: Any) -> None:
        with suppress(ConnectionError):  # it no longer reads: its output ends too, and that is reported
            async for each in messages:
                self._input.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await self._input.drain()

    async def read_messages(self, to_us: Any, ended: Callable[[str], None]) -> None:
        why = "it has ended"
        try:
            while line := await self._output.readline():
                if message := self._parsed(line):
                    await to_us.send(message)
        except ValueError:
            why = f"it sent a line longer than {MAX_LINE:,} bytes"
        finally:
            to_us.close()  # waiting callers get the error at once
        ended(why)

    def _parsed(self, line: bytes) -> SessionMessage | None:
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            if line.strip():  # many programs print a greeting at start
                self._note("it wrote a line that is not a message", line)
            return None

    async def log_errors(self) -> None:
        for _ in range(SHOWN_COMPLAINTS):
            try:
                line = await self._errors.readline()
            except ValueError:
                line = b"[a line too long to show]"
            if not line:
                return
            self._note("says", line)
        self._note("writes more than is logged", b"")
        while await self._errors.read(65_536):
            pass

    def _note(self, what: str, line: bytes) -> None:
        log.info("MCP server %s %s: %s", self._name, what, line.decode("utf-8", "replace").strip()[:SHOWN_OF_A_LINE])

    async def end(self) -> None:
        """Lets it end, then ends it and its children. Until it is waited for, its pid is not reused."""
        if self._transports:
            self._transports[-1].close()  # the end of its input asks it to end
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
            with suppress(OSError):  # bytes that are not read any more
                file.close()


@asynccontextmanager
async def remote_streams(settings: ServerSettings, auth: httpx2.Auth | None = None) -> AsyncIterator[tuple[Any, Any]]:
    """Returns the streams to and from it. Raises BadRequest for an invalid address or header."""
    from mcp.client.streamable_http import streamable_http_client

    async with (
        _client(settings, auth) as client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_LINE) as streams,
    ):
        yield streams


def _client(settings: ServerSettings, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    import httpx2

    address = urlsplit(settings.url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise BadRequest(f"{settings.where!r} is not an address", hint="for example http://127.0.0.1:8000/mcp")
    for name, value in settings.headers.items():
        # The library's own message about such a header would quote it.
        if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
            raise BadRequest(
                f"the header {name!r} contains characters that are not allowed in a header", hint="set it again"
            )
    return httpx2.AsyncClient(
        auth=auth,
        headers={**IDENTITY, **settings.headers},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=max(SILENT_SECONDS, settings.timeout_seconds)),
        trust_env=address.hostname not in LOOPBACK,  # a proxy cannot reach our loopback
        verify=address.scheme == "https",  # loading the certificates costs 0.2 s
        event_hooks={"response": [bound_answer]},
    )


async def bound_answer(response: httpx2.Response) -> None:
    """Bounds the body. The package bounds event streams per event; any other body is bounded here as a whole."""
    import httpx2

    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the answer is compressed, which was not requested", request=response.request)
    if "text/event-stream" not in response.headers.get("content-type", ""):
        response.stream = _counted(response.stream)


def _counted(stream: Any) -> Any:
    import httpx2

    class Counted(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for data in stream:
                size += len(data)
                if size > MAX_LINE:
                    raise httpx2.StreamError(f"the answer is longer than {MAX_LINE:,} bytes")
                yield data

        async def aclose(self) -> None:
            await stream.aclose()

    return Counted()
