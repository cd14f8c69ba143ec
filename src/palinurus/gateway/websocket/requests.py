"""The requests of one client that are being answered, and the frames that wait to be sent to it.

Every request is a task of its own, checked against the scopes of the credential as they are now. Their number and the
size of their frames are bounded. A request with effects is finished even if its client disconnects; one that only reads
is cancelled.

A client that got no answer repeats the request with the same idempotency key and gets the first answer (Replays).
Failures are not stored: the repetition tries again, and finds what was done before by ids derived from the key. The
number and size of stored answers are bounded; once one is dropped, those ids alone make the repetition harmless.

SendQueue is the bounded queue to the client; every event has a number. Events beyond the limit are dropped, which the
client sees by the gap in `seq`. Answers are never dropped: a client that does not read is disconnected instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway.protocol import MAX_BUFFERED, EventFrame, Refused, RequestFrame
from palinurus.gateway.websocket.methods import ClientSession, Method, Methods

log = logging.getLogger(__name__)

KEEP_MS = 15 * 60_000
MOST_ANSWERS = 2_000
MOST_BYTES = 16 * 1024 * 1024
MAX_KEY = 256
KEY_FIELD = "idempotencyKey"
KEY = b'"idempotencyKey"'
ReplayKey = tuple[str, str, str]  # principal, method, idempotency key
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
AT_ONCE = 64  # requests of one client
FINALS = 256  # second answers that one client may wait for
WAITING_OUT = 2_000  # frames of one client; events beyond them are dropped
WAITING_BYTES = 8 * 1024 * 1024
FEED_AHEAD = 200  # frames that a feed may be ahead of its reader
WRITE_SECONDS = 30.0  # that a client may take to read one frame
FLUSH_SECONDS = 1.0
encode = msgspec.json.Encoder().encode


class _Answer(Struct, frozen=True):
    payload: msgspec.Raw
    at: int


def take_key(frame: RequestFrame) -> tuple[str, msgspec.Raw]:
    """The idempotency key of a request, and its parameters without it: OpenClaw's clients send it among them.

    Raises BadRequest for an invalid key.
    """
    key: Any = frame.idempotency_key
    params = frame.params
    if KEY in bytes(params):
        try:
            fields = _decode_fields(params)
            sent = msgspec.json.decode(fields.pop(KEY_FIELD, b"null"))
            key = key or sent
            params = msgspec.Raw(encode(fields))
        except (msgspec.DecodeError, RecursionError):
            pass  # reported when the parameters themselves are parsed
    if key is not None and (not isinstance(key, str) or len(key) > MAX_KEY):
        raise BadRequest(f"idempotencyKey should be a text of at most {MAX_KEY} characters")
    return key or "", params


class Replays:
    def __init__(self, clock: Clock, *, most: int = MOST_ANSWERS, most_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._most = most
        self._most_bytes = most_bytes
        self._answers: OrderedDict[ReplayKey, _Answer] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[ReplayKey, asyncio.Future[msgspec.Raw | None]] = {}

    async def once(self, key: ReplayKey, work: Callable[[], Awaitable[Any]]) -> msgspec.Raw:
        """The encoded answer: of this work, or of the same request before. Raises what the work raises."""
        while (other := self._under_way.get(key)) is not None:
            answer = await asyncio.shield(other)
            if answer is not None:
                return answer  # else it failed, and this request tries
        now = self._clock.now_ms()
        while self._answers and now - next(iter(self._answers.values())).at >= KEEP_MS:
            self._drop_first()
        if known := self._answers.get(key):
            return known.payload
        under_way = self._under_way[key] = asyncio.get_running_loop().create_future()
        answer = None
        try:
            answer = msgspec.Raw(encode(await work()))
            self._add(key, answer)
            return answer
        finally:
            del self._under_way[key]
            under_way.set_result(answer)

    def _add(self, key: ReplayKey, payload: msgspec.Raw) -> None:
        self._answers[key] = _Answer(payload, self._clock.now_ms())
        self._bytes += len(bytes(payload))
        while len(self._answers) > self._most or self._bytes > self._most_bytes:
            self._drop_first()

    def _drop_first(self) -> None:
        _, oldest = self._answers.popitem(last=False)
        self._bytes -= len(bytes(oldest.payload))


class RequestClient(Protocol):
    """The client as its requests use it. Nothing here raises, even when it has disconnected."""

    def answer(
        self, request_id: str, *, payload: Any = None, error: PalinurusError | Refused | None = None
    ) -> None: ...

    async def feed(self, request_id: str, item: Any) -> None:
        """One item of many. Returns when the next may be sent."""

    def hold_events(self) -> AbstractContextManager[None]:
        """Inside, events wait; afterwards they are sent."""

    def dismiss(self) -> None:
        """Disconnect it, because its credential is no longer valid."""


class Requests:
    def __init__(self, methods: Methods, replays: Replays, client: ClientSession, to: RequestClient) -> None:
        self._methods = methods
        self._replays = replays
        self._client: ClientSession | None = client  # None once the client has disconnected
        self._to = to
        self._running: dict[asyncio.Task[None], bool] = {}  # and whether it must be finished
        self._finals: set[asyncio.Task[None]] = set()
        self._bytes = 0  # of the frames of running requests

    async def start(self, frame: RequestFrame, size: int) -> None:
        too_large = self._bytes + size > MAX_BUFFERED and bool(self._running)
        if too_large or len(self._running) >= AT_ONCE or len(self._finals) >= FINALS:
            count = len(self._running) + len(self._finals)
            busy = Refused(429, "BUSY", f"{count} requests of this client are being answered", 1.0)
            self._to.answer(frame.id, error=busy)
            await asyncio.sleep(0)  # so that a flood does not starve the other clients
            return
        method = self._methods.find(frame.method)
        task = asyncio.create_task(self._request(frame))
        self._running[task] = method is not None and method.scope != "read"
        self._bytes += size

        def ended(request: asyncio.Task[None]) -> None:
            self._running.pop(request, None)
            self._bytes -= size

        task.add_done_callback(ended)

    def end(self) -> list[asyncio.Task[None]]:
        """The client has disconnected. Returns the requests that must be finished; the others are cancelled."""
        self._client = None  # a reference cycle would wait for the garbage collector
        for task in (*self._finals, *(task for task, must_finish in self._running.items() if not must_finish)):
            task.cancel()
        return [task for task, must_finish in self._running.items() if must_finish]

    async def _request(self, frame: RequestFrame) -> None:
        try:
            method = self._methods.get(frame.method)
            client = self._allowed(method)
            with self._to.hold_events() if method.answers_first else nullcontext():
                outcome = await self._outcome(frame, method, client)
                self._to.answer(frame.id, payload=outcome)
            if method.final is not None and self._client is not None:
                self._await_final(frame, method.final(client, outcome))
        except (Refused, PalinurusError) as error:
            self._to.answer(frame.id, error=error)
        except Exception:  # a bug of ours costs one request, not the connection
            log.exception("the method %s failed", frame.method[:80])
            self._to.answer(frame.id, error=PalinurusError("this request failed because of an error in the gateway"))

    def _allowed(self, method: Method) -> ClientSession:
        client = self._client
        if client is None or not client.gateway.guard.is_valid(client.principal):
            self._to.dismiss()
            raise Refused(401, "UNAUTHORIZED", "this credential is no longer valid")
        client.principal.caller.need(method.scope, method.name)
        return client

    async def _outcome(self, frame: RequestFrame, method: Method, client: ClientSession) -> Any:
        """The result of the method, or the first one under an idempotency key that was used before."""
        key, raw = take_key(frame)
        params = self._methods.params(method, raw)

        async def run() -> Any:
            return await self._result(frame.id, method.handler(client, params, key))

        if not key or not method.replayed:
            return await run()
        return await self._replays.once((client.principal.id, method.name, key), run)

    async def _result(self, request_id: str, found: Awaitable[Any] | AsyncIterator[Any]) -> Any:
        if not isinstance(found, AsyncIterator):
            return await found
        count = 0
        async for item in found:
            count += 1
            await self._to.feed(request_id, item)
        return {"items": count}

    def _await_final(self, frame: RequestFrame, final: Awaitable[Any]) -> None:
        """Answer the same id a second time. A client that needs only the first answer ignores it."""
        request_id, name = frame.id, frame.method[:80]  # the frame itself may be large, and the run may be long

        async def send() -> None:
            try:
                self._to.answer(request_id, payload=await final)
            except PalinurusError as error:
                self._to.answer(request_id, error=error)
            except Exception:
                log.exception("the second answer of %s failed", name)

        task = asyncio.create_task(send())
        self._finals.add(task)
        task.add_done_callback(self._finals.discard)


class Gone(Exception):
    """The other side has disconnected."""


class SendQueue:
    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        """`send` raises Gone when the client has disconnected."""
        self._send = send
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._bytes = 0
        self._seq = 0
        self._space = asyncio.Event()
        self._space.set()

    def event(self, name: str, payload: msgspec.Raw) -> None:
        self._seq += 1
        if self._frames.qsize() < WAITING_OUT and self._bytes <= WAITING_BYTES:
            self._put(encode(EventFrame(name, payload, self._seq)))

    def answer(self, frame: msgspec.Struct) -> bool:
        """False when so much waits already that the client must have stopped reading."""
        if self._bytes > MAX_BUFFERED:
            return False
        self._put(encode(frame))
        return True

    def _put(self, frame: bytes) -> None:
        self._bytes += len(frame)
        self._frames.put_nowait(frame)
        if self._frames.qsize() >= FEED_AHEAD:
            self._space.clear()

    async def wait_for_space(self) -> None:
        """Until the client has read most of the queue. A feed waits for its reader; events do not."""
        await self._space.wait()

    async def run(self) -> None:
        """Send frames until cancelled. Raises Gone, also for a client that does not read."""
        while True:
            frame = self._take(await self._frames.get())
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._send(frame)
            except TimeoutError:
                raise Gone from None

    async def flush(self) -> None:
        """Send the rest of the queue within a short time. Raises Gone."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while not self._frames.empty():
                    await self._send(self._take(self._frames.get_nowait()))
        except TimeoutError:
            raise Gone from None

    def _take(self, frame: bytes) -> str:
        self._bytes -= len(frame)
        if self._frames.qsize() < FEED_AHEAD:
            self._space.set()
        return frame.decode()
