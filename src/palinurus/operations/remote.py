"""The unix socket of the process that holds the home: its server and its client.

Frames are JSON objects, one a line. A client says hello with the config and workspace it means; a holder that serves
others refuses it and says why. Then requests `{id, op, params, key}` are answered by `{id, result}` or `{id, error}`; a
feed sends `{id, item}` for each item and ends with `{id, end}`. `{id, cancel}` takes a request back. A client that
waits and hears nothing for a while sends a ping: a holder that is stopped is as good as gone. The socket is mode 0600
in a home of mode 0700: who can open it may do anything, and nobody else can.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import HolderLost, HolderRefused, PalinurusError, error_from_fields
from palinurus.operations.scopes import LOCAL
from palinurus.operations.services import Services
from palinurus.operations.table import Feed, Operation, P, R, Table, read_params

log = logging.getLogger(__name__)

MAX_FRAME = 64 * 1024 * 1024
HELLO_SECONDS = 5.0
QUIET_SECONDS = 10.0  # of silence before a ping, and once more before the holder counts as gone
PING = "ping"
PROTOCOL = 2  # 2: the idempotency key stands beside the parameters


class HomeIdentity(Struct, frozen=True):
    """What both ends must agree on before they may speak for each other."""

    config: str
    workspace: str


class Hello(Struct, frozen=True):
    identity: HomeIdentity
    pid: int
    command: str
    protocol: int = PROTOCOL
    refused: str = ""


class ErrorFrame(Struct, frozen=True):
    type: str
    fields: dict[str, Any]


class Request(Struct, frozen=True, omit_defaults=True):
    id: int
    op: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    key: str = ""  # idempotency key
    cancel: bool = False


class Response(Struct, frozen=True, omit_defaults=True):
    id: int
    result: msgspec.Raw = msgspec.Raw()
    item: msgspec.Raw = msgspec.Raw()
    error: ErrorFrame | None = None
    end: bool = False


_encoder = msgspec.json.Encoder()


def _line(frame: Struct) -> bytes:
    return _encoder.encode(frame) + b"\n"


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """An address for the socket that fits into the 108 bytes that the kernel allows, however deep the home lies."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Server:
    """Answers other processes on behalf of the one that holds the home."""

    def __init__(self, services: Services, table: Table, hello: Hello) -> None:
        self._services = services
        self._table = table
        self._hello = hello
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._mine: os.stat_result | None = None  # the socket as this process made it
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self, path: Path) -> None:
        self._path = path
        _remove(path)  # left behind by a process that died: we hold the lock, so nobody listens there
        with _short(path) as address:
            self._server = await asyncio.start_unix_server(self._accept, address, limit=MAX_FRAME)
        os.chmod(path, 0o600)  # noqa: PTH101  # instant, and the pathlib form is refused in async code
        self._mine = path.stat()  # noqa: ASYNC240  # instant

    async def close(self) -> None:
        """Say good-bye to all: they look for the next holder."""
        if self._server is not None and self._path is not None:
            self._server.close()
            if _is_same(self._path, self._mine):  # another holder may have made its own by now
                _remove(self._path)
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio runs this in a task
        self._clients.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, msgspec.DecodeError):
            pass  # the client is gone, says nothing or speaks another language; it holds nothing of ours
        except asyncio.CancelledError:
            pass  # we are leaving; the stream's own callback would log a cancelled task as an error
        finally:
            self._clients.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HELLO_SECONDS):
            theirs = msgspec.json.decode(await reader.readuntil(b"\n"), type=Hello)
        refused = _disagreement(self._hello, theirs)
        writer.write(_line(msgspec.structs.replace(self._hello, refused=refused)))
        await writer.drain()
        if refused:
            return
        running: dict[int, asyncio.Task[None]] = {}
        try:
            while line := await reader.readline():
                request = msgspec.json.decode(line, type=Request)
                if request.op == PING:
                    writer.write(_line(Response(request.id, end=True)))
                    continue
                if request.cancel:
                    if task := running.pop(request.id, None):
                        task.cancel()
                    continue
                task = asyncio.create_task(self._do(request, writer))
                running[request.id] = task
                task.add_done_callback(lambda _, key=request.id: running.pop(key, None))  # type: ignore[misc]
        finally:
            for task in list(running.values()):
                task.cancel()

    async def _do(self, request: Request, writer: asyncio.StreamWriter) -> None:
        try:
            row = self._table.get(request.op)
            params = read_params(row, request.params)
            if isinstance(row, Feed):
                async for item in row.run(self._services, params):
                    await _send(writer, Response(request.id, item=msgspec.Raw(_encoder.encode(item))))
                answer = Response(request.id, end=True)
            else:
                result = await row.run(self._services, params, LOCAL, request.key)
                answer = Response(request.id, result=msgspec.Raw(_encoder.encode(result)))
        except PalinurusError as error:
            answer = Response(request.id, error=ErrorFrame(type(error).__name__, error.fields()))
        except ConnectionError:
            return  # asked and gone; what was done stays done
        except Exception as error:
            # A mistake of ours: the one who asked is on the other side of a socket and would wait for ever.
            log.exception("the operation %s broke", request.op)
            broken = PalinurusError(f"{request.op} broke: {error!r}", hint="see the holder's log")
            answer = Response(request.id, error=ErrorFrame(type(broken).__name__, broken.fields()))
        with suppress(ConnectionError):
            await _send(writer, answer)


async def _send(writer: asyncio.StreamWriter, answer: Response) -> None:
    """Raises ConnectionError when the other side has gone."""
    if writer.is_closing():
        raise ConnectionResetError
    writer.write(_line(answer))
    await writer.drain()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _is_same(path: Path, known: os.stat_result | None) -> bool:
    try:
        return known is not None and os.path.samestat(path.stat(), known)
    except OSError:
        return False


def _disagreement(ours: Hello, theirs: Hello) -> str:
    if theirs.protocol != ours.protocol:
        return f"it is another release of pal (pid {ours.pid}, {ours.command}); end it or use the same release"
    if theirs.identity.config != ours.identity.config:
        return f"it uses the config {ours.identity.config}, you asked for {theirs.identity.config}"
    if theirs.identity.workspace != ours.identity.workspace:
        return (
            f"it uses the workspace {ours.identity.workspace or 'of its config'}, "
            f"you asked for {theirs.identity.workspace or 'the one of the config'}"
        )
    return ""


class RemoteCaller:
    """Has operations done by the process that holds the home. Implements table.Caller."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, holder: Hello, quiet_seconds: float
    ) -> None:
        self.holder = holder
        self._quiet_seconds = quiet_seconds
        self._reader = reader
        self._writer = writer
        self._next = 0
        self._waiting: dict[int, asyncio.Queue[Response | None]] = {}
        self._lost = False
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def connect(
        cls, path: Path, hello: Hello, *, timeout: float = HELLO_SECONDS, quiet_seconds: float = QUIET_SECONDS
    ) -> RemoteCaller:
        """Raises OSError when nobody listens, HolderRefused when the holder serves others, HolderLost when it goes."""
        with _short(path) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=MAX_FRAME)
        try:
            async with asyncio.timeout(timeout):
                writer.write(_line(hello))
                holder = msgspec.json.decode(await reader.readuntil(b"\n"), type=Hello)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, msgspec.DecodeError):
            writer.close()
            raise HolderLost("the process that holds the home does not answer") from None
        if holder.refused:
            writer.close()
            raise HolderRefused(
                f"pid {holder.pid} ({holder.command}) holds this home: {holder.refused}",
                hint="end that process, or use another home with --profile or PALINURUS_HOME",
            )
        return cls(reader, writer, holder, quiet_seconds)

    async def call(self, operation: Operation[P, R], params: P, idempotency_key: str = "") -> R:
        number, answers = self._ask(operation.name, params, idempotency_key)
        try:
            answer = self._checked(await answers.get())
            return msgspec.json.decode(answer.result, type=operation.result)  # type: ignore[no-any-return]
        finally:
            self._forget(number)

    async def follow(self, feed: Feed[P, R], params: P) -> AsyncIterator[R]:
        number, answers = self._ask(feed.name, params)
        try:
            while not (answer := self._checked(await answers.get())).end:
                yield msgspec.json.decode(answer.item, type=feed.result)
        finally:
            self._forget(number)

    async def close(self) -> None:
        self._listener.cancel()
        await asyncio.wait([self._listener])
        self._writer.close()

    def _ask(self, op: str, params: Struct, key: str = "") -> tuple[int, asyncio.Queue[Response | None]]:
        if self._lost:
            raise _gone()
        self._next += 1
        answers: asyncio.Queue[Response | None] = asyncio.Queue()
        self._waiting[self._next] = answers
        self._writer.write(_line(Request(self._next, op, msgspec.Raw(_encoder.encode(params)), key)))
        return self._next, answers

    def _forget(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None and not self._lost:
            self._writer.write(_line(Request(number, cancel=True)))

    def _checked(self, answer: Response | None) -> Response:
        if answer is None:
            raise _gone()
        if answer.error is not None:
            raise error_from_fields(answer.error.type, answer.error.fields)
        return answer

    async def _listen(self) -> None:
        try:
            while line := await self._line():
                answer = msgspec.json.decode(line, type=Response)
                if answers := self._waiting.get(answer.id):
                    answers.put_nowait(answer)
        except (ConnectionError, TimeoutError, ValueError, msgspec.DecodeError):
            pass  # said below: whoever waits is told that the holder is lost
        finally:
            self._lost = True
            for answers in self._waiting.values():
                answers.put_nowait(None)

    async def _line(self) -> bytes:
        """The next line. Raises TimeoutError when somebody waits and not even a ping is answered."""
        pinged = False
        while True:
            try:
                async with asyncio.timeout(self._quiet_seconds):
                    return await self._reader.readline()
            except TimeoutError:
                if pinged:
                    raise
                if self._waiting:
                    self._writer.write(_line(Request(0, PING)))
                    pinged = True


def _gone() -> HolderLost:
    return HolderLost("the process that held the home has ended", hint="try again")
