"""WhatsApp by Meta's Cloud API: messages come by a signed webhook, and go out by the Graph API.

Direct chats only. A person must have written within the last 24 hours; then WhatsApp takes any message. Sent messages
cannot be changed or deleted, and WhatsApp knows no idempotency keys.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit
from weakref import WeakValueDictionary

from palinurus.dispatch.channels import (
    ButtonPress,
    Channel,
    ChannelCapabilities,
    ChannelCheck,
    ChannelContext,
    ChannelInbox,
    ChannelRequest,
    ChannelResponse,
    ChatTarget,
    OutgoingFile,
    OutgoingPart,
    ReceivedFile,
    retry_request,
)
from palinurus.domain.envelope import Button
from palinurus.domain.errors import (
    BadRequest,
    ConfigError,
    HolderLost,
    JobError,
    JobFailed,
    JobRefused,
    QueueFull,
    StorageError,
    WebError,
)
from palinurus.extensions.channels.settings import WhatsAppSettings
from palinurus.extensions.channels.whatsapp.graph import AccessTokenRefused, GraphClient
from palinurus.extensions.channels.whatsapp.updates import FailedMessage, WhatsAppUpdate, read_updates
from palinurus.text.markdown import TextLimits

log = logging.getLogger(__name__)

TEXT, BODY = 4096, 1024  # characters of a message; of a caption, or above buttons
REPLY_BUTTONS, REPLY_LABEL = 3, 20
LIST_ROWS, ROW_LABEL = 10, 24
CHOOSE = "▾"  # the button that opens a list, and the body below a long text
MOST_REQUESTS = 64  # that are answered at the same time
MOST_KEPT = 1000  # chats, and presses
LARGEST_IMAGE = 5_000_000  # bytes; a larger one is sent as a document
IMAGES, VIDEOS = ("image/jpeg", "image/png"), ("video/mp4", "video/3gpp")
TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
APP_PAGE = "on the app's page of developers.facebook.com"


class WhatsAppChannel(Channel):
    """One number of the Cloud API."""

    capabilities = ChannelCapabilities(
        TextLimits(TEXT), dialect="whatsapp", buttons=True, reactions=True, typing=True, media=True
    )

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        settings = context.settings(WhatsAppSettings)
        token = context.secret(settings.access_token) or context.env.get("WHATSAPP_ACCESS_TOKEN", "")
        self._app_secret = context.secret(settings.app_secret) or context.env.get("WHATSAPP_APP_SECRET", "")
        self._verify_token = context.secret(settings.verify_token) or ""
        self._number = settings.phone_number_id
        if not self._app_secret:
            hint = f"copy it {APP_PAGE}: App settings, Basic, App secret; without it anybody could write as anybody"
            raise ConfigError("the app secret of WhatsApp is missing: set appSecret", hint=hint)
        if not token:
            raise ConfigError("the access token of WhatsApp is missing: set accessToken", hint=f"make one {APP_PAGE}")
        if not (self._number.isascii() and self._number.isdecimal()):
            hint = f"copy it {APP_PAGE}: WhatsApp, API Setup, Phone number ID (it is not the number itself)"
            raise ConfigError("phoneNumberId of WhatsApp is not a number: set it", hint=hint)
        self.webhook_paths = (settings.webhook_path,)
        self._graph = GraphClient(settings.api_root, token)
        self._retry = settings.retry.policy()
        self._inbox: ChannelInbox | None = None
        self._requests = 0
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._last: dict[str, str] = {}  # the last message of a chat: typing is shown below it
        self._pressed: dict[str, str] = {}

    async def run(self, inbox: ChannelInbox) -> None:
        try:
            try:
                found = await retry_request(self.context, self._retry, self._identity)
            except (AccessTokenRefused, JobRefused) as error:
                raise ConfigError(
                    error.message, hint=error.hint or f"compare the settings with those {APP_PAGE}"
                ) from None
            self._inbox = inbox
            inbox.connected(found)
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        finally:
            self._inbox = None
            await self._graph.close()

    async def _identity(self) -> str:
        found = await self._graph.get(self._number, fields="display_phone_number,verified_name")
        return " ".join(filter(None, (found.display_phone_number, found.verified_name))) or self._number

    # What arrives

    async def handle(self, request: ChannelRequest) -> ChannelResponse:
        if request.method == "GET":
            return self._subscribe(request.query)
        if request.method != "POST":
            return _refusal(405, "WhatsApp posts")
        if not self._is_signed(request):
            return _refusal(401, "the signature is missing or wrong")
        try:
            updates = read_updates(request.body, self._number)
        except BadRequest as error:
            log.warning("a post of WhatsApp makes no sense: %s", error)
            return _refusal(400, str(error))
        inbox = self._inbox
        if inbox is None or self._requests >= MOST_REQUESTS:
            return _refusal(503, "try again later")
        self._requests += 1
        try:
            return await self._take(inbox, updates)
        finally:
            self._requests -= 1

    def _subscribe(self, query: Mapping[str, str]) -> ChannelResponse:
        """Meta asks once, when the webhook is set up, whether it is ours."""
        said = query.get("hub.verify_token", "")
        is_right = bool(self._verify_token) and _equal(said, self._verify_token)
        if query.get("hub.mode") != "subscribe" or not is_right:
            return _refusal(403, "the verify token is wrong, or verifyToken is not set")
        return ChannelResponse(body=query.get("hub.challenge", "")[:200].encode())

    def _is_signed(self, request: ChannelRequest) -> bool:
        said = request.headers.get("x-hub-signature-256", "")
        return _equal(said, f"sha256={hmac.new(self._app_secret.encode(), request.body, 'sha256').hexdigest()}")

    async def _take(self, inbox: ChannelInbox, updates: list[WhatsAppUpdate]) -> ChannelResponse:
        chats: dict[str, list[WhatsAppUpdate]] = {}
        for update in updates:
            said = update[1]
            chats.setdefault(said.to if isinstance(said, FailedMessage) else said.peer.id, []).append(update)
        work = (self._take_chat(inbox, chat, of_chat) for chat, of_chat in chats.items())
        failed = [each for each in await asyncio.gather(*work, return_exceptions=True) if each is not None]
        for error in failed:
            if not isinstance(error, QueueFull | StorageError | HolderLost):
                raise error
        if failed:
            log.warning("a post of WhatsApp was not taken; it will come again: %s", failed[0])
            return _refusal(503, "try again later")
        return ChannelResponse()

    async def _take_chat(self, inbox: ChannelInbox, chat: str, updates: list[WhatsAppUpdate]) -> None:
        """In order, also if WhatsApp posts the next message before this one is stored."""
        async with self._order.setdefault(chat, asyncio.Lock()):
            for wamid, update in updates:
                if isinstance(update, FailedMessage):
                    await inbox.report_failure(update.to, wamid, update.why)
                    continue
                _keep(self._last, chat, wamid)
                if not isinstance(update, ButtonPress):
                    await inbox.receive(update)
                elif wamid not in self._pressed:
                    shown = await inbox.press(update)
                    _keep(self._pressed, wamid, "")
                    await self._show(update, shown)

    async def _show(self, press: ButtonPress, text: str) -> None:
        """Answers a press with a message, as WhatsApp has no other way. If that fails, the press still counts."""
        if not text:
            return
        try:
            await self._post(ChatTarget(press.peer.id), _text(text[:TEXT]), press.message)
        except (JobError, WebError) as error:
            log.warning("the answer to a pressed button could not be sent to WhatsApp: %s", error)

    # What is sent

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        contents = await self._contents(part)
        sent = ""
        for content in contents:
            try:
                sent = await self._post_again(target, content, "" if sent else part.reply_to)
            except JobError as error:
                if not sent:
                    raise
                raise WebError(f"only a part of the message was sent to WhatsApp: {error.message}") from error
        return sent

    async def _contents(self, part: OutgoingPart) -> list[dict[str, Any]]:
        """The messages of WhatsApp that a part becomes: several, if there is too much text for a caption."""
        text, contents = part.text, []
        if part.file:
            is_caption = len(text) <= BODY and not part.buttons
            file = await self._uploaded(part.file, text if is_caption else "")
            text = "" if "caption" in file[file["type"]] else text
            contents.append(file)
        if part.buttons:
            if len(text) > BODY:
                contents.append(_text(text))
            contents.append(_choice(part.buttons, text if 0 < len(text) <= BODY else CHOOSE))
        elif text:
            contents.insert(0, _text(text))
        if not contents:
            raise JobRefused("there is nothing to send")
        return contents

    async def _uploaded(self, file: OutgoingFile, caption: str) -> dict[str, Any]:
        kind, mime_type = _media_type(file)
        data = {"messaging_product": "whatsapp", "type": mime_type}

        async def upload() -> str:
            try:
                files = {"file": (file.name, file.data, mime_type)}
                found = (await self._graph.post(f"{self._number}/media", data=data, files=files)).id
            except WebError as error:  # whatever came of it, no message was sent
                raise JobFailed(error.message) from error
            if not found:
                raise JobFailed("WhatsApp took a file and did not say under which id")
            return found

        media = {"id": await retry_request(self.context, self._retry, upload)}
        if caption and kind != "audio":
            media["caption"] = caption
        if kind == "document":
            media["filename"] = file.name
        return {"type": kind, kind: media}

    async def _post_again(self, target: ChatTarget, content: dict[str, Any], reply_to: str = "") -> str:
        return await retry_request(self.context, self._retry, lambda: self._post(target, content, reply_to))

    async def _post(self, target: ChatTarget, content: dict[str, Any], reply_to: str = "") -> str:
        # A person who hides their number has an id with a dot in it, such as US.1349.
        to = {"recipient" if "." in target.to else "to": target.to}
        body: dict[str, Any] = {"messaging_product": "whatsapp", "recipient_type": "individual", **to, **content}
        if reply_to:
            body["context"] = {"message_id": reply_to}
        answer = await self._graph.post(f"{self._number}/messages", json=body)
        if not answer.messages:
            raise WebError("WhatsApp's answer does not name the message that was sent")
        return answer.messages[0].id

    async def react(self, target: ChatTarget, message_id: str, emoji: str) -> None:
        reaction = {"message_id": message_id, "emoji": emoji}
        await self._post_again(target, {"type": "reaction", "reaction": reaction})

    async def typing(self, target: ChatTarget) -> None:
        """WhatsApp shows it below a message, which it marks as read."""
        if last := self._last.get(target.to):
            read = {"messaging_product": "whatsapp", "status": "read", "message_id": last}
            await self._graph.post(f"{self._number}/messages", json={**read, "typing_indicator": {"type": "text"}})

    async def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        found = await self._graph.get(quote(file.ref, safe=""), phone_number_id=self._number)
        async for piece in self._graph.content(found.url):
            yield piece

    # What a person asks

    async def check(self) -> tuple[ChannelCheck, ...]:
        try:
            number = ChannelCheck("number", True, await self._identity())
            return number, await self._check_webhook()
        except (JobError, WebError) as error:
            return (ChannelCheck("number", False, error.message, error.hint or "try again later"),)
        finally:
            if self._inbox is None:
                await self._graph.close()

    async def _check_webhook(self) -> ChannelCheck:
        """Raises what requests raise, but for a token that may send and may not look at the settings."""
        try:
            found = (await self._graph.get(self._number, fields="webhook_configuration")).webhook_configuration
        except JobRefused as error:
            return ChannelCheck("webhook", True, f"not known: {error.message}", error.hint)
        levels = ("phone_number", "whatsapp_business_account", "application")  # the first that is set gets the posts
        url = next(filter(None, map(found.get, levels)), "")
        path = self.webhook_paths[0]
        hint = (
            f"{APP_PAGE}, WhatsApp, Configuration: enter the gateway's public address with {path}; subscribe messages"
        )
        if not url:
            return ChannelCheck("webhook", False, "WhatsApp has no address to post messages to", hint)
        is_ours = urlsplit(url).path.rstrip("/").endswith(path.rstrip("/"))
        return ChannelCheck("webhook", is_ours, f"WhatsApp posts messages to {url[:200]}", "" if is_ours else hint)


def _refusal(status: int, why: str) -> ChannelResponse:
    return ChannelResponse(status, why[:300].encode())


def _equal(said: str, right: str) -> bool:
    return hmac.compare_digest(said.encode("utf-8", "replace"), right.encode())


def _keep(kept: dict[str, str], key: str, value: str) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": {"preview_url": False, "body": text}}


def _choice(buttons: tuple[Button, ...], body: str) -> dict[str, Any]:
    """Up to three buttons, else a list that a button opens."""
    if len(buttons) > LIST_ROWS:
        raise JobRefused(f"WhatsApp shows at most {LIST_ROWS} buttons; there are {len(buttons)}")
    action: dict[str, Any]
    if len(buttons) <= REPLY_BUTTONS:
        kind = "button"
        replies = [{"id": each.value, "title": _label(each, REPLY_LABEL)} for each in buttons]
        action = {"buttons": [{"type": "reply", "reply": each} for each in replies]}
    else:
        kind = "list"
        rows = [{"id": each.value, "title": _label(each, ROW_LABEL)} for each in buttons]
        action = {"button": CHOOSE, "sections": [{"rows": rows}]}
    return {"type": "interactive", "interactive": {"type": kind, "body": {"text": body}, "action": action}}


def _label(button: Button, most: int) -> str:
    return button.label if len(button.label) <= most else button.label[: most - 1] + "…"


def _media_type(file: OutgoingFile) -> tuple[str, str]:
    """As what WhatsApp shows a file, and the type that it is uploaded as: of texts it takes plain ones only."""
    mime_type = file.mime_type.partition(";")[0].strip().lower()
    if mime_type in IMAGES and len(file.data) <= LARGEST_IMAGE:
        return "image", mime_type
    if mime_type in VIDEOS:
        return "video", mime_type
    if mime_type.startswith("audio/"):
        return "audio", file.mime_type  # with its codec: ogg is taken with opus only
    is_text = mime_type.startswith("text/") or mime_type in TEXTUAL
    return "document", "text/plain" if is_text else mime_type
