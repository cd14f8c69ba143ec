"""One WebSocket client: challenge, connect, hello; then requests in, responses and events out.

Nothing is believed before `connect`: the first frame is small and soon, and of those who have not sent it yet only so
many are kept, the oldest going first. What a client asks for afterwards is in requests.py.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import OrderedDict
from typing import Any, Protocol

import msgspec

from palinurus import __version__
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway.door.access import Principal
from palinurus.gateway.door.guard import Refused
from palinurus.gateway.door.refusals import error_shape
from palinurus.gateway.frames.outgoing import Gone, Outgoing, encode
from palinurus.gateway.frames.protocol import (
    CONNECT_SECONDS,
    MAX_FIRST_FRAME,
    MAX_FRAME,
    OLDEST_PROTOCOL,
    PROTOCOL,
    TICK_MS,
    Connect,
    EventFrame,
    Features,
    Granted,
    HelloOk,
    Limits,
    RequestFrame,
    ResponseFrame,
    ServerInfo,
)
from palinurus.gateway.talk.desk import Desk
from palinurus.gateway.talk.methods import Methods, Talk
from palinurus.gateway.talk.replays import Replays
from palinurus.gateway.talk.requests import Requests

log = logging.getLogger(__name__)

EVENTS = (
    "connect.challenge",
    "agent",
    "chat",
    "approval",
    "sessions.changed",
    "device.pair.requested",
    "feed",
    "tick",
    "shutdown",
)
STRANGERS = 1_024  # connections that have not said who they are: after a restart all clients come at once
FINISH_SECONDS = 30.0  # that a request with effects may go on after its client has gone
REASON_BYTES = 120  # what a closing frame has room for
POLICY_VIOLATION, TRY_AGAIN_LATER, GOING_AWAY = 1008, 1013, 1001

_decode = msgspec.json.Decoder(RequestFrame).decode


class Wire(Protocol):
    """A WebSocket that was accepted. Whatever is done with one whose other side has left raises Gone."""

    @property
    def peer(self) -> str:
        """The address of the other side; empty when something stands between."""

    @property
    def cookie(self) -> str:
        """The secret of a browser that shows a page of ours; empty for everybody else."""

    async def receive(self) -> str | bytes: ...

    async def send(self, text: str) -> None: ...

    def admit(self, size: int) -> None:
        """From now on frames may be as large as this."""

    async def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None:
        """Close without a word. Does not raise."""


class Doorkeeper(Protocol):
    """Lets a client in: the credential and the device of its connect frame, or the cookie of its browser.

    Raises Refused or a PalinurusError.
    """

    async def admit(self, connect: Connect, nonce: str, peer: str, cookie: str) -> tuple[Principal, Granted]: ...


class Sockets:
    """All clients of this gateway."""

    def __init__(self, desk: Desk, methods: Methods, doorkeeper: Doorkeeper) -> None:
        self.desk = desk
        self.methods = methods
        self.doorkeeper = doorkeeper
        self._strangers: OrderedDict[str, SocketClient] = OrderedDict()
        self._clients: dict[str, SocketClient] = {}
        self._finishing: set[asyncio.Task[None]] = set()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_files = STRANGERS * 8 if files == resource.RLIM_INFINITY else files
        self.replays = Replays(desk.house.clock)
        desk.guard.on_revoked.append(self._revoked)

    @property
    def count(self) -> int:
        return len(self._clients)

    async def serve(self, wire: Wire) -> None:
        """One connection, from its first byte to its last. Raises nothing but cancellation."""
        client = SocketClient(self, wire, self.desk.new_id())
        self._strangers[client.id] = client
        while len(self._strangers) > min(STRANGERS, self._most_files // 8):
            _, oldest = self._strangers.popitem(last=False)
            oldest.leave(TRY_AGAIN_LATER, "too many connections that do not say who they are")
        try:
            await client.serve()
        finally:
            self._strangers.pop(client.id, None)
            self._clients.pop(client.id, None)
            self.desk.hub.leave(client)

    def known(self, client: SocketClient) -> None:
        self._strangers.pop(client.id, None)
        self._clients[client.id] = client

    def snapshot(self) -> dict[str, Any]:
        house = self.desk.house
        uptime = house.clock.now_ms() - self.desk.started_at
        return {"uptimeMs": uptime, "health": {"ok": True, "busy": house.dispatcher.busy}, "clients": self.count}

    def finish(self, request: asyncio.Task[None]) -> None:
        """See to it that a request ends, with its client gone."""
        self._finishing.add(request)
        request.add_done_callback(self._finishing.discard)
        asyncio.get_running_loop().call_later(FINISH_SECONDS, request.cancel)

    async def shut(self, reason: str) -> None:
        """Tell everybody that the gateway leaves."""
        everybody = [*self._clients.values(), *self._strangers.values()]
        for client in everybody:
            client.hear("shutdown", msgspec.Raw(encode({"reason": reason})))
            client.leave(GOING_AWAY, reason)
        await asyncio.gather(*(client.left() for client in everybody))
        if self._finishing:
            await asyncio.wait(self._finishing, timeout=FINISH_SECONDS)

    def _revoked(self, credential: str) -> None:
        for client in list(self._clients.values()):
            who = client.principal
            if who is not None and credential in who.rests_on and not self.desk.guard.still(who):
                client.dismiss()


class SocketClient:
    """Implements frames.hub.Listener and requests.Asker."""

    def __init__(self, sockets: Sockets, wire: Wire, client_id: str) -> None:
        self.id = client_id
        self.principal: Principal | None = None
        self._sockets = sockets
        self._desk = sockets.desk
        self._wire = wire
        self._out = Outgoing(wire)
        self._requests: Requests | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._leaving: tuple[int, str] | None = None
        self._leave = asyncio.Event()
        self._done = asyncio.Event()

    async def serve(self) -> None:
        tasks = [asyncio.create_task(work) for work in (self._read(), self._write(), self._leave.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._tick is not None:
                self._tick.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for request in self._requests.end() if self._requests is not None else ():
                self._sockets.finish(request)
            await self._close()
            self._requests = None  # which knows us: a circle would wait for the collector
            self._done.set()

    async def _close(self) -> None:
        code, reason = self._leaving or (1000, "")
        try:
            await self._out.flush()
            await self._wire.close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore"))
        except Gone:
            self._wire.abort()  # there is nobody to say good-bye to

    def leave(self, code: int, reason: str) -> None:
        self._leaving = self._leaving or (code, reason)
        self._leave.set()

    async def left(self) -> None:
        await self._done.wait()

    def hear(self, event: str, payload: msgspec.Raw) -> None:
        self._out.event(event, payload)

    def answer(self, request_id: str, *, payload: Any = None, error: PalinurusError | Refused | None = None) -> None:
        frame = (
            ResponseFrame(request_id, ok=False, error=error_shape(error))
            if error is not None
            else ResponseFrame(request_id, ok=True, payload=payload)
        )
        if not self._out.answer(frame):
            self.leave(TRY_AGAIN_LATER, "does not read")

    async def feed(self, request_id: str, item: Any) -> None:
        self.hear("feed", msgspec.Raw(encode({"id": request_id, "item": item})))
        await self._out.room()

    def dismiss(self) -> None:
        self.leave(POLICY_VIOLATION, "this credential is no longer good")

    async def _write(self) -> None:
        try:
            await self._out.run()
        except Gone:
            self.leave(TRY_AGAIN_LATER, "does not read")

    def _say_tick(self) -> None:
        """Clients take the gateway for dead that has not ticked for a while, whatever else they hear."""
        self.hear("tick", msgspec.Raw(encode({"ts": self._desk.house.clock.now_ms()})))
        self._tick = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._say_tick)

    async def _read(self) -> None:
        try:
            requests = await self._connect()
            while True:
                data = await self._wire.receive()
                await requests.start(self._frame(data), len(data))
        except Gone:
            self.leave(1000, "")
        except Refused as error:
            self.leave(POLICY_VIOLATION, error.message)
        except BadRequest as error:
            self.leave(POLICY_VIOLATION, error.message)

    async def _connect(self) -> Requests:
        nonce = self._desk.new_id() + self._desk.new_id()
        now = self._desk.house.clock.now_ms()
        self._out.answer(EventFrame("connect.challenge", {"nonce": nonce, "ts": now}))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                first = await self._wire.receive()
        except TimeoutError:
            raise Refused(408, "TIMEOUT", "said nothing") from None
        if len(first) > MAX_FIRST_FRAME:
            raise Refused(413, "TOO_LARGE", "the first frame is too large")
        frame = self._frame(first)
        if frame.method != "connect":
            raise Refused(401, "UNAUTHORIZED", "the first request must be connect")
        try:
            return await self._hello(frame, nonce)
        except (Refused, PalinurusError) as error:
            self.answer(frame.id, error=error)
            raise Refused(401, "UNAUTHORIZED", error.message) from None

    async def _hello(self, frame: RequestFrame, nonce: str) -> Requests:
        try:
            connect = msgspec.json.decode(frame.params, type=Connect)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"connect: {error}") from None
        if connect.max_protocol < OLDEST_PROTOCOL or connect.min_protocol > PROTOCOL:
            raise BadRequest(
                f"protocol {connect.max_protocol} is not spoken here", hint=f"{OLDEST_PROTOCOL}-{PROTOCOL}"
            )
        principal, granted = await self._sockets.doorkeeper.admit(connect, nonce, self._wire.peer, self._wire.cookie)
        self.principal = principal
        talk = Talk(self._desk, principal, connect.client, self)
        self._requests = Requests(self._sockets.methods, self._sockets.replays, talk, self)
        self._sockets.known(self)
        room = MAX_FRAME if principal.may("write") else MAX_FIRST_FRAME  # questions are small
        self._wire.admit(room)
        hello = HelloOk(
            min(connect.max_protocol, PROTOCOL),
            ServerInfo(__version__, self.id),
            Features(self._sockets.methods.names, EVENTS),
            self._sockets.snapshot(),
            granted,
            Limits(max_payload=room),
        )
        self.answer(frame.id, payload=hello)
        self._tick = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._say_tick)
        return self._requests

    def _frame(self, data: str | bytes) -> RequestFrame:
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"not a request frame: {error}") from None
