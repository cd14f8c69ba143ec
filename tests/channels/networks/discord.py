"""A fake Discord: REST and the gateway on one port of 127.0.0.1, for one bot.

As on the real network, what happens while the bot is away is kept only for a session that can be resumed; a fresh
IDENTIFY gets none of it, and the history of a channel has it. Before the first session it is kept for convenience.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import zstandard
from aiohttp import WSMsgType, web

from channels.network import Fault, Feature, SentFile, SentMessage

TOKEN = "bot-token-of-the-fake"
GUILD = "500"
EVERYONE_MAY = "412317240384"  # what members may: see, write, write in threads, read back, react, attach
EPHEMERAL = 64
EPOCH = 1_420_070_400_000  # of Discord's ids, in milliseconds
EVENT_ONLY = ("guild_id", "member")


class Session:
    """One gateway session: its events, and the socket that gets them."""

    def __init__(self, number: int) -> None:
        self.id = f"session-{number}"
        self.events: list[dict[str, Any]] = []
        self.socket: Socket | None = None

    async def add(self, kind: str, data: Any) -> None:
        self.events.append({"op": 0, "t": kind, "s": len(self.events) + 1, "d": data})
        if self.socket is not None:
            await self.socket.send(self.events[-1])


class Socket:
    """A connection of the gateway, compressed as the client asked for."""

    def __init__(self, request: web.Request, ws: web.WebSocketResponse) -> None:
        self.request, self.ws = request, ws
        kind = request.query.get("compress")
        self._zstd = zstandard.ZstdCompressor().compressobj() if kind == "zstd-stream" else None
        self._zlib = zlib.compressobj() if kind == "zlib-stream" else None

    async def send(self, frame: dict[str, Any] | str) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)
        try:
            if self._zstd is not None:
                await self.ws.send_bytes(
                    self._zstd.compress(text.encode()) + self._zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
                )
            elif self._zlib is not None:
                await self.ws.send_bytes(self._zlib.compress(text.encode()) + self._zlib.flush(zlib.Z_SYNC_FLUSH))
            else:
                await self.ws.send_str(text)
        except ConnectionError:
            return  # the session keeps the event

    def cut(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()


class FakeDiscord:
    channel = "discord"
    features: frozenset[Feature] = frozenset(
        {"groups", "threads", "edits", "deletes", "buttons", "reactions", "typing", "commands", "media",
         "received-edits"}
    )  # fmt: skip
    self_id = "900"
    own_role = "910"  # of the bot, in the server

    def __init__(self) -> None:
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.commands: list[str] = []
        self.requests = 0
        self.paths: list[str] = []
        self.identified = self.resumed = self.heartbeats = 0
        self.pinged: list[str] = []  # whom messages of the bot have called
        self.message_content = True  # whether the intent is switched on
        self.permissions = EVERYONE_MAY
        self.fatal_code = 0  # with which the gateway closes each new connection
        self.pause = 0.01  # of a 429
        self.heartbeat = 41_250  # milliseconds between two of the client
        self.roles: dict[str, list[str]] = {}  # of members
        self._refused = False
        self._faults: deque[str] = deque()
        self.history_fails = 0  # so many times
        self._next = int(time.time() * 1000 - EPOCH) << 22  # ids of Discord are made of the time
        self._session: Session | None = None
        self._pending: list[tuple[str, Any]] = []
        self._last: tuple[str, Any] | None = None
        self._sockets: list[Socket] = []
        self._channels: dict[str, dict[str, Any]] = {}
        self._messages: dict[str, dict[str, Any]] = {}
        self._nonces: dict[str, dict[str, Any]] = {}
        self._files: dict[str, SentFile] = {}
        self._answers: dict[str, dict[str, Any]] = {}  # by token of the interaction
        self._answered = asyncio.Condition()

    # the server

    async def start(self) -> None:
        app = web.Application(client_max_size=50 * 1024 * 1024)
        app.router.add_get("/gateway/", self._gateway)
        app.router.add_get("/files/{id}/{name}", self._file)
        app.router.add_route("*", "/api/v10/{path:.*}", self._rest)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self.disconnect()
        await self._runner.cleanup()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def config(self) -> dict[str, Any]:
        return {"token": TOKEN, "apiRoot": f"{self.root}/api/v10"}

    def fail(self, *faults: Fault | Literal["global-rate-limit"]) -> None:
        self._faults.extend(faults)

    def refuse_token(self, refused: bool = True) -> None:
        self._refused = refused

    async def disconnect(self) -> None:
        for socket in self._sockets:
            socket.cut()
        if self._session is not None:
            self._session.socket = None

    def forget_session(self) -> None:
        """The session can no longer be resumed, and what happened since is lost."""
        self._session = None

    # what people do

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
        **more: Any,  # fields of Discord's message
    ) -> str:
        place = await self._place(chat, thread, sender)
        message = self._new_message(place, self.user(sender, sender_name), text)
        if mention:
            message["content"] = f"<@{self.self_id}> {text}"
            message["mentions"] = [self.user(self.self_id)]
        if reply_to:
            message |= {"type": 19, "message_reference": {"message_id": reply_to, "channel_id": place}}
            message["referenced_message"] = self._messages.get(reply_to)
        message["attachments"] = [self._keep_file(file) for file in files]
        message["flags"] = 1 << 13 if kind == "voice" else 0
        await self._tell("MESSAGE_CREATE", self._in_place(message | more, sender))
        return str(message["id"])

    async def rewrite(self, message_id: str, text: str) -> None:
        message = self._messages[message_id]
        message |= {"content": text, "edited_timestamp": "2026-11-18T12:00:00.123000+00:00"}
        await self._tell("MESSAGE_UPDATE", message)

    def age(self, *, days: int) -> None:
        """What was written so far is that much older."""
        older = (days * 86_400_000) << 22
        self._messages = {
            str(int(id) - older): each | {"id": str(int(id) - older)}
            for id, each in self._messages.items()  # noqa: A001  Discord's word
        }

    async def unfurl(self, message_id: str) -> None:
        """Discord adds the preview of a link."""
        await self._tell("MESSAGE_UPDATE", self._messages[message_id] | {"embeds": [{"type": "link", "title": "A"}]})

    async def repeat(self) -> None:
        if self._last is not None:
            await self._tell(*self._last)

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        value = next(value for shown, value in message.buttons if shown == label)
        place = await self._place("" if message.chat == sender else message.chat, message.thread, sender)
        about = {"type": 3, "data": {"custom_id": value, "component_type": 2}, "message": self._messages[message.id]}
        return str((await self._interact(place, sender, about))["content"])

    async def command(self, name: str, text: str = "", *, sender: str = "42", chat: str = "") -> dict[str, Any]:
        """A person uses a slash command; returns how the interaction was answered in the end."""
        options = [{"name": "text", "type": 3, "value": text}] if text else []
        about = {"type": 2, "data": {"id": "77", "name": name, "type": 1, "options": options}}
        return await self._interact(await self._place(chat, "", sender), sender, about)

    async def garble(self) -> None:
        await self._tell("MESSAGE_CREATE", {"id": "x", "channel_id": "700"})
        if self._session is not None and self._session.socket is not None:
            await self._session.socket.send("{no json")

    # records of Discord

    def _new_id(self) -> str:
        self._next += 1
        return str(self._next)

    def user(self, id: str, name: str = "Ada") -> dict[str, Any]:  # noqa: A002  Discord's word
        own = id == self.self_id
        return {
            "id": id,
            "username": "palinurus" if own else name.lower(),
            "global_name": None if own else name,
            "discriminator": "0",
            "avatar": None,
            "bot": own,
        }

    def member(self, id: str) -> dict[str, Any]:  # noqa: A002  Discord's word
        roles = [self.own_role] if id == self.self_id else self.roles.get(id, [])
        return {"roles": roles, "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}

    def _new_message(self, place: str, author: dict[str, Any], text: str) -> dict[str, Any]:
        new = self._new_id()
        self._messages[new] = {
            "id": new,
            "channel_id": place,
            "author": author,
            "content": text,
            "timestamp": "2026-11-18T11:00:00+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            "flags": 0,
        }
        return self._messages[new]

    def _in_place(self, message: dict[str, Any], sender: str) -> dict[str, Any]:
        """As the gateway sends it: with the server and the member, if it is not a direct chat."""
        if message["channel_id"] in self._channels:
            message |= {"guild_id": GUILD, "member": self.member(sender)}
        self._messages[message["id"]] = message
        return message

    def _keep_file(self, file: SentFile) -> dict[str, Any]:
        new = self._new_id()
        self._files[new] = file
        return {
            "id": new,
            "filename": file.name,
            "size": len(file.data),
            "url": f"{self.root}/files/{new}/{file.name}",
            "proxy_url": f"{self.root}/files/{new}/{file.name}",
            "content_type": file.mime_type or "application/octet-stream",
        }

    async def _place(self, chat: str, thread: str, sender: str) -> str:
        """The id of the channel; one that is new is made."""
        if chat in ("", sender):
            return direct(sender)
        for id, kind, parent in ((chat, 0, None), (thread, 11, chat)):  # noqa: A001  Discord's word
            if id and id not in self._channels:
                new: dict[str, Any] = {"id": id, "type": kind, "name": f"room-{id}", "guild_id": GUILD, "position": 0,
                                       "permission_overwrites": [], "nsfw": False, "parent_id": parent}  # fmt: skip
                if kind == 11:
                    new |= {"owner_id": "42", "message_count": 0, "member_count": 1, "rate_limit_per_user": 0,
                            "thread_metadata": {"archived": False, "auto_archive_duration": 60, "locked": False,
                                                "archive_timestamp": "2026-11-18T11:00:00+00:00"}}  # fmt: skip
                self._channels[id] = new
                if self._session is not None:
                    await self._tell("THREAD_CREATE" if kind == 11 else "CHANNEL_CREATE", new)
        return thread or chat

    def _guild(self) -> dict[str, Any]:
        role = {"color": 0, "hoist": False, "position": 0, "managed": False, "mentionable": True, "permissions": "0"}
        roles = [
            role | {"id": GUILD, "name": "@everyone"},
            role | {"id": self.own_role, "name": "palinurus"},
            role | {"id": "920", "name": "crew"},
        ]
        places = self._channels.values()
        return {
            "id": GUILD,
            "name": "Harbour",
            "unavailable": False,
            "member_count": 2,
            "owner_id": "42",
            "roles": roles,
            "emojis": [],
            "features": [],
            "channels": [each for each in places if each["type"] == 0],
            "threads": [each for each in places if each["type"] == 11],
            "members": [self.member(self.self_id) | {"user": self.user(self.self_id)}],
            "presences": [],
            "voice_states": [],
        }

    # the gateway

    async def _tell(self, kind: str, data: Any) -> None:
        if kind.startswith(("MESSAGE", "INTERACTION")):
            self._last = (kind, data)
        if self._session is None:
            if not self.identified:
                self._pending.append((kind, data))
        else:
            await self._session.add(kind, data)

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        socket = Socket(request, ws)
        self._sockets.append(socket)
        try:
            if self.fatal_code:
                await ws.close(code=self.fatal_code)
                return ws
            await socket.send({"op": 10, "t": None, "s": None, "d": {"heartbeat_interval": self.heartbeat}})
            async for frame in ws:
                if frame.type == WSMsgType.TEXT:
                    await self._obey(socket, json.loads(frame.data))
        finally:
            self._sockets.remove(socket)
            if self._session is not None and self._session.socket is socket:
                self._session.socket = None
                if ws.close_code in (1000, 1001):  # then it cannot be resumed
                    self._session = None
        return ws

    async def _obey(self, socket: Socket, frame: dict[str, Any]) -> None:
        said = frame["d"]
        if frame["op"] == 1:
            self.heartbeats += 1
            await socket.send({"op": 11, "t": None, "s": None, "d": None})
        elif frame["op"] in (2, 6) and (self._refused or said["token"] != TOKEN):
            await socket.ws.close(code=4004)
        elif frame["op"] == 2 and said["intents"] & (1 << 15) and not self.message_content:
            await socket.ws.close(code=4014)
        elif frame["op"] == 2:
            await self._identify(socket)
        elif frame["op"] == 6:
            await self._resume(socket, said)

    async def _identify(self, socket: Socket) -> None:
        self.identified += 1
        session = self._session = Session(self.identified)
        session.socket = socket
        gateway = f"ws://127.0.0.1:{self._port}/gateway/"
        ready = {"v": 10, "user": self.user(self.self_id), "guilds": [{"id": GUILD, "unavailable": True}],
                 "session_id": session.id, "resume_gateway_url": gateway,
                 "application": {"id": "901", "flags": 1 << 19}}  # fmt: skip
        await session.add("READY", ready)
        await session.add("GUILD_CREATE", self._guild())
        pending, self._pending = self._pending, []
        for kind, data in pending:
            await session.add(kind, data)

    async def _resume(self, socket: Socket, said: dict[str, Any]) -> None:
        session = self._session
        if session is None or session.id != said["session_id"] or said["seq"] > len(session.events):
            await socket.send({"op": 9, "t": None, "s": None, "d": False})
            return
        self.resumed += 1
        for event in session.events[said["seq"] :]:
            await socket.send(event)
        session.socket = socket
        await session.add("RESUMED", {})

    # REST

    async def _file(self, request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers, "the storage of files is not Discord's API"
        file = self._files[request.match_info["id"]]
        return web.Response(body=file.data, content_type=file.mime_type or "application/octet-stream")

    async def _rest(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        path = request.match_info["path"]
        self.paths.append(f"{request.method} /{path}")
        if self._refused or request.headers.get("Authorization") != f"Bot {TOKEN}":
            return failure(401, 0, "401: Unauthorized")
        match [request.method, *path.split("/")]:
            case ["PUT", "applications", "901", "commands"]:
                self.commands = [each["name"] for each in await request.json()]
                return web.json_response([])
            case ["POST", "interactions", _, token, "callback"]:
                return await self._callback(token, (await request.json()))
            case [method, "webhooks", "901", token, "messages", "@original"]:
                answer = await request.json() if method == "PATCH" else {"content": "", "deleted": True}
                return await self._settle(token, answer)
            case [method, "channels", place, *rest]:
                return await self._of_channel(request, method, place, rest)
            case parts:
                return await self._of_account(request, parts)

    async def _of_account(self, request: web.Request, parts: list[str]) -> web.Response:
        match parts:
            case ["GET", "users", "@me"]:
                return web.json_response(self.user(self.self_id))
            case ["GET", "users", "@me", "guilds"]:
                return web.json_response([{"id": GUILD, "name": "Harbour", "permissions": self.permissions}])
            case ["POST", "users", "@me", "channels"]:
                person = str((await request.json())["recipient_id"])
                if person in self._channels:
                    return failure(400, 50033, "Invalid Recipient(s)")
                return web.json_response({"id": direct(person), "type": 1, "recipients": [self.user(person)]})
            case ["GET", "applications", "@me"]:
                return web.json_response({"id": "901", "flags": (1 << 19) if self.message_content else 0})
            case ["GET", "gateway", "bot"]:
                return web.json_response({"url": f"ws://127.0.0.1:{self._port}/gateway/", "shards": 1})
        return failure(404, 0, "404: Not Found")

    async def _of_channel(self, request: web.Request, method: str, place: str, rest: list[str]) -> web.StreamResponse:
        if place not in self._channels and not place.startswith("8000"):
            return failure(404, 10003, "Unknown Channel")
        match [method, *rest]:
            case ["GET"]:
                return web.json_response({"id": place, "type": 0})
            case ["POST", "typing"]:
                self.typing.append(self._chat_of(place))
                return web.Response(status=204)
            case [_, "messages"]:
                return await self._post(request, place) if method == "POST" else self._history(request, place)
        known = self._messages.get(rest[1])
        if known is None:
            return failure(404, 10008, "Unknown Message")
        if len(rest) > 2:
            return self._react(method, known, rest[3])
        if method == "GET":
            return web.json_response(known)
        message = next((each for each in self.sent if each.id == rest[1]), None)
        if message is None:
            return failure(403, 50005, "Cannot edit a message authored by another user")
        if method == "DELETE":
            message.deleted = True
            return web.Response(status=204)
        body = await request.json()
        message.edits.append(message.text)
        message.text = known["content"] = body["content"]
        message.buttons = buttons_of(body)
        return web.json_response(known)

    def _history(self, request: web.Request, place: str) -> web.Response:
        """Those that follow, the newest first, without what only events carry."""
        if self.history_fails:
            self.history_fails -= 1
            return web.Response(status=502, text="<html>Bad Gateway</html>")
        after, limit = int(request.query["after"]), int(request.query["limit"])
        later = [each for each in self._messages.values() if each["channel_id"] == place and int(each["id"]) > after]
        shown = [{key: value for key, value in each.items() if key not in EVENT_ONLY} for each in later[:limit]]
        return web.json_response(shown[::-1])

    def _react(self, method: str, message: dict[str, Any], emoji: str) -> web.Response:
        others = [each for each in message.get("reactions", []) if each["emoji"]["name"] != emoji]
        own = {"me": True, "emoji": {"id": None, "name": emoji}}
        message["reactions"] = [*others, own] if method == "PUT" else others
        for sent in self.sent:
            if sent.id == message["id"]:
                sent.reactions = self.reactions(sent.id)
        return web.Response(status=204)

    def reactions(self, message_id: str) -> list[str]:
        return [each["emoji"]["name"] for each in self._messages[message_id].get("reactions", [])]

    def _chat_of(self, place: str) -> str:
        return place.removeprefix("8000") if place not in self._channels else place

    async def _post(self, request: web.Request, place: str) -> web.StreamResponse:
        fault = self._faults.popleft() if self._faults else ""
        if fault == "cut-before":
            return cut(request)
        body, files = await read_form(request)
        if fault in ("rate-limit", "long-rate-limit", "global-rate-limit"):
            return rate_limit(120 if fault == "long-rate-limit" else self.pause, everywhere=fault.startswith("global"))
        if fault == "server-error":
            return web.Response(status=503, text="upstream connect error")
        if fault == "gone":
            return failure(403, 50007, "Cannot send messages to this user")
        if len(body["content"]) > 2000 or not (body["content"] or files):
            return failure(400, 50035, "Invalid Form Body")
        known = self._nonces.get(body.get("nonce", "")) if body.get("enforce_nonce") else None
        known = known or self._deliver(place, body, files)
        if fault == "cut-after":
            return cut(request)
        if fault == "malformed":
            return web.Response(text='{"id": "12', content_type="application/json")
        return web.json_response(known)

    def _deliver(self, place: str, body: dict[str, Any], files: tuple[SentFile, ...]) -> dict[str, Any]:
        message = self._new_message(place, self.user(self.self_id), body["content"])
        self._nonces[body.get("nonce", "")] = message
        self.pinged += pings(body)
        is_thread = self._channels.get(place, {}).get("type") == 11
        self.sent.append(
            SentMessage(
                message["id"],
                self._chat_of(place),
                body["content"],
                thread=place if is_thread else "",
                reply_to=body.get("message_reference", {}).get("message_id", ""),
                buttons=buttons_of(body),
                files=files,
                raw=body,
            )
        )
        return message

    # interactions

    async def _interact(self, place: str, sender: str, about: dict[str, Any]) -> dict[str, Any]:
        token = f"interaction-token-{self._new_id()}"
        event = about | {"id": self._new_id(), "application_id": "901", "token": token, "version": 1,
                         "attachment_size_limit": 10_000_000, "entitlements": []}  # fmt: skip
        user = self.user(sender)
        if place in self._channels:
            event |= {"guild_id": GUILD, "channel": self._channels[place], "channel_id": place,
                      "member": self.member(sender) | {"user": user, "permissions": "0"}}  # fmt: skip
        else:
            event |= {"channel": {"id": place, "type": 1, "recipients": [user]}, "channel_id": place, "user": user}
        await self._tell("INTERACTION_CREATE", event)
        async with asyncio.timeout(60), self._answered:
            await self._answered.wait_for(lambda: "content" in self._answers.get(token, {}))
        return self._answers[token]

    async def _callback(self, token: str, said: dict[str, Any]) -> web.Response:
        if token in self._answers:
            return failure(400, 40060, "Interaction has already been acknowledged.")
        ephemeral = bool(said.get("data", {}).get("flags", 0) & EPHEMERAL)
        self._answers[token] = {"type": said["type"], "ephemeral": ephemeral}
        return web.Response(status=204) if said["type"] == 5 else await self._settle(token, said.get("data", {}))

    async def _settle(self, token: str, answer: dict[str, Any]) -> web.Response:
        if token not in self._answers:
            return failure(404, 10015, "Unknown Webhook")
        async with self._answered:
            self._answers[token] |= {"content": "", **answer}
            self._answered.notify_all()
        return web.json_response({"id": self._new_id()})


def direct(person: str) -> str:
    """The id of the direct channel with somebody."""
    return f"8000{person}"


def failure(status: int, code: int, message: str) -> web.Response:
    return web.json_response({"message": message, "code": code}, status=status)


def rate_limit(seconds: float, *, everywhere: bool) -> web.Response:
    said = {"message": "You are being rate limited.", "retry_after": seconds, "global": everywhere}
    headers = {"Retry-After": str(int(seconds) + 1), "X-RateLimit-Scope": "global" if everywhere else "user"}
    return web.json_response(said, status=429, headers=headers)


def cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def read_form(request: web.Request) -> tuple[dict[str, Any], tuple[SentFile, ...]]:
    if request.content_type == "application/json":
        return await request.json(), ()
    form = await request.post()
    files = tuple(
        SentFile(part.filename, part.file.read(), part.content_type)
        for name, part in form.items()
        if name.startswith("files[") and isinstance(part, web.FileField)
    )
    described = form["payload_json"]
    assert isinstance(described, str | bytes | bytearray)
    return json.loads(described), files


def buttons_of(body: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    rows: list[Any] = body.get("components", [])
    return tuple((each["label"], each["custom_id"]) for row in rows for each in row["components"])


def pings(body: dict[str, Any]) -> list[str]:
    """Whom a message calls, by Discord's rule: everybody that it names, unless allowed_mentions says otherwise."""
    allowed: list[str] = body.get("allowed_mentions", {}).get("parse", ["everyone", "users", "roles"])
    marks: dict[str, Callable[[str], bool]] = {
        "everyone": lambda text: "@everyone" in text or "@here" in text,
        "users": lambda text: "<@" in text,
        "roles": lambda text: "<@&" in text,
    }
    return [kind for kind, is_in in marks.items() if kind in allowed and is_in(body["content"])]
