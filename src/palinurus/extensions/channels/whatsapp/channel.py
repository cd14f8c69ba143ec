"""WhatsApp by Meta's Cloud API: messages come by a signed webhook, and go out by the Graph API.

Direct chats only. A person must have written within the last 24 hours; then WhatsApp takes any message. Sent messages
cannot be changed or deleted, and WhatsApp knows no idempotency keys.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

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
    JobError,
    JobFailed,
    JobRefused,
    WebError,
)
from palinurus.extensions.channels.intake import BoundedDict, PostIntake, is_same, refusal
from palinurus.extensions.channels.requests import file_form
from palinurus.extensions.channels.settings import WhatsAppSettings, required_secret
from palinurus.extensions.channels.whatsapp.graph import AccessTokenRefused, GraphClient
from palinurus.extensions.channels.whatsapp.updates import FailedMessage, WhatsAppUpdate, read_updates
from palinurus.text.markdown import TextLimits

log = logging.getLogger(__name__)

TEXT, BODY = 4096, 1024  # characters of a message; above buttons
REPLY_BUTTONS, REPLY_LABEL = 3, 20
LIST_ROWS, ROW_LABEL = 10, 24
CHOOSE = "▾"  # the button that opens a list, and the body below a long text
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
        self._verify_token = context.secret(settings.verify_token) or ""
        self._number = settings.phone_number_id
        hint = f"copy it {APP_PAGE}: App settings, Basic, App secret; without it anybody could write as anybody"
        self._app_secret = required_secret(context, settings.app_secret, "appSecret", hint, "WHATSAPP_APP_SECRET")
        hint = f"make one {APP_PAGE}"
        token = required_secret(context, settings.access_token, "accessToken", hint, "WHATSAPP_ACCESS_TOKEN")
        if not (self._number.isascii() and self._number.isdecimal()):
            hint = f"copy it {APP_PAGE}: WhatsApp, API Setup, Phone number ID (it is not the number itself)"
            raise ConfigError("phoneNumberId of WhatsApp is not a number: set it", hint=hint)
        self.webhook_paths = (settings.webhook_path,)
        self._graph = GraphClient(settings.api_root, token)
        self._retry = settings.retry.policy()
        self._posts = PostIntake(log)
        self._last: BoundedDict[str, str] = BoundedDict(MOST_KEPT)  # message of a chat: typing is shown below it
        self._pressed: BoundedDict[str, bool] = BoundedDict(MOST_KEPT)

    async def run(self, inbox: ChannelInbox) -> None:
        async with self._graph.opened():
            try:
                found = await retry_request(self.context, self._retry, self._identity)
            except (AccessTokenRefused, JobRefused) as error:
                hint = error.hint or f"compare the settings with those {APP_PAGE}"
                raise ConfigError(error.message, hint=hint) from None
            self._posts.inbox = inbox
            inbox.connected(found)
            try:
                await asyncio.Event().wait()  # until it is cancelled
            finally:
                self._posts.inbox = None

    async def _identity(self) -> str:
        found = await self._graph.get(self._number, fields="display_phone_number,verified_name")
        return " ".join(filter(None, (found.display_phone_number, found.verified_name))) or self._number

    # What arrives

    async def handle(self, request: ChannelRequest) -> ChannelResponse:
        if request.method == "GET":
            return self._subscribe(request.query)
        if request.method != "POST":
            return refusal(405, "WhatsApp posts")
        if not self._is_signed(request):
            return refusal(401, "the signature is missing or wrong")
        try:
            updates = read_updates(request.body, self._number)
        except BadRequest as error:
            log.warning("a post of WhatsApp makes no sense: %s", error)
            return refusal(400, str(error))
        chats: dict[str, list[WhatsAppUpdate]] = {}
        for update in updates:
            said = update[1]
            chats.setdefault(said.to if isinstance(said, FailedMessage) else said.peer.id, []).append(update)
        return await self._posts.take({chat: partial(self._take, chat, own) for chat, own in chats.items()})

    def _subscribe(self, query: Mapping[str, str]) -> ChannelResponse:
        """Meta asks once, when the webhook is set up, whether it is ours."""
        said = query.get("hub.verify_token", "")
        is_right = bool(self._verify_token) and is_same(said, self._verify_token)
        if query.get("hub.mode") != "subscribe" or not is_right:
            return refusal(403, "the verify token is wrong, or verifyToken is not set")
        return ChannelResponse(body=query.get("hub.challenge", "")[:200].encode())

    def _is_signed(self, request: ChannelRequest) -> bool:
        said = request.headers.get("x-hub-signature-256", "")
        return is_same(said, f"sha256={hmac.new(self._app_secret.encode(), request.body, 'sha256').hexdigest()}")

    async def _take(self, chat: str, updates: list[WhatsAppUpdate], inbox: ChannelInbox) -> None:
        for wamid, update in updates:
            if isinstance(update, FailedMessage):
                await inbox.report_failure(update.to, wamid, update.why)
                continue
            self._last[chat] = wamid
            if not isinstance(update, ButtonPress):
                await inbox.receive(update)
            elif wamid not in self._pressed:
                shown = await inbox.press(update)
                self._pressed[wamid] = True
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
        """The messages of WhatsApp that a part becomes: two, if there is too much text above buttons."""
        if part.file:
            return [await self._uploaded(part.file)]
        if not part.text:
            raise JobRefused("there is nothing to send")
        if part.buttons and len(part.text) <= BODY:
            return [_choice(part.buttons, part.text)]
        return [_text(part.text), *([_choice(part.buttons, CHOOSE)] if part.buttons else ())]

    async def _uploaded(self, file: OutgoingFile) -> dict[str, Any]:
        kind, mime_type = _media_type(file)

        async def upload() -> str:
            form, _ = file_form("file", file, mime_type)
            form.add_fields(("messaging_product", "whatsapp"), ("type", mime_type))
            try:
                found = (await self._graph.post(f"{self._number}/media", data=form)).id
            except WebError as error:  # whatever came of it, no message was sent
                raise JobFailed(error.message) from error
            if not found:
                raise JobFailed("WhatsApp took a file and did not say under which id")
            return found

        media = {"id": await retry_request(self.context, self._retry, upload)}
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
            async with self._graph.opened():
                number = ChannelCheck("number", True, await self._identity())
                return number, await self._check_webhook()
        except (JobError, WebError) as error:
            return (ChannelCheck("number", False, error.message, error.hint or "try again later"),)

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
