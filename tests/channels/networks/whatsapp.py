"""WhatsApp's Cloud API on loopback: the Graph API for one number, and Meta's signed posts to the webhook."""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import suppress
from itertools import count
from typing import Any, Literal

from aiohttp import web

from channels.network import Fault, Feature, SentFile, SentMessage
from channels.networks.posting import Deliver, WebhookPoster

TOKEN, APP_SECRET, VERIFY_TOKEN = "EAAtoken0123456789", "app-secret-0123456789", "verify-0123456789"
NUMBER_ID, NUMBER = "106540352242922", "15550783881"
KINDS = {"image": "image", "voice": "audio", "document": "document"}


def problem(status: int, code: int, message: str, **headers: str) -> web.Response:
    error = {"message": f"(#{code}) {message}", "type": "OAuthException", "code": code, "fbtrace_id": "A0"}
    error["error_data"] = {"messaging_product": "whatsapp", "details": message}
    return web.json_response({"error": error}, status=status, headers=headers)


class FakeWhatsApp:
    channel = "whatsapp"
    features: frozenset[Feature] = frozenset({"buttons", "reactions", "typing", "media", "redelivery"})
    self_id = NUMBER

    def __init__(self) -> None:
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.commands: list[str] = []
        self.requests = 0
        self.reactions: dict[str, str] = {}
        self.media: dict[str, SentFile] = {}
        self.media_url = ""  # where files are said to be; empty: here
        self.webhook = f"https://pal.example.org{self.path}"  # as the app is set up
        self.may_read_settings = True
        self.answers: list[web.Response] = []  # of the next requests that send a message; nothing is sent
        self._chats: dict[str, str] = {}  # of each message that a person wrote
        self._faults: list[Fault] = []
        self._is_refused = False
        self._numbers = count(1)
        self._last: dict[str, Any] = {}
        self.poster = WebhookPoster(self.path, self.sign)

    path = "/whatsapp-webhook"

    # As test fixtures use it

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
        app = web.Application(client_max_size=100_000_000, middlewares=[self._check])
        app.router.add_get(f"/v23.0/{NUMBER_ID}", self._number)
        app.router.add_post(f"/v23.0/{NUMBER_ID}/messages", self._messages)
        app.router.add_post(f"/v23.0/{NUMBER_ID}/media", self._upload)
        app.router.add_get("/v23.0/{id}", self._media)
        app.router.add_get("/lookaside/{id}", self._content)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.root = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.poster.start()

    async def stop(self) -> None:
        await self.poster.stop()
        await self._runner.cleanup()

    def config(self) -> dict[str, Any]:
        return {
            "accessToken": TOKEN,
            "appSecret": APP_SECRET,
            "verifyToken": VERIFY_TOKEN,
            "phoneNumberId": NUMBER_ID,
            "apiRoot": f"{self.root}/v23.0",
            "retry": {"minDelayMs": 10},
        }

    def fail(self, *faults: Fault) -> None:
        self._faults += [fault for fault in faults if fault != "no-parse"]  # it takes any markup as text

    async def disconnect(self) -> None:
        for connection in list(self._runner.server.connections if self._runner.server else ()):
            if connection.transport:
                connection.transport.abort()

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
        if not files:
            return self.post({"type": "text", "text": {"body": text}}, sender, sender_name, reply_to)
        for file in files:
            media = {"id": self.keep(file), "mime_type": file.mime_type, "sha256": "AA==", "caption": text}
            media |= {"filename": file.name} if kind == "document" else {}
            media |= {"voice": True} if kind == "voice" else {}
            wamid = self.post({"type": KINDS[kind], KINDS[kind]: media}, sender, sender_name, reply_to)
        return wamid

    def post(self, content: dict[str, Any], sender: str = "42", name: str = "Ada", reply_to: str = "") -> str:
        """Posts a message of any type; returns its id."""
        message = {"from": sender, "id": self._new_id(), "timestamp": "1739321024", **content}
        if reply_to:
            message["context"] = {"from": self._author(reply_to, sender), "id": reply_to}
        self._chats[message["id"]] = sender
        self._last = self.body(messages=[message], contacts=[{"profile": {"name": name}, "wa_id": sender}])
        self.poster.add(json.dumps(self._last).encode())
        return str(message["id"])

    def body(self, *, number_id: str = NUMBER_ID, **value: Any) -> dict[str, Any]:
        metadata = {"display_phone_number": NUMBER, "phone_number_id": number_id}
        change = {"field": "messages", "value": {"messaging_product": "whatsapp", "metadata": metadata, **value}}
        return {"object": "whatsapp_business_account", "entry": [{"id": "102290129340398", "changes": [change]}]}

    def report_failure(self, message: SentMessage, code: int = 131047) -> None:
        """Says that a message which was taken could not be delivered."""
        errors = [{"code": code, "title": "Re-engagement message", "message": "Re-engagement message"}]
        status = {"id": message.id, "status": "failed", "timestamp": "1", "recipient_id": message.chat}
        self.poster.add(json.dumps(self.body(statuses=[{**status, "errors": errors}])).encode())

    def sign(self, body: bytes) -> dict[str, str]:
        return {"x-hub-signature-256": "sha256=" + hmac.new(APP_SECRET.encode(), body, "sha256").hexdigest()}

    async def rewrite(self, message_id: str, text: str) -> None:
        """The Cloud API does not tell of edits."""

    async def repeat(self) -> None:
        self.poster.add(json.dumps(self._last).encode())

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        value = next(value for shown, value in message.buttons if shown == label)
        kind = "button_reply" if message.raw["interactive"]["type"] == "button" else "list_reply"
        chosen = {"type": kind, kind: {"id": value, "title": label}}
        self.post({"type": "interactive", "interactive": chosen}, sender, reply_to=message.id)
        async with asyncio.timeout(60):
            while True:
                for answer in self.sent:
                    if answer.reply_to == message.id and answer.chat == sender:
                        return answer.text
                await asyncio.sleep(0.005)

    async def garble(self) -> None:
        await self.poster.post(b'{"entry": [{"changes": 7')
        no_text = {"from": "42", "id": "wamid.x", "timestamp": "then", "type": "text", "text": 5}
        unknown = {"from": "42", "id": "wamid.y", "timestamp": "1739321024", "type": "hologram", "hologram": {}}
        self.poster.add(json.dumps(self.body(messages=[no_text, unknown, 7], statuses=[{"id": []}])).encode())

    def keep(self, file: SentFile) -> str:
        key = f"{next(self._numbers)}00"
        self.media[key] = file
        return key

    # The Graph API

    @web.middleware
    async def _check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests += 1
        said = request.headers.get("Authorization", "")
        if self._is_refused or said != f"Bearer {TOKEN}":
            await request.read()
            return problem(401, 190, f"Malformed access token {said.removeprefix('Bearer ')}")
        return await handler(request)  # type: ignore[no-any-return]

    async def _number(self, request: web.Request) -> web.Response:
        if "webhook_configuration" in request.query.get("fields", ""):
            if not self.may_read_settings:
                return problem(403, 10, "Application does not have permission for this action")
            found = {"application": self.webhook} if self.webhook else {}
            return web.json_response({"webhook_configuration": found, "id": NUMBER_ID})
        return web.json_response({"display_phone_number": "+1 555-078-3881", "verified_name": "Pal", "id": NUMBER_ID})

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        fault = self._faults[0] if self._faults else ""
        if fault == "cut-before":
            self._faults.pop(0)
            return self._cut(request)
        asked = await request.json()
        if asked.get("status") == "read":
            return self._read(asked)
        if asked["type"] == "reaction":
            self.reactions[asked["reaction"]["message_id"]] = asked["reaction"]["emoji"]
            return self._answer(asked, self._new_id())
        fault = self._faults.pop(0) if self._faults else ""  # perhaps another one by now
        if fault == "cut-before":
            return self._cut(request)
        if self.answers:
            return self.answers.pop(0)
        if refused := self._refusal(fault, asked):
            return refused
        message = self._message(asked)
        self.sent.append(message)
        if fault == "cut-after":
            return self._cut(request)
        if fault == "malformed":
            return web.Response(body=b'{"messaging_product": "whatsapp", "messages": "sent', content_type="text/html")
        return self._answer(asked, message.id)

    def _refusal(self, fault: str, asked: dict[str, Any]) -> web.Response | None:
        usage = {"1022901": [{"type": "messaging", "call_count": 100, "estimated_time_to_regain_access": 2}]}
        match fault:
            case "rate-limit":
                return problem(429, 130429, "Rate limit hit")
            case "long-rate-limit":
                header = {"X-Business-Use-Case-Usage": json.dumps(usage)}
                return problem(400, 80007, "Rate limit issues", **header)
            case "server-error":
                return problem(503, 131016, "Service unavailable")
            case "gone":
                return problem(400, 131026, "Message undeliverable")
        if why := too_long(asked):
            return problem(400, 100, why)
        return None

    def _message(self, asked: dict[str, Any]) -> SentMessage:
        kind = asked["type"]
        content = asked[kind]
        text, buttons, files = "", (), ()
        if kind == "text":
            assert content["preview_url"] is False
            text = content["body"]
        elif kind == "interactive":
            text, action = content["body"]["text"], content["action"]
            replies = [each["reply"] for each in action.get("buttons", [])]
            replies += [row for section in action.get("sections", []) for row in section["rows"]]
            buttons = tuple((each["title"], each["id"]) for each in replies)
        else:
            kept = self.media[content["id"]]
            text, files = content.get("caption", ""), (kept,)
        chat = asked.get("to") or asked["recipient"]
        reply_to = asked.get("context", {}).get("message_id", "")
        return SentMessage(self._new_id(), chat, text, reply_to=reply_to, buttons=buttons, files=files, raw=asked)

    def _answer(self, asked: dict[str, Any], wamid: str) -> web.Response:
        to = asked.get("to") or asked["recipient"]
        found = {"messaging_product": "whatsapp", "contacts": [{"input": to, "wa_id": to}], "messages": [{"id": wamid}]}
        return web.json_response(found)

    def _read(self, asked: dict[str, Any]) -> web.Response:
        if asked["message_id"] not in self._chats:
            return problem(400, 100, "Invalid parameter: message_id")
        if "typing_indicator" in asked:
            self.typing.append(self._chats[asked["message_id"]])
        return web.json_response({"success": True})

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert form["messaging_product"] == "whatsapp"
        assert isinstance(file, web.FileField)
        mime_type = str(form["type"])
        if mime_type.startswith("application/zip"):
            return problem(400, 100, "Param file must be a file with one of the following types: text/plain, …")
        return web.json_response({"id": self.keep(SentFile(file.filename, file.file.read(), mime_type))})

    async def _media(self, request: web.Request) -> web.Response:
        key = request.match_info["id"]
        if key not in self.media:
            return problem(400, 100, "Unsupported get request. Object with ID does not exist")
        url = self.media_url or f"{self.root}/lookaside/{key}"
        return web.json_response({"messaging_product": "whatsapp", "url": url, "id": key})

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.media[request.match_info["id"]].data)

    def _cut(self, request: web.Request) -> web.StreamResponse:
        with suppress(AttributeError):
            request.transport.abort()  # type: ignore[union-attr]
        return web.Response()

    def _author(self, wamid: str, sender: str) -> str:
        return sender if wamid in self._chats else NUMBER

    def _new_id(self) -> str:
        return f"wamid.HBgLMTY1{next(self._numbers)}="


def too_long(asked: dict[str, Any]) -> str:
    """What the Cloud API checks of a message."""
    content = asked[asked["type"]]
    if len(content.get("body", "") if asked["type"] == "text" else content.get("caption", "")) > (
        4096 if asked["type"] == "text" else 1024
    ):
        return "Param text is too long"
    if asked["type"] != "interactive":
        return ""
    buttons = content["action"].get("buttons", [])
    rows = [row for section in content["action"].get("sections", []) for row in section["rows"]]
    if not 1 <= len(content["body"]["text"]) <= 1024:
        return "Param interactive['body']['text'] must be at most 1024 characters"
    if len(buttons) > 3 or len(rows) > 10 or not buttons + rows:
        return "Invalid buttons count. Min allowed buttons: 1, Max allowed buttons: 3"
    if any(len(each["reply"]["title"]) > 20 for each in buttons) or any(len(each["title"]) > 24 for each in rows):
        return "Button title length invalid. Min length: 1, Max length: 20"
    return ""
