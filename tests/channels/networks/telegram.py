"""Telegram's Bot API on loopback, for one bot: it keeps updates until they are confirmed, as Telegram does."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any, Literal, get_args

from aiohttp import web
from aiohttp.web_request import FileField

from channels.network import Fault, Feature, SentFile, SentMessage

Json = dict[str, Any]
BOT_ID = 4242
USERNAME = "pal_bot"
GROUP = "supergroup"
SENDS = ("sendMessage", "sendPhoto", "sendDocument", "sendVoice", "sendAudio", "sendVideo", "sendAnimation")
TAGS = {"b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "span", "tg-spoiler", "a", "code", "pre"}
TAGS |= {"blockquote", "tg-emoji"}


class Refusal(Exception):
    """An error of the Bot API."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.body = {"ok": False, "error_code": code, "description": description}
        if parameters:
            self.body["parameters"] = parameters
        self.code = code


class FakeTelegram:
    channel = "telegram"
    features: frozenset[Feature] = frozenset(get_args(Feature))
    self_id = str(BOT_ID)

    def __init__(self) -> None:
        self.token = f"{BOT_ID}:AAFakeTokenOfTheTests_0123456789-xyz"
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.commands: list[str] = []
        self.requests = 0
        self.calls: list[tuple[str, Json]] = []  # every request but polls: method and parameters
        self.offsets: list[int] = []  # of the polls
        self.webhook: Json = {}
        self.most_updates = 0  # in one answer; 0: as in the request, at most 100
        self.pending: list[Json] = []  # updates that are not confirmed
        self.messages: dict[tuple[str, str], Json] = {}  # by chat and id
        self.port = 0  # until it was started: it is started again at the same address
        self._files: dict[str, bytes] = {}
        self._notices: dict[str, asyncio.Future[str]] = {}  # by callback query
        self._refusals: dict[str, list[Refusal]] = {}
        self._faults: list[Fault] = []
        self._last: Json = {}
        self._number = 1000
        self._poll = 0  # the newest poll; older ones are ended
        self._polls: dict[int, tuple[web.Request, asyncio.Event]] = {}  # the event ends a poll
        self._is_held = False
        self._token_refused = False

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/bot{token}/{method}", self._answer)
        app.router.add_get("/file/bot{token}/{path:.+}", self._send_content)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    def config(self) -> Json:
        return {"botToken": self.token, "apiRoot": f"http://127.0.0.1:{self.port}"}

    # What people do

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
        **more: Any,
    ) -> str:
        """`more` are fields of Telegram's message; `chat_of` is its chat."""
        said = f"@{USERNAME} {text}" if mention else text
        message = self._message(chat or sender, thread, said, person(sender, sender_name))
        entities = [{"type": "mention", "offset": 0, "length": len(USERNAME) + 1}] if mention else []
        if command := re.match(r"/\w+(@\w+)?", said):
            entities.append({"type": "bot_command", "offset": 0, "length": len(command[0])})
        if reply_to:
            message["reply_to_message"] = self.messages[chat or sender, reply_to]
        if files:
            message["caption"], message["caption_entities"] = message.pop("text"), entities
            message |= self._attach(files[0], kind)
        else:
            message["entities"] = entities
        if chat_of := more.pop("chat_of", None):
            message["chat"] = chat_of
        message |= more
        await self.deliver({"message": message})
        return str(message["message_id"])

    async def rewrite(self, message_id: str, text: str) -> None:
        message = next(each for (_, number), each in self.messages.items() if number == message_id)
        message |= {"text": text, "edit_date": message["date"] + 60}
        await self.deliver({"edited_message": dict(message)})

    async def repeat(self) -> None:
        await self._put(self._last)

    async def garble(self) -> None:
        await self.deliver({"message": {"message_id": "?", "chat": []}})

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        query = self._next()
        self._notices[query] = asyncio.get_running_loop().create_future()
        asked = {"id": query, "from": person(sender, "Ada"), "chat_instance": "1"}
        asked["message"] = self.messages[message.chat, message.id]
        asked["data"] = dict(message.buttons)[label]
        await self.deliver({"callback_query": asked})
        return await asyncio.wait_for(self._notices[query], 60)

    async def deliver(self, update: Json) -> None:
        """Anything that Telegram could deliver, without its number."""
        self._last = {"update_id": int(self._next()), **update}
        await self._put(self._last)

    def fail(self, *faults: Fault) -> None:
        self._faults.extend(faults)

    def refuse(self, method: str, code: int, description: str, **parameters: Any) -> None:
        """The next request of this method is answered so."""
        self._refusals.setdefault(method, []).append(Refusal(code, description, **parameters))

    def hold(self) -> None:
        """From now on nothing is delivered."""
        self._is_held = True

    def let_go(self) -> None:
        self._is_held = False
        self.end_polls()

    def end_polls(self) -> None:
        """Polls that wait are answered with what there is."""
        for _, ended in self._polls.values():
            ended.set()

    def next_number(self, number: int) -> None:
        self._number = number

    async def disconnect(self) -> None:
        for request, _ in tuple(self._polls.values()):
            cut(request)

    def refuse_token(self, refused: bool = True) -> None:
        self._token_refused = refused

    # The Bot API

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        method = request.match_info["method"]
        fault = self._faults.pop(0) if self._faults and method in SENDS else ""
        if fault == "cut-before":
            return cut(request)
        try:
            self._check_token(request)
            given = dict((await request.post()).items())
            if fault:
                raise_fault(fault)
            if refusals := self._refusals.get(method):
                raise refusals.pop(0)
            result = await self._call(method, given, request)
        except Refusal as refusal:
            return web.json_response(refusal.body, status=refusal.code)
        if fault == "cut-after":
            return cut(request)
        if fault == "malformed":
            return web.Response(text='{"ok":true,"result":{"message_', content_type="application/json")
        return web.json_response({"ok": True, "result": result})

    async def _call(self, method: str, given: Json, request: web.Request) -> Any:
        if method == "getUpdates":
            return await self._give_updates(given, request)
        self.calls.append((method, given))
        if method in SENDS:
            return self._send(method, given)
        name = "_do_" + re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", method)
        do: Callable[[Json], Any] | None = getattr(self, name, None)
        if do is None:
            raise Refusal(404, "Not Found: method not found")
        return do(given)

    async def _give_updates(self, given: Json, request: web.Request) -> list[Json]:
        if self.webhook:
            raise Refusal(409, "Conflict: can't use getUpdates method while webhook is active")
        offset, limit = int(given.get("offset", 0)), min(int(given.get("limit", 100)), 100)
        self.offsets.append(offset)
        if offset > 0:
            self.pending = [each for each in self.pending if each["update_id"] >= offset]
        self.end_polls()
        self._poll += 1
        own, ended = self._poll, asyncio.Event()
        self._polls[own] = request, ended
        try:
            if self._is_held or not self.pending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), float(given.get("timeout", 0)))
        finally:
            del self._polls[own]
        if self._poll != own:
            raise Refusal(409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance")
        return [] if self._is_held else self.pending[: self.most_updates or limit]

    def _send(self, method: str, given: Json) -> Json:
        chat, kind = given["chat_id"], method.removeprefix("send").lower()
        text = given.get("text", "") if kind == "message" else given.get("caption", "")
        check_text(text, given.get("parse_mode"), 4096 if kind == "message" else 1024, is_needed=kind == "message")
        thread = given.get("message_thread_id", "")
        if thread == "1":
            raise Refusal(400, "Bad Request: message thread not found")
        message = self._message(chat, thread, text, self.user())
        markup = json.loads(given.get("reply_markup", "{}"))
        reply = str(json.loads(given.get("reply_parameters", "{}")).get("message_id", ""))
        files = ()
        if isinstance(field := given.get(kind), FileField):
            files = (SentFile(field.filename, field.file.read(), field.content_type),)
        number = str(message["message_id"])
        self.sent.append(SentMessage(number, chat, text, thread, reply, buttons(markup), files, [], [], raw=given))
        return message

    def _sent(self, given: Json, otherwise: str) -> SentMessage:
        key = given["chat_id"], given["message_id"]
        found = next((each for each in self.sent if (each.chat, each.id) == key and not each.deleted), None)
        if found is None:
            raise Refusal(400, f"Bad Request: {otherwise} not found")
        return found

    def _do_get_me(self, given: Json) -> Json:
        return self.user() | {
            "can_join_groups": True,
            "can_read_all_group_messages": True,
            "supports_inline_queries": False,
        }

    def _do_get_webhook_info(self, given: Json) -> Json:
        return {"url": self.webhook.get("url", ""), "has_custom_certificate": False, "pending_update_count": 0}

    def _do_set_webhook(self, given: Json) -> bool:
        if not given["url"].startswith("https://"):
            raise Refusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        self.webhook = given
        return True

    def _do_delete_webhook(self, given: Json) -> bool:
        self.webhook = {}
        return True

    def _do_set_my_commands(self, given: Json) -> bool:
        listed = json.loads(given["commands"])
        if len(listed) > 100 or not all(re.fullmatch(r"[a-z0-9_]{1,32}", each["command"]) for each in listed):
            raise Refusal(400, "Bad Request: BOT_COMMAND_INVALID")
        self.commands = [each["command"] for each in listed]
        return True

    def _do_edit_message_text(self, given: Json) -> Json:
        message = self._sent(given, "message to edit")
        check_text(given["text"], given.get("parse_mode"), 4096)
        shown = buttons(json.loads(given.get("reply_markup", "{}")))
        if (message.text, message.buttons) == (given["text"], shown):
            raise Refusal(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup"
                " are exactly the same as a current content and reply markup of the message",
            )
        message.edits.append(message.text)
        message.text, message.buttons = given["text"], shown
        stored = self.messages[message.chat, message.id]
        stored["text"] = message.text
        return stored

    def _do_delete_message(self, given: Json) -> bool:
        self._sent(given, "message to delete").deleted = True
        return True

    def _do_set_message_reaction(self, given: Json) -> bool:
        key = given["chat_id"], given["message_id"]
        if key not in self.messages:
            raise Refusal(400, "Bad Request: message to react not found")
        emojis = [each["emoji"] for each in json.loads(given.get("reaction", "[]"))]
        if any("\ufe0f" in each for each in emojis):
            raise Refusal(400, "Bad Request: REACTION_INVALID")
        self.messages[key]["reactions of the bot"] = emojis
        return True

    def _do_send_chat_action(self, given: Json) -> bool:
        self.typing.append(given["chat_id"])
        return True

    def _do_answer_callback_query(self, given: Json) -> bool:
        notice = self._notices.get(given["callback_query_id"])
        if notice is None or notice.done():
            raise Refusal(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        notice.set_result(given.get("text", ""))
        return True

    def _do_get_file(self, given: Json) -> Json:
        number = given["file_id"]
        if len(self._files[number]) > 20 * 1024 * 1024:
            raise Refusal(400, "Bad Request: file is too big")
        return {"file_id": number, "file_unique_id": number, "file_path": f"documents/{number}"}

    async def _send_content(self, request: web.Request) -> web.StreamResponse:
        content = self._files.get(request.match_info["path"].removeprefix("documents/"))
        if content is None or request.match_info["token"] != self.token:
            return web.json_response(Refusal(404, "Not Found").body, status=404)
        return web.Response(body=content)

    # Records

    def _check_token(self, request: web.Request) -> None:
        if self._token_refused or request.match_info["token"] != self.token:
            raise Refusal(401, "Unauthorized")

    def user(self) -> Json:
        return {"id": BOT_ID, "is_bot": True, "first_name": "Pal", "username": USERNAME}

    def _next(self) -> str:
        self._number += 1
        return str(self._number)

    def _message(self, chat: str, thread: str, text: str, author: Json) -> Json:
        is_private = chat == str(author["id"]) or (chat, "private") in self.messages
        message = {"message_id": int(self._next()), "from": author, "date": 1_790_000_000, "text": text}
        if is_private:
            self.messages[chat, "private"] = {}
            message["chat"] = {"id": int(chat), "type": "private", "first_name": "Ada"}
        else:
            message["chat"] = {"id": int(chat), "type": GROUP, "title": "Harbour"}
        if thread:
            message["chat"]["is_forum"] = True
            message |= {"message_thread_id": int(thread), "is_topic_message": True}
        self.messages[chat, str(message["message_id"])] = message
        return message

    def _attach(self, file: SentFile, kind: str) -> Json:
        number = self._next()
        self._files[number] = file.data
        about = {"file_id": number, "file_unique_id": number, "file_size": len(file.data)}
        if kind == "image":
            small = {"file_id": "small", "file_unique_id": "small", "width": 90, "height": 60}
            return {"photo": [small, about | {"width": 900, "height": 600}]}
        if kind == "voice":
            return {"voice": about | {"duration": 3, "mime_type": file.mime_type}}
        return {"document": about | {"file_name": file.name, "mime_type": file.mime_type}}

    async def _put(self, update: Json) -> None:
        self.pending.append(update)
        if not self._is_held:
            self.end_polls()


def person(number: str, name: str) -> Json:
    return {"id": int(number), "is_bot": False, "first_name": name}


def cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def buttons(markup: Json) -> tuple[tuple[str, str], ...]:
    return tuple((each["text"], each["callback_data"]) for row in markup.get("inline_keyboard", ()) for each in row)


def raise_fault(fault: Fault) -> None:
    if fault in ("rate-limit", "long-rate-limit"):
        pause = 120 if fault == "long-rate-limit" else 0.01
        raise Refusal(429, f"Too Many Requests: retry after {pause}", retry_after=pause)
    if fault == "server-error":
        raise Refusal(503, "Service Unavailable")
    if fault == "no-parse":
        raise Refusal(400, "Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"b\"")
    if fault == "gone":
        raise Refusal(400, "Bad Request: chat not found")


class MarkupReader(HTMLParser):
    """Reads Telegram's HTML; tags must be known and closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in TAGS:
            raise Refusal(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            raise Refusal(400, f'Bad Request: can\'t parse entities: Unmatched end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        self.text += data

    def close(self) -> None:
        super().close()
        if self._open:
            tag = self._open[-1]
            raise Refusal(
                400, f"Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"{tag}\""
            )


def check_text(text: str, mode: str | None, most: int, *, is_needed: bool = True) -> None:
    if mode == "HTML":
        reader = MarkupReader()
        reader.feed(text)
        reader.close()
        text = reader.text
    if is_needed and not text.strip():
        raise Refusal(400, "Bad Request: message text is empty")
    if len(text.encode("utf-16-le")) // 2 > most:
        raise Refusal(
            400, "Bad Request: message is too long" if is_needed else "Bad Request: message caption is too long"
        )
