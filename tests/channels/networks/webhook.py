"""A program that speaks to the signed webhook channel, as somebody would write one after its description."""

from __future__ import annotations

import base64
import hmac
import json
import time
from itertools import count
from typing import Any, Literal

from aiohttp import web

from channels.network import Fault, Feature, SentFile, SentMessage
from channels.networks.posting import Deliver, WebhookPoster

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
SELF = "agent"


def signature(key: str, seconds: int, body: bytes, secret: bytes = KEY) -> str:
    digest = hmac.new(secret, b".".join((key.encode(), str(seconds).encode(), body)), "sha256").digest()
    return "v1," + base64.b64encode(digest).decode()


class FakeProgram:
    channel = "custom"
    features: frozenset[Feature] = frozenset({"groups", "threads", "media", "redelivery"})
    self_id = SELF
    path = "/channel-webhook"

    def __init__(self) -> None:
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.commands: list[str] = []
        self.requests = 0
        self.answers: list[web.Response] = []  # of the next requests; nothing is shown
        self.keys: dict[str, str] = {}  # of what was shown, with its id
        self._faults: list[Fault] = []
        self._is_refused = False
        self._numbers = count(1)
        self._last: dict[str, Any] = {}
        self.poster = WebhookPoster(self.path, self.sign)

    @property
    def deliver(self) -> Deliver | None:
        return self.poster.deliver

    @deliver.setter
    def deliver(self, deliver: Deliver | None) -> None:
        self.poster.deliver = deliver

    @property
    def gateway_url(self) -> str:
        return self.poster.gateway_url

    @gateway_url.setter
    def gateway_url(self, url: str) -> None:
        self.poster.gateway_url = url

    async def start(self) -> None:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_post("/messages", self._message)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.root = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.poster.start()

    async def stop(self) -> None:
        await self.poster.stop()
        await self._runner.cleanup()

    def config(self) -> dict[str, Any]:
        return {"secret": SECRET, "sendUrl": f"{self.root}/messages", "retry": {"minDelayMs": 10}}

    def fail(self, *faults: Fault) -> None:
        self._faults += [fault for fault in faults if fault != "no-parse"]  # there is no markup

    async def disconnect(self) -> None:
        """Every request has its own connection."""

    def refuse_token(self, refused: bool = True) -> None:
        self._is_refused = refused

    # A person's side

    async def write(
        self,
        text: str,
        *,
        sender: str = "42",
        sender_name: str = "Ada",
        chat: str = "",
        thread: str = "",
        mention: bool = False,
        reply_to: str = "",
        files: tuple[SentFile, ...] = (),
        kind: Literal["image", "voice", "document"] = "document",
    ) -> str:
        sent = [
            {"name": each.name, "mimeType": each.mime_type, "data": base64.b64encode(each.data).decode()}
            for each in files
        ]
        said: dict[str, Any] = {"sender": sender, "senderName": sender_name, "text": text, "thread": thread}
        said |= {"chat": chat, "mentioned": mention, "files": sent}
        if reply_to:
            said["replyTo"] = {"id": reply_to, "own": any(each.id == reply_to for each in self.sent)}
        return self.post(said)

    def post(self, said: dict[str, Any]) -> str:
        self._last = {"id": f"m{next(self._numbers)}", **said}
        self.poster.add(json.dumps(self._last).encode())
        return str(self._last["id"])

    def sign(self, body: bytes, age: int = 0) -> dict[str, str]:
        key, seconds = f"post-{next(self._numbers)}", int(time.time()) - age
        return {
            "webhook-id": key,
            "webhook-timestamp": str(seconds),
            "webhook-signature": "v1,AAAA " + signature(key, seconds, body),  # as while a secret is changed
        }

    async def rewrite(self, message_id: str, text: str) -> None:
        """It has no edits."""

    async def repeat(self) -> None:
        self.poster.add(json.dumps(self._last).encode())

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        raise NotImplementedError

    async def garble(self) -> None:
        for body in (b"\xff\xfe", b'{"id": "m0", "sender": 7}', b'{"id": "m0", "sender": "42"}'):
            await self.poster.post(body)

    # What it gets

    async def _message(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "cut-before":
            return self._cut(request)
        body = await request.read()
        if not self._is_from_us(request, body):
            return web.Response(status=401)
        asked = json.loads(body)
        if asked["type"] == "check":
            return web.Response(status=204)
        if self.answers:
            return self.answers.pop(0)
        if refused := self._refusal(fault):
            return refused
        key = request.headers["Idempotency-Key"]
        if key not in self.keys:
            self.keys[key] = self._show(asked)
        if fault == "cut-after":
            return self._cut(request)
        if fault == "malformed":
            return web.Response(body=b'{"id": ', content_type="application/json")
        return web.json_response({"id": self.keys[key]})

    def _is_from_us(self, request: web.Request, body: bytes) -> bool:
        key, seconds = request.headers["webhook-id"], int(request.headers["webhook-timestamp"])
        said = request.headers["webhook-signature"].split()
        is_fresh = abs(time.time() - seconds) < 300
        return is_fresh and signature(key, seconds, body) in said and not self._is_refused

    def _refusal(self, fault: str) -> web.Response | None:
        match fault:
            case "rate-limit":
                return web.Response(status=429, headers={"Retry-After": "0"})
            case "long-rate-limit":
                return web.Response(status=429, headers={"Retry-After": "120"})
            case "server-error":
                return web.Response(status=503)
            case "gone":
                return web.Response(status=404)
        return None

    def _show(self, asked: dict[str, Any]) -> str:
        key = f"s{next(self._numbers)}"
        files = tuple(
            SentFile(each["name"], base64.b64decode(each["data"]), each["mimeType"]) for each in asked.get("files", ())
        )
        thread, reply_to = asked.get("thread", ""), asked.get("replyTo", "")
        self.sent.append(SentMessage(key, asked["to"], asked["text"], thread, reply_to, files=files, raw=asked))
        return key

    def _cut(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
