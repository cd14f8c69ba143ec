"""A channel for programs of one's own: JSON by signed requests in both directions.

Both sign as standardwebhooks.com describes, for which there are libraries in many languages: `webhook-signature` is
`v1,` and the HMAC-SHA256, in base64, of `webhook-id`.`webhook-timestamp`.body under the secret that both share. A
secret that begins with `whsec_` is base64.

The program posts `IncomingMessage` to `webhookPath`, and again while it is not answered with 200. It gets
`ProgramMessage` at `sendUrl`, and answers with any 2xx, and if it likes with the message's id: {"id": "…"}. The
header `Idempotency-Key` (the same as `webhook-id`) tells it that it has got a message before.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from palinurus.dispatch.channels import (
    Channel,
    ChannelCapabilities,
    ChannelCheck,
    ChannelContext,
    ChannelInbox,
    ChannelMessage,
    ChannelRequest,
    ChannelResponse,
    ChatTarget,
    OutgoingPart,
    QuotedMessage,
    ReceivedFile,
    retry_request,
)
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import (
    AddressRefused,
    BadRequest,
    ConfigError,
    JobError,
    JobFailed,
    JobRefused,
    WebError,
)
from palinurus.extensions.channels.intake import PostIntake, file_kind, is_same, refusal
from palinurus.extensions.channels.settings import WebhookChannelSettings
from palinurus.providers.provider import LOOPBACK_HOSTS
from palinurus.text.markdown import TextLimits
from palinurus.tools.settings import FetchSettings
from palinurus.tools.web.client import Client, HttpReply
from palinurus.tools.web.guard import AddressGuard, WebAddress, parse_address

log = logging.getLogger(__name__)

WINDOW_SECONDS = 300  # how old a signed request may be, and how far a clock may be off
MOST_SIGNATURES = 16  # of one request: there are several while a secret is changed
SHORTEST_SECRET = 16  # bytes
SEND_SECONDS = 60.0
MOST_ANSWER = 64 * 1024  # bytes
PIECE = 64 * 1024  # characters of base64, a multiple of four
PASSING = (408, 425, 429, 503)  # statuses that say that the request was not acted on, for now
PREFIX = "whsec_"

Id = Annotated[str, Meta(min_length=1, max_length=256)]


class IncomingFile(Struct, frozen=True, rename="camel"):
    data: bytes  # base64
    name: Annotated[str, Meta(max_length=256)] = ""
    mime_type: Annotated[str, Meta(max_length=128)] = ""


class IncomingQuote(Struct, frozen=True, rename="camel"):
    """The message that is answered; `own`: the agent wrote it."""

    id: Id
    sender: str = ""
    sender_name: str = ""
    text: str = ""
    own: bool = False


class IncomingMessage(Struct, frozen=True, rename="camel"):
    """What a program posts. Without a `chat` the message is of the direct chat with its sender."""

    id: Id  # of the message in its chat; the same again is the same message
    sender: Id
    text: str = ""
    sender_name: Annotated[str, Meta(max_length=256)] = ""
    chat: Annotated[str, Meta(max_length=256)] = ""
    kind: Literal["direct", "group", "channel", ""] = ""
    thread: Annotated[str, Meta(max_length=256)] = ""
    mentioned: bool = False  # whether it speaks to the agent; for groups
    reply_to: IncomingQuote | None = None
    files: Annotated[tuple[IncomingFile, ...], Meta(max_length=16)] = ()


class ProgramFile(Struct, frozen=True, rename="camel"):
    name: str
    mime_type: str
    data: bytes  # base64


class ProgramMessage(Struct, frozen=True, rename="camel", omit_defaults=True, tag_field="type", tag="message"):
    """What a program gets: a message for a chat."""

    to: str
    text: str
    thread: str = ""
    reply_to: str = ""
    silent: bool = False
    files: tuple[ProgramFile, ...] = ()


class ConnectionTest(Struct, frozen=True, tag_field="type", tag="check"):
    """What a program gets when a person checks the connection: a 2xx is enough."""


class Receipt(Struct, frozen=True):
    id: str = ""


class WebhookChannel(Channel):
    """One program."""

    capabilities = ChannelCapabilities(TextLimits(16_000), threads=True, media=True, repeatable=True)

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        settings = context.settings(WebhookChannelSettings)
        self._secret = _secret_bytes(context.secret(settings.secret) or "")
        try:
            self._target = parse_address(settings.send_url)
        except AddressRefused as error:
            raise ConfigError(f"sendUrl of the webhook channel: {error.message}", hint=error.hint) from None
        self.webhook_paths = (settings.webhook_path,)
        self._retry = settings.retry.policy()
        # The owner has named this machine; what else is private is reached as web_fetch may reach it.
        own = (self._target.authority,) if self._target.host in LOOPBACK_HOSTS else ()
        self._client = Client(AddressGuard((*context.config.section(FetchSettings).allow_private, *own)))
        self._posts = PostIntake(log)

    async def run(self, inbox: ChannelInbox) -> None:
        self._posts.inbox = inbox
        try:
            inbox.connected(self._target.authority)
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        finally:
            self._posts.inbox = None

    async def handle(self, request: ChannelRequest) -> ChannelResponse:
        if request.method != "POST":
            return refusal(405, "messages are posted")
        if why := self._distrust(request.headers, request.body):
            return refusal(401, why)
        try:
            message = _message_of(msgspec.json.decode(request.body, type=IncomingMessage))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRequest) as error:
            log.warning("a message of the webhook channel makes no sense: %.200s", error)
            return refusal(400, f"the body: {error}")
        answer = await self._posts.take({message.peer.id: lambda inbox: inbox.receive(message)})
        return answer if answer.status != 200 else ChannelResponse(body=b"{}", content_type="application/json")

    def _distrust(self, headers: Mapping[str, str], body: bytes) -> str:
        """Why the request cannot be believed; empty if it can."""
        key, time = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not key or not time.isascii() or not time.isdecimal() or len(time) > 12:
            return "the headers webhook-id and webhook-timestamp (in seconds) are missing"
        right = _signature(self._secret, key, time, body)
        said = headers.get("webhook-signature", "").split(" ", MOST_SIGNATURES)[:MOST_SIGNATURES]
        if not any(is_same(each, right) for each in said):
            return "the signature is missing or wrong"
        if abs(self.context.clock.now_ms() / 1000 - int(time)) > WINDOW_SECONDS:
            return f"the request was not signed within the last {WINDOW_SECONDS} seconds"
        return ""

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        file = part.file
        files = (ProgramFile(file.name, file.mime_type, file.data),) if file else ()
        message = ProgramMessage(target.to, part.text, target.thread, part.reply_to, part.silent, files)
        body = msgspec.json.encode(message)
        key = quote(part.idempotency_key, safe=":/")  # a header takes no other letters
        return await retry_request(self.context, self._retry, lambda: self._post(body, key)) or key

    async def _post(self, body: bytes, key: str) -> str:
        """Returns the id that the program gave. After an error once the body was sent, nobody can know."""
        time = str(self.context.clock.now_ms() // 1000)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Idempotency-Key": key}
        headers |= {"webhook-id": key, "webhook-timestamp": time}
        headers["webhook-signature"] = _signature(self._secret, key, time, body)
        is_sent = False

        async def content() -> AsyncIterator[bytes]:
            nonlocal is_sent
            is_sent = True
            yield body

        sending = self._client.request("POST", self._target, headers, most=MOST_ANSWER, content=content())
        try:
            async with asyncio.timeout(SEND_SECONDS), sending as answer:
                return await _receipt(answer, self._target)
        except AddressRefused as error:
            raise JobRefused(error.message, hint=error.hint) from None
        except (WebError, TimeoutError) as error:
            why = str(error) or f"{self._target.host} did not answer within {SEND_SECONDS:g} s"
            raise (WebError(why) if is_sent else JobFailed(why)) from None

    async def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        """A file came with its message: `ref` is its content."""
        for start in range(0, len(file.ref), PIECE):
            yield b64decode(file.ref[start : start + PIECE])
            await asyncio.sleep(0)

    async def check(self) -> tuple[ChannelCheck, ...]:
        try:
            await self._post(msgspec.json.encode(ConnectionTest()), f"check-{self.context.clock.now_ms()}")
        except (JobError, WebError) as error:
            hint = error.hint or 'is the program running, and does it answer {"type": "check"} with a 2xx?'
            return (ChannelCheck("program", False, error.message, hint),)
        return (ChannelCheck("program", True, f"{self._target.authority} answers"),)


def _secret_bytes(secret: str) -> bytes:
    """Raises ConfigError."""
    hint = "set secret to whsec_ and 32 random bytes in base64"
    try:
        data = b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else secret.encode()
    except binascii.Error:
        raise ConfigError("the secret of the webhook channel is not base64 after whsec_", hint=hint) from None
    if not data:
        raise ConfigError("the secret of the webhook channel is missing", hint=hint)
    if len(data) < SHORTEST_SECRET:
        raise ConfigError(f"the secret of the webhook channel has less than {SHORTEST_SECRET} bytes", hint=hint)
    return data


def _signature(secret: bytes, key: str, time: str, body: bytes) -> str:
    signed = hmac.new(secret, f"{key}.{time}.".encode() + body, "sha256")
    return "v1," + b64encode(signed.digest()).decode()


def _message_of(said: IncomingMessage) -> ChannelMessage:
    """Raises BadRequest."""
    chat = said.chat or said.sender
    # A chat that is not said to be direct is none: what is private is not told there.
    kind = said.kind or ("direct" if chat == said.sender else "group")
    if kind != "direct" and not said.chat:
        raise BadRequest("a group or channel needs `chat`")
    if not said.text and not said.files:
        raise BadRequest("there is neither `text` nor `files`")
    quote = said.reply_to
    is_own = quote is not None and quote.own
    return ChannelMessage(
        said.id,
        msgspec.json.encode((chat, said.thread, said.id)).decode(),
        said.sender,
        Peer(chat, kind, said.thread, mentioned=said.mentioned or is_own, sender_name=said.sender_name),
        said.text,
        tuple(map(_file_of, said.files)),
        QuotedMessage(quote.id, quote.sender, quote.sender_name, quote.text, quote.own) if quote else None,
    )


def _file_of(file: IncomingFile) -> ReceivedFile:
    return ReceivedFile(
        file_kind(file.mime_type), b64encode(file.data).decode(), file.name, file.mime_type, len(file.data)
    )


async def _receipt(answer: HttpReply, target: WebAddress) -> str:
    """Raises JobFailed and JobRefused, and WebError for an answer that does not tell."""
    status = answer.status
    if 200 <= status < 300:
        if "json" not in answer.header("content-type"):
            return ""
        try:
            return msgspec.json.decode(await answer.body(MOST_ANSWER) or b"{}", type=Receipt).id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise WebError(f"{target.host} answered HTTP {status} with what is no receipt") from None
    said = f"{target.host} answered HTTP {status}"
    after = answer.header("retry-after")
    if status in PASSING:
        raise JobFailed(said, retry_after=float(after) if after.isdecimal() and len(after) < 9 else None)
    if status >= 500:
        raise WebError(said)
    if status in (401, 403):
        raise JobRefused(said, hint="does the program have the same secret?")
    raise JobRefused(f"{said}; redirects are not followed" if 300 <= status < 400 else said)
