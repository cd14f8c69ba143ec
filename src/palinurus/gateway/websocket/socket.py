"""One WebSocket client: challenge, connect, hello; then requests in, responses and events out.

Before `connect` a client is unknown: its first frame must be small and come soon, and the number of unknown clients is
bounded, the oldest being closed first. Requests after that are handled in requests.py.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from palinurus import __version__
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway import protocol
from palinurus.gateway.auth.devices import ConnectAuthenticator
from palinurus.gateway.auth.guard import Principal
from palinurus.gateway.hub import Presence
from palinurus.gateway.protocol import CONNECT_SECONDS, TICK_MS, Refused, RequestFrame, error_shape
from palinurus.gateway.websocket.methods import ClientSession, GatewayContext, Methods
from palinurus.gateway.websocket.requests import Gone, Replays, Requests, SendQueue, encode

log = logging.getLogger(__name__)

EVENTS = (
    *("connect.challenge", "agent", "chat", "approval", "sessions.changed", "device.pair.requested", "pairing"),
    *(
        "device.pair.resolved",
        "exec.approval.requested",
        "exec.approval.resolved",
        "channels.changed",
        "cron",
        "feed",
        "tick",
        "shutdown",
    ),
)
CAPABILITIES = ("published-model-catalog",)  # of OpenClaw: models.list says which of them can be asked
MAX_UNKNOWN = 1_024  # connections before `connect`: after a restart all clients come at once
MAX_HELD = 1_000  # events that wait for an answer
FINISH_SECONDS = 30.0  # that a request with effects may run after its client has disconnected
REASON_BYTES = 120  # that fit into a closing frame
POLICY_VIOLATION, TRY_AGAIN_LATER, GOING_AWAY = 1008, 1013, 1001

_decode = msgspec.json.Decoder(RequestFrame).decode


class SocketWire:
    """An accepted WebSocket. Every method raises Gone when the other side has left, except those that say otherwise."""

    def __init__(self, websocket: WebSocket, peer: str, cookie: str) -> None:
        """`peer`: its address, empty behind a proxy. `cookie`: the secret of a browser that shows our dashboard."""
        self.peer = peer
        self.cookie = cookie
        self._websocket = websocket
        self._connection = websocket.scope.get("state", {}).get("connection")  # http.connections.SocketConnection

    async def receive(self) -> str | bytes:
        with _raising_gone():
            message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise Gone
        return message.get("text") or message.get("bytes") or ""

    async def send(self, text: str) -> None:
        """Returns when the frame was sent, or when only little else waits to be sent."""
        with _raising_gone():
            await self._websocket.send_text(text)

    async def close(self, code: int, reason: str) -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED:
            with _raising_gone():
                await self._websocket.close(code, reason)

    def allow_frames(self, size: int) -> None:
        """From now on frames may be as large as this. Does not raise."""
        if self._connection is not None:
            self._connection.allow_frames(size)

    def abort(self) -> None:
        """Close without a closing frame. Does not raise."""
        if self._connection is not None:
            self._connection.abort()


@contextmanager
def _raising_gone() -> Iterator[None]:
    try:
        yield
    except (WebSocketDisconnect, RuntimeError) as error:  # Starlette reports a closed socket in both ways
        raise Gone from error


class Sockets:
    """All clients of this gateway."""

    def __init__(self, gateway: GatewayContext, methods: Methods, authenticator: ConnectAuthenticator) -> None:
        self.gateway = gateway
        self.methods = methods
        self.authenticator = authenticator
        self._unknown: OrderedDict[str, SocketClient] = OrderedDict()
        self._clients: dict[str, SocketClient] = {}
        self._finishing: set[asyncio.Task[None]] = set()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_files = MAX_UNKNOWN * 8 if files == resource.RLIM_INFINITY else files
        self.replays = Replays(gateway.services.clock)
        gateway.guard.on_revoked.append(self._revoked)

    @property
    def count(self) -> int:
        return len(self._clients)

    async def serve(self, wire: SocketWire) -> None:
        """One connection, from its first byte to its last. Raises nothing but cancellation."""
        client = SocketClient(self, wire, self.gateway.new_id())
        self._unknown[client.id] = client
        while len(self._unknown) > min(MAX_UNKNOWN, self._most_files // 8):
            _, oldest = self._unknown.popitem(last=False)
            oldest.leave(TRY_AGAIN_LATER, "too many connections that have not sent connect")
        try:
            await client.serve()
        finally:
            self._unknown.pop(client.id, None)
            self._clients.pop(client.id, None)
            self.gateway.hub.leave(client)

    def add(self, client: SocketClient) -> None:
        self._unknown.pop(client.id, None)
        self._clients[client.id] = client

    def snapshot(self) -> dict[str, Any]:
        services = self.gateway.services
        uptime = services.clock.now_ms() - self.gateway.started_at
        return {"uptimeMs": uptime, "health": {"ok": True, "busy": services.dispatcher.busy}, "clients": self.count}

    def finish(self, request: asyncio.Task[None]) -> None:
        """Let a request end although its client has disconnected, within a limit."""
        self._finishing.add(request)
        request.add_done_callback(self._finishing.discard)
        asyncio.get_running_loop().call_later(FINISH_SECONDS, request.cancel)

    async def close(self, reason: str) -> None:
        """Close all connections, with an event that says why."""
        clients = [*self._clients.values(), *self._unknown.values()]
        for client in clients:
            client.send_event("shutdown", msgspec.Raw(encode({"reason": reason})))
            client.leave(GOING_AWAY, reason)
        await asyncio.gather(*(client.left() for client in clients))
        if self._finishing:
            await asyncio.wait(self._finishing, timeout=FINISH_SECONDS)

    def _revoked(self, credential: str) -> None:
        for client in list(self._clients.values()):
            who = client.principal
            if who is not None and credential in who.rests_on and not self.gateway.guard.is_valid(who):
                client.dismiss()


class SocketClient:
    """Implements hub.Listener and requests.RequestClient."""

    def __init__(self, sockets: Sockets, wire: SocketWire, client_id: str) -> None:
        self.id = client_id
        self.principal: Principal | None = None
        self._sockets = sockets
        self._gateway = sockets.gateway
        self._wire = wire
        self._out = SendQueue(wire.send)
        self._requests: Requests | None = None
        self._holding = 0  # requests whose answer goes before their events
        self._held: list[tuple[str, msgspec.Raw]] = []
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
            self._requests = None  # it refers to us: a reference cycle would wait for the garbage collector
            self._done.set()

    async def _close(self) -> None:
        code, reason = self._leaving or (1000, "")
        try:
            await self._out.flush()
            await self._wire.close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore"))
        except Gone:
            self._wire.abort()

    def leave(self, code: int, reason: str) -> None:
        self._leaving = self._leaving or (code, reason)
        self._leave.set()

    async def left(self) -> None:
        await self._done.wait()

    def send_event(self, event: str, payload: msgspec.Raw) -> None:
        self._held.append((event, payload))
        if not self._holding or len(self._held) > MAX_HELD:
            self._send_held()

    @contextmanager
    def hold_events(self) -> Iterator[None]:
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            if not self._holding:
                self._send_held()

    def _send_held(self) -> None:
        held, self._held = self._held, []
        for event, payload in held:
            self._out.event(event, payload)

    def answer(self, request_id: str, *, payload: Any = None, error: PalinurusError | Refused | None = None) -> None:
        frame = protocol.ResponseFrame(request_id, ok=True, payload=payload)
        if error is not None:
            frame = protocol.ResponseFrame(request_id, ok=False, error=error_shape(error))
        if not self._out.answer(frame):
            self.leave(TRY_AGAIN_LATER, "the client does not read")

    async def feed(self, request_id: str, item: Any) -> None:
        self.send_event("feed", msgspec.Raw(encode({"id": request_id, "item": item})))
        await self._out.wait_for_space()

    def dismiss(self) -> None:
        self.leave(POLICY_VIOLATION, "this credential is no longer valid")

    async def _write(self) -> None:
        try:
            await self._out.run()
        except Gone:
            self.leave(TRY_AGAIN_LATER, "the client does not read")

    def _send_tick(self) -> None:
        """Clients expect ticks whatever else they receive: without them they take the gateway for dead."""
        self.send_event("tick", msgspec.Raw(encode({"ts": self._gateway.services.clock.now_ms()})))
        self._tick = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._send_tick)

    async def _read(self) -> None:
        try:
            requests = await self._connect()
            while True:
                data = await self._wire.receive()
                await requests.start(self._frame(data), len(data))
        except Gone:
            self.leave(1000, "")
        except (Refused, BadRequest) as error:
            self.leave(POLICY_VIOLATION, error.message)

    async def _connect(self) -> Requests:
        nonce = self._gateway.new_id() + self._gateway.new_id()
        now = self._gateway.services.clock.now_ms()
        self._out.answer(protocol.EventFrame("connect.challenge", {"nonce": nonce, "ts": now}))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                first = await self._wire.receive()
        except TimeoutError:
            raise Refused(408, "TIMEOUT", "connect did not arrive in time") from None
        if len(first) > protocol.MAX_FIRST_FRAME:
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
            connect = msgspec.json.decode(frame.params, type=protocol.Connect)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"connect: {error}") from None
        if connect.max_protocol < protocol.OLDEST_PROTOCOL or connect.min_protocol > protocol.PROTOCOL:
            known = f"{protocol.OLDEST_PROTOCOL}-{protocol.PROTOCOL}"
            raise BadRequest(f"protocol {connect.max_protocol} is not supported", hint=known)
        now = self._gateway.services.clock.now_ms()
        principal, granted = await self._sockets.authenticator.admit(connect, nonce, self._wire.peer, self._wire.cookie)
        if not self._gateway.guard.is_valid(principal):  # it was revoked while it was let in
            raise Refused(401, "UNAUTHORIZED", "this credential is no longer valid")
        self.principal = principal
        session = ClientSession(self._gateway, principal, self)
        self._requests = Requests(self._sockets.methods, self._sockets.replays, session, self)
        self._sockets.add(self)
        self._gateway.hub.join(self, Presence(connect.client, principal.caller.held, principal.device_id, now))
        # Requests that only read are small.
        max_frame = protocol.MAX_FRAME if principal.may("write") else protocol.MAX_FIRST_FRAME
        self._wire.allow_frames(max_frame)
        hello = protocol.HelloOk(
            min(connect.max_protocol, protocol.PROTOCOL),
            protocol.ServerInfo(__version__, self.id),
            protocol.Features(self._sockets.methods.names, EVENTS, CAPABILITIES),
            self._sockets.snapshot(),
            granted,
            protocol.Limits(max_payload=max_frame),
        )
        self.answer(frame.id, payload=hello)
        self._tick = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._send_tick)
        return self._requests

    def _frame(self, data: str | bytes) -> RequestFrame:
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"not a request frame: {error}") from None
