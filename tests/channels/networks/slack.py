"""Slack on loopback: the Web API, Socket Mode with envelopes and acknowledgements, and signed requests of mode http."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import time
from typing import Any, Literal
from urllib.parse import urlencode

from aiohttp import WSMsgType, web

from channels.network import Fault, Feature, SentFile, SentMessage
from palinurus.dispatch.channels import ChannelRequest, ChannelResponse

BOT, TEAM = "UBOT1", "T1"
BOT_TOKEN, APP_TOKEN, SIGNING_SECRET = "xoxb-bot-4711", "xapp-app-4711", "signing-4711"
REDELIVERY_SECONDS = 0.3
SCOPES = (
    "app_mentions:read,channels:history,channels:read,chat:write,commands,files:read,files:write,groups:history,"
    "groups:read,im:history,im:read,im:write,mpim:history,mpim:read,reactions:read,reactions:write,users:read"
)
NEEDED = {
    "chat.postMessage": "chat:write",
    "conversations.open": "im:write",
    "reactions.add": "reactions:write",
    "users.info": "users:read",
}


def person(sender: str) -> str:
    return sender if sender.startswith("U") else f"U{sender}"


class FakeSlack:
    """Keeps what the app has not acknowledged and delivers it again, as Slack does, but sooner and without an end."""

    channel = "slack"
    features: frozenset[Feature] = frozenset(
        ("groups", "threads", "edits", "deletes", "buttons", "reactions", "media", "received-edits", "redelivery")
    )

    def __init__(self, mode: Literal["socket", "http"] = "socket") -> None:
        self.mode = mode
        self.self_id = BOT
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.commands: list[str] = []
        self.requests = 0
        self.calls: list[tuple[str, dict[str, str]]] = []  # methods of the Web API with their arguments
        self.scopes = SCOPES
        self.names = {BOT: "pal"}
        self.post: Callable[[ChannelRequest], Awaitable[ChannelResponse]] | None = None  # mode http: the gateway
        self.sockets: list[web.WebSocketResponse] = []
        self.connections = 0  # how many sockets there have been
        self.acknowledged: list[str] = []
        self.moved: dict[str, str] = {}  # files that are kept elsewhere, and where
        self.refuse_files = False
        self.codes: list[str] = []  # errors of the next requests that send or change a message
        self._token_refused = False
        self._faults: list[Fault] = []
        self._pending: dict[str, dict[str, Any]] = {}  # envelopes that were not acknowledged, oldest first
        self._last: dict[str, Any] = {}
        self._written: dict[str, dict[str, Any]] = {}  # messages of people, by ts
        self._files: dict[str, tuple[str, str, bytes]] = {}
        self._shown: dict[str, asyncio.Future[str]] = {}  # answers to presses
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/socket", self._socket)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/files/{id}/{name}", self._download)
        app.router.add_post("/respond/{id}", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.root = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._spawn(self._redeliver())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.disconnect()
        await self._runner.cleanup()

    def config(self) -> dict[str, Any]:
        tokens = {"botToken": BOT_TOKEN, "appToken": APP_TOKEN, "signingSecret": SIGNING_SECRET}
        retry = {"minDelayMs": 1}
        return {"enabled": True, "apiRoot": f"{self.root}/api", "mode": self.mode, "retry": retry, **tokens}

    def fail(self, *faults: Fault) -> None:
        self._faults.extend(faults)

    def refuse_token(self, refused: bool = True) -> None:
        self._token_refused = refused

    async def disconnect(self) -> None:
        for socket in list(self.sockets):
            await socket.close()

    async def refresh(self) -> None:
        """As Slack does every few hours: it says so, and closes the old socket when there is a new one."""
        [old] = self.sockets
        await old.send_json({"type": "disconnect", "reason": "refresh_requested", "debug_info": {"host": "wss-1"}})
        async with asyncio.timeout(60):
            while self.sockets[-1] is old:
                await asyncio.sleep(0.005)
        await old.close()

    # -- what people do

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
        user, ts = person(sender), self._ts()
        self.names[user] = sender_name
        event: dict[str, Any] = {
            "type": "message",
            "user": user,
            "text": (f"<@{BOT}> " if mention else "") + _escaped(text),
            "ts": ts,
            "event_ts": ts,
            "client_msg_id": f"id-{ts}",
            "team": TEAM,
            **self._place(user, chat),
        }
        if parent := reply_to or thread:
            own = any(message.id == parent for message in self.sent)
            author = BOT if own else self._written.get(parent, {}).get("user", "U77")
            event |= {"thread_ts": parent, "parent_user_id": author}
        if files:
            event |= {"subtype": "file_share", "files": [self._share(file, kind) for file in files]}
        self._written[ts] = event
        self.happen(event)
        if mention and chat:  # Slack says it twice, the second time without the kind of the chat
            self.happen({key: value for key, value in event.items() if key != "channel_type"} | {"type": "app_mention"})
        return ts

    async def rewrite(self, message_id: str, text: str) -> None:
        before = self._written[message_id]
        after = before | {"text": _escaped(text), "edited": {"user": before["user"], "ts": self._ts()}}
        self._written[message_id] = after
        self.change(before, after)

    def change(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        ts, where = self._ts(), {key: before[key] for key in ("channel", "channel_type")}
        both = {"message": after, "previous_message": before}
        self.happen({"type": "message", "subtype": "message_changed", "hidden": True, "ts": ts, **where, **both})

    async def repeat(self) -> None:
        self._deliver(self._last | {"envelope_id": self._id("again"), "retry_attempt": 1, "retry_reason": "timeout"})

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        button = next(each for each in _buttons(message.raw) if each["text"]["text"] == label)
        direct = message.chat.startswith("U")
        channel = {
            "id": f"D{message.chat}" if direct else message.chat,
            "name": "directmessage" if direct else "privategroup",
        }
        number = self._id("press")
        self._shown[number] = asyncio.get_running_loop().create_future()
        payload = {
            "type": "block_actions",
            "user": {"id": person(sender), "username": "ada"},
            "team": {"id": TEAM},
            "channel": channel,
            "message": {
                "type": "message",
                "ts": message.id,
                **({"thread_ts": message.thread} if message.thread else {}),
            },
            "actions": [{"type": "button", "action_id": button["action_id"], "value": button["value"]}],
            "response_url": f"{self.root}/respond/{number}",
        }
        self._deliver(self._envelope("interactive", payload))
        async with asyncio.timeout(60):
            return await self._shown[number]

    def command(self, command: str, text: str = "", *, sender: str = "42", chat: str = "") -> None:
        user = person(sender)
        place = self._place(user, chat)
        payload = {
            "command": command,
            "text": text,
            "user_id": user,
            "user_name": "ada",
            "channel_id": place["channel"],
            "channel_name": "team" if chat else "directmessage",
            "team_id": TEAM,
            "trigger_id": f"{next(self._numbers)}.2.abc",
        }
        self._deliver(self._envelope("slash_commands", payload))

    async def garble(self) -> None:
        for socket in self.sockets:
            await socket.send_str("no JSON {")
            await socket.send_json({"type": "surprise"})
        self.happen({"type": "message", "user": "U42"})
        self.happen({"type": "message", "user": {"no": "string"}, "channel": 7})
        self.happen({"type": "channel_created", "channel": {"id": "C9"}})
        self._deliver(self._envelope("interactive", {"type": 3}))

    def happen(self, event: dict[str, Any]) -> None:
        payload = {"type": "event_callback", "event_id": self._id("Ev"), "team_id": TEAM, "event": event}
        self._deliver(self._envelope("events_api", payload))

    def _place(self, user: str, chat: str) -> dict[str, str]:
        if not chat:
            return {"channel": f"D{user}", "channel_type": "im"}
        if chat.startswith("G"):
            return {"channel": chat, "channel_type": "mpim"}
        return {"channel": chat if chat.startswith("C") else f"C{chat}", "channel_type": "channel"}

    def _share(self, file: SentFile, kind: str) -> dict[str, Any]:
        number = self._id("F")
        self._files[number] = (file.name, file.mime_type, file.data)
        url = f"{self.root}/files/{number}/{file.name}"
        more = {"subtype": "slack_audio"} if kind == "voice" else {}
        mime = {"mimetype": file.mime_type, "size": len(file.data)}
        return {"id": number, "name": file.name, "url_private": url, "url_private_download": url, **mime, **more}

    def _ts(self) -> str:
        return f"1763500000.{next(self._numbers):06d}"

    def _id(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    # -- delivery to the app

    def _envelope(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": kind,
            "envelope_id": self._id("env"),
            "accepts_response_payload": kind != "events_api",
            "payload": payload,
        }

    def _deliver(self, envelope: dict[str, Any]) -> None:
        self._last = envelope
        self._pending[envelope["envelope_id"]] = envelope
        self._spawn(self._push(envelope))

    async def _push(self, envelope: dict[str, Any]) -> None:
        envelope["tried"] = asyncio.get_running_loop().time()
        shown = {key: value for key, value in envelope.items() if key != "tried"}
        if self.mode == "http" and self.post is not None:
            answer = await self.post(signed(*as_request(shown)))
            if answer.status == 200:
                self._acknowledge(envelope["envelope_id"])
        elif self.sockets:
            with suppress(ConnectionError):
                await self.sockets[-1].send_json(shown)

    async def _redeliver(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            before = asyncio.get_running_loop().time() - REDELIVERY_SECONDS
            for envelope in [each for each in self._pending.values() if each.get("tried", 0) < before]:
                await self._push(envelope)

    def _acknowledge(self, number: str) -> None:
        self.acknowledged.append(number)
        self._pending.pop(number, None)

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}})
        self.sockets.append(socket)
        self.connections += 1
        try:
            for envelope in list(self._pending.values()):
                await self._push(envelope)
            async for frame in socket:
                if frame.type == WSMsgType.TEXT:
                    self._acknowledge(json.loads(frame.data).get("envelope_id", ""))
        except ConnectionError:
            pass
        finally:
            self.sockets.remove(socket)
        return socket

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the Web API

    async def _api(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        method = request.match_info["method"]
        form = {key: str(value) for key, value in (*request.query.items(), *(await request.post()).items())}
        self.calls.append((method, form))
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if self._token_refused or request.headers.get("Authorization") != f"Bearer {wanted}":
            return web.json_response(_refused("invalid_auth"))
        if (scope := NEEDED.get(method)) and scope not in self.scopes.split(","):
            return web.json_response(_refused("missing_scope") | {"needed": scope, "provided": self.scopes})
        sends = method in ("chat.postMessage", "files.completeUploadExternal")
        fault = self._faults.pop(0) if sends and self._faults else ""
        if early := _faulty(fault, request):
            return early
        if self.codes and method.startswith("chat."):
            return web.json_response(_refused(self.codes.pop(0)))
        handler = getattr(self, "_" + method.replace(".", "_"), None)
        answer = _refused("unknown_method") if handler is None else {"ok": True} | handler(form)
        if fault == "cut-after":
            _cut(request)
        if fault == "malformed":
            return web.Response(text='{"ok": tru', content_type="application/json")
        return web.json_response(answer, headers={"X-OAuth-Scopes": self.scopes})

    def _auth_test(self, form: dict[str, str]) -> dict[str, Any]:
        return {"user": "pal", "user_id": BOT, "bot_id": "B1", "team": "Harbour", "team_id": TEAM}

    def _apps_connections_open(self, form: dict[str, str]) -> dict[str, Any]:
        return {"url": f"{self.root.replace('http', 'ws')}/socket?ticket=4711&app_id=A1"}

    def _users_info(self, form: dict[str, str]) -> dict[str, Any]:
        if (name := self.names.get(form["user"])) is None:
            return _refused("user_not_found")
        return {"user": {"id": form["user"], "name": name.lower(), "profile": {"display_name": name}}}

    def _conversations_info(self, form: dict[str, str]) -> dict[str, Any]:
        return {"channel": {"id": form["channel"], "is_mpim": form["channel"].startswith("G")}}

    def _conversations_open(self, form: dict[str, str]) -> dict[str, Any]:
        return {"channel": {"id": f"D{form['users']}"}}

    def _chat_postMessage(self, form: dict[str, str]) -> dict[str, Any]:  # noqa: N802
        message = self._keep(self._ts(), form, form["text"])
        return {"channel": form["channel"], "ts": message.id, "message": {"text": message.text, "user": BOT}}

    def _keep(self, number: str, form: dict[str, str], text: str, files: tuple[SentFile, ...] = ()) -> SentMessage:
        chat, thread = form.get("channel") or form["channel_id"], form.get("thread_ts", "")
        buttons = tuple((each["text"]["text"], each["value"]) for each in _buttons(form))
        chat = chat.removeprefix("D")
        self.sent.append(SentMessage(number, chat, text, thread, thread, buttons, files, raw=form))
        return self.sent[-1]

    def _chat_update(self, form: dict[str, str]) -> dict[str, Any]:
        if (message := self._find(form["ts"])) is None:
            return _refused("message_not_found")
        message.edits.append(message.text)
        message.text = form["text"]
        message.buttons = tuple((each["text"]["text"], each["value"]) for each in _buttons(form))
        return {"channel": form["channel"], "ts": form["ts"], "text": form["text"]}

    def _chat_delete(self, form: dict[str, str]) -> dict[str, Any]:
        if (message := self._find(form["ts"])) is None or message.deleted:
            return _refused("message_not_found")
        message.deleted = True
        return {"channel": form["channel"], "ts": form["ts"]}

    def _reactions_add(self, form: dict[str, str]) -> dict[str, Any]:
        names = self._written[form["timestamp"]].setdefault("reactions", [])
        if form["name"] in names:
            return _refused("already_reacted")
        names.append(form["name"])
        return {}

    def _reactions_remove(self, form: dict[str, str]) -> dict[str, Any]:
        self._written[form["timestamp"]]["reactions"].remove(form["name"])
        return {}

    def _reactions_get(self, form: dict[str, str]) -> dict[str, Any]:
        names = self.reactions(form["timestamp"])
        return {"message": {"reactions": [{"name": name, "users": ["U5", BOT], "count": 2} for name in names]}}

    def reactions(self, message_id: str) -> list[str]:
        return list(self._written[message_id].get("reactions", ()))

    def _files_getUploadURLExternal(self, form: dict[str, str]) -> dict[str, Any]:  # noqa: N802
        number = self._id("F")
        self._files[number] = (form["filename"], "", b"")
        return {"upload_url": f"{self.root}/upload/{number}", "file_id": number}

    def _files_completeUploadExternal(self, form: dict[str, str]) -> dict[str, Any]:  # noqa: N802
        [file] = json.loads(form["files"])
        name, mime, data = self._files[file["id"]]
        self._keep(file["id"], form, form.get("initial_comment", ""), (SentFile(name, data, mime),))
        return {"files": [{"id": file["id"], "title": name}]}

    def _files_info(self, form: dict[str, str]) -> dict[str, Any]:
        return {"file": {"id": form["file"], "url_private": f"{self.root}/files/{form['file']}/any"}}

    def _find(self, ts: str) -> SentMessage | None:
        return next((each for each in self.sent if each.id == ts), None)

    # -- what has no method

    async def _upload(self, request: web.Request) -> web.Response:
        name, mime, _ = self._files[request.match_info["id"]]
        self._files[request.match_info["id"]] = (name, mime, await request.read())
        return web.Response(text="OK - 10")

    async def _download(self, request: web.Request) -> web.Response:
        if address := self.moved.get(request.match_info["id"]):
            raise web.HTTPFound(address)
        if self.refuse_files or request.headers.get("Authorization") != f"Bearer {BOT_TOKEN}":
            return web.Response(text="<html>Sign in to Slack</html>", content_type="text/html")
        _, mime, data = self._files[request.match_info["id"]]
        return web.Response(body=data, content_type=mime or "application/octet-stream")

    async def _respond(self, request: web.Request) -> web.Response:
        self._shown.pop(request.match_info["id"]).set_result((await request.json())["text"])
        return web.Response(text="ok")


def _faulty(fault: str, request: web.Request) -> web.StreamResponse | None:
    """Faults in which nothing is sent."""
    if fault in ("rate-limit", "long-rate-limit"):
        pause = {"Retry-After": "0.01" if fault == "rate-limit" else "120"}
        return web.json_response(_refused("ratelimited"), status=429, headers=pause)
    if fault == "server-error":
        return web.Response(status=503, text="<html>busy</html>", content_type="text/html")
    if fault == "cut-before":
        return _cut(request)
    if fault in ("no-parse", "gone"):
        return web.json_response(_refused("invalid_blocks" if fault == "no-parse" else "channel_not_found"))
    return None


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _refused(code: str) -> dict[str, Any]:
    return {"ok": False, "error": code}


def _buttons(form: dict[str, str]) -> list[dict[str, Any]]:
    blocks = json.loads(form.get("blocks", "[]"))
    return [button for block in blocks if block["type"] == "actions" for button in block["elements"]]


def _escaped(text: str) -> str:
    return text if "<" in text else text.replace("&", "&amp;")


def as_request(envelope: dict[str, Any]) -> tuple[bytes, str]:
    """The body and its type, as Slack posts what would be an envelope."""
    payload = envelope["payload"]
    if envelope["type"] == "events_api":
        return json.dumps(payload).encode(), "application/json"
    form = payload if envelope["type"] == "slash_commands" else {"payload": json.dumps(payload)}
    return urlencode(form).encode(), "application/x-www-form-urlencoded"


def signed(body: bytes, content_type: str = "application/json", *, at: float = 0, secret: str = "") -> ChannelRequest:
    stamp = str(int(at or time()))
    key = (secret or SIGNING_SECRET).encode()
    signature = "v0=" + hmac.new(key, b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    headers = {"content-type": content_type, "x-slack-request-timestamp": stamp, "x-slack-signature": signature}
    return ChannelRequest("POST", "/slack/events", headers, {}, body)
