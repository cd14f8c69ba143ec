"""A whole gateway on a port of loopback, and clients that speak to it as others do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.gateway.settings import gateway_settings
from palinurus.operations.access import Register
from palinurus.runtime.gateway import Gateway
from palinurus.runtime.runtime import Runtime

PATIENCE = 60.0


class Running(Struct, frozen=True):
    gateway: Gateway
    runtime: Runtime
    token: str

    @property
    def port(self) -> int:
        return self.gateway.port

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    @property
    def register(self) -> Register:
        assert self.runtime.services.access is not None
        return self.runtime.services.access


@asynccontextmanager
async def running(home: Home, env: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Running]:
    """A gateway of this home; `options` are those of the command line."""
    env = env or {}
    runtime = Runtime(home, env)
    settings = gateway_settings(load_config(home, env).config, **({"port": 0} | options))
    try:
        gateway = Gateway(runtime, settings)
        await gateway.start()
        file = home.root / "gateway.token"
        try:
            yield Running(gateway, runtime, file.read_text().strip() if file.exists() else "")
        finally:
            await asyncio.wait_for(gateway.close(), PATIENCE)
    finally:
        await runtime.close()


def configure(home: Home, **sections: Any) -> None:
    """Change sections of the home's config; what a person does with an editor."""
    known = json.loads(home.config_path.read_text())
    home.config_path.write_text(json.dumps(known | sections))


class Told(Struct, frozen=True, rename="camel"):
    """An answer."""

    id: str
    ok: bool
    payload: Any = None
    error: dict[str, Any] = {}

    @property
    def code(self) -> str:
        return str(self.error.get("code", ""))

    @property
    def detail(self) -> str:
        return str((self.error.get("details") or {}).get("code", ""))


class Visitor:
    """One WebSocket client."""

    def __init__(self, socket: ClientConnection, challenge: dict[str, Any]) -> None:
        self.socket = socket
        self.nonce = challenge["payload"]["nonce"]
        self.events: list[dict[str, Any]] = []
        self.hello: Told | None = None
        self._asked = 0

    @classmethod
    async def arrive(cls, url: str, **options: Any) -> Self:
        """Connected and challenged, and not a word said."""
        opened = await asyncio.wait_for(connect(url, proxy=None, max_size=None, **options), PATIENCE)
        return cls(opened, json.loads(await asyncio.wait_for(opened.recv(), PATIENCE)))

    @classmethod
    async def enter(cls, url: str, token: str, **params: Any) -> Self:
        visitor = await cls.arrive(url)
        told = await visitor.connect(token, **params)
        assert told.ok, told
        return visitor

    async def connect(self, token: str = "", **params: Any) -> Told:
        said = {"minProtocol": 3, "maxProtocol": 4, "client": {"id": "test", "mode": "test"}, "role": "operator"}
        auth = {"auth": {"token": token}} if token else {}
        self.hello = await self.ask("connect", **(said | auth | params))
        return self.hello

    async def ask(self, method: str, /, **params: Any) -> Told:
        return await self.answer(await self.send(method, **params))

    async def send(self, method: str, /, **params: Any) -> str:
        self._asked += 1
        await self.socket.send(json.dumps({"type": "req", "id": str(self._asked), "method": method, "params": params}))
        return str(self._asked)

    async def answer(self, number: str) -> Told:
        while True:
            frame = await self.frame()
            if frame["type"] == "res" and frame["id"] == number:
                return msgspec.convert(frame, Told)

    async def shout(self, data: str | bytes | AsyncIterator[str]) -> None:
        """Send what may be too much: the gateway may close before it is out."""
        with contextlib.suppress(ConnectionClosed):
            await asyncio.wait_for(self.socket.send(data), PATIENCE)

    async def event(self, name: str) -> dict[str, Any]:
        while (frame := await self.frame()).get("event") != name:
            pass
        return frame

    async def frame(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE))
        if frame["type"] == "event":
            self.events.append(frame)
        return frame

    async def closed(self) -> tuple[int, str]:
        """Read to the end: the code and the reason with which the gateway closed."""
        try:
            while True:
                await self.frame()
        except ConnectionClosed as error:
            return (error.rcvd.code, error.rcvd.reason) if error.rcvd else (1006, "")

    async def leave(self) -> None:
        await asyncio.wait_for(self.socket.close(), PATIENCE)


class Answer(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def request(
    port: int,
    path: str,
    *,
    method: str = "GET",
    host: str = "",
    body: bytes = b"",
    address: str = "127.0.0.1",
    **headers: str,
) -> Answer:
    """One HTTP request, byte by byte as we want it. `x_forwarded_for` is the header X-Forwarded-For."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        said = {"Host": host or f"127.0.0.1:{port}", "Connection": "close", "Content-Length": str(len(body))} | named
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items() if value != "-")]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return parse_answer(await asyncio.wait_for(reader.read(), PATIENCE))
    finally:
        writer.close()


def parse_answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    named = (line.partition(": ") for line in lines)
    return Answer(int(first.split()[1]), {name.lower(): value for name, _, value in named}, body)


async def upgrade(port: int, **headers: str) -> Answer:
    """How the gateway answers the wish for a WebSocket."""
    key = base64.b64encode(b"sixteen bytes ok").decode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = {"Host": f"127.0.0.1:{port}", "Upgrade": "websocket", "Connection": "Upgrade"}
    said |= {"Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13"} | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    path = said.pop("Path", "/")
    try:
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        found = parse_answer(head)
        size = int(found.headers.get("content-length", "0"))
        rest = await asyncio.wait_for(reader.readexactly(size), PATIENCE) if found.status != 101 else b""
        return Answer(found.status, found.headers, rest)
    finally:
        writer.close()


class Key:
    """A device: a key of its own, and what it signs."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        raw = self._private.public_key().public_bytes_raw()
        self.id = hashlib.sha256(raw).hexdigest()
        self.public_key = _url(raw)

    def proof(self, nonce: str, signed_at: int, *, token: str, version: str = "v3", **changes: Any) -> dict[str, Any]:
        """The device block of a connect frame by `Visitor.connect(…, scopes=…)` with the client below."""
        said = {"role": "operator", "scopes": "", "platform": "linux", "family": "server"} | changes
        parts = [version, self.id, "test", "test", said["role"], said["scopes"], str(signed_at), token, nonce]
        parts += [said["platform"], said["family"]] if version == "v3" else []
        signature = _url(self._private.sign("|".join(parts).encode()))
        return {
            "id": self.id,
            "publicKey": self.public_key,
            "signature": signature,
            "signedAt": signed_at,
            "nonce": nonce,
        }


CLIENT = {"id": "test", "mode": "test", "platform": "Linux ", "deviceFamily": "Server", "displayName": "a test"}


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
