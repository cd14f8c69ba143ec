"""The Slack adapter: messages, buttons, reactions and files of one bot."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from weakref import WeakValueDictionary

import aiohttp
import msgspec

from palinurus.config.section import Secret
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
    OutgoingFile,
    OutgoingPart,
    ReceivedFile,
)
from palinurus.dispatch.settings import DEFAULT_ACCOUNT
from palinurus.domain.errors import (
    ConfigError,
    HolderLost,
    JobFailed,
    JobRefused,
    PalinurusError,
    QueueFull,
    StorageError,
    WebError,
)
from palinurus.extensions.channels.settings import SlackSettings
from palinurus.extensions.channels.slack.api import (
    BAD_MARKUP,
    TRANSFER_TIMEOUT,
    WHERE_TOKENS_ARE,
    SlackApi,
    SlackRefusal,
    SlackTokenRefusal,
    scope_hint,
)
from palinurus.extensions.channels.slack.events import (
    BoundedDict,
    SlackActionPayload,
    SlackDirectory,
    SlackEventReader,
    parse_update,
)
from palinurus.extensions.channels.slack.manifest import SCOPES
from palinurus.extensions.channels.slack.sockets import SocketMode
from palinurus.text.markdown import TextLimits

log = logging.getLogger(__name__)

NOT_TAKEN = (QueueFull, StorageError, HolderLost)
SIGNATURE_SECONDS = 300
SECTION_SIZE = 3_000  # characters of one block of text
LABEL_SIZE = 75
PIECE = 64 * 1024
TS = re.compile(r"\d+\.\d+")
EMOJI = {
    "👀": "eyes", "✅": "white_check_mark", "✔": "heavy_check_mark", "❌": "x", "⚠": "warning", "🛑": "octagonal_sign",
    "👍": "+1", "👎": "-1", "👌": "ok_hand", "🙏": "pray", "👏": "clap", "✍": "writing_hand", "💯": "100", "🎉": "tada",
    "⏳": "hourglass_flowing_sand", "⌛": "hourglass", "🤔": "thinking_face", "🔥": "fire", "❤": "heart", "⚡": "zap",
    "🚀": "rocket", "😂": "joy", "😢": "cry", "😱": "scream", "😨": "fearful", "🥱": "yawning_face", "🧠": "brain",
    "🛠": "hammer_and_wrench", "💻": "computer", "👨‍💻": "male-technologist", "🌐": "globe_with_meridians",
    "❓": "question", "💡": "bulb", "🔍": "mag",
}  # fmt: skip


class SlackChannel(Channel):
    """One bot in one workspace."""

    capabilities: ClassVar = ChannelCapabilities(
        limits=TextLimits(4_000),
        dialect="slack",
        edits=True,
        buttons=True,
        reactions=True,
        threads=True,
        media=True,
        repeatable=False,  # chat.postMessage has no documented key under which a repetition is recognised
    )

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self.settings = settings = context.settings(SlackSettings)
        token = self._secret(settings.bot_token, "botToken", "SLACK_BOT_TOKEN")
        self._app_token = self._signing_secret = ""
        if settings.mode == "http":
            self._signing_secret = self._secret(settings.signing_secret, "signingSecret", "SLACK_SIGNING_SECRET")
            self.webhook_paths = (settings.webhook_path,)
        else:
            self._app_token = self._secret(settings.app_token, "appToken", "SLACK_APP_TOKEN")
        self._api = SlackApi(context, settings, token)
        self._directory = SlackDirectory(self._api)
        self._reader: SlackEventReader | None = None
        self._inbox: ChannelInbox | None = None
        self._own = ""
        self._received: BoundedDict[str, bool] = BoundedDict(5_000)  # a mention comes as two events, others again
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _secret(self, value: Secret | None, key: str, variable: str) -> str:
        own = self.context.env.get(variable, "") if self.context.account == DEFAULT_ACCOUNT else ""
        if not (found := self.context.secret(value) or own):
            raise ConfigError(
                f"channels.slack.{key} of account {self.context.account} is not set", hint=WHERE_TOKENS_ARE
            )
        return found

    # -- receiving

    async def run(self, inbox: ChannelInbox) -> None:
        async with self._api.stay_connected():
            try:
                bot = await self._api.ask("auth.test")
                self._own = str(bot.get("user_id") or "")
                self._reader = SlackEventReader(self._directory, self._own)
                self._inbox = inbox
                identity = f"@{bot.get('user') or self._own}"
                if self.settings.mode == "socket":
                    await SocketMode(self.context, self._api, self._app_token, self._take).run(inbox, identity)
                else:
                    inbox.connected(identity)
                    await asyncio.Event().wait()
            except (SlackTokenRefusal, SlackRefusal) as error:
                raise ConfigError(error.message, hint=error.hint or WHERE_TOKENS_ARE) from None
            finally:
                self._inbox = None

    async def handle(self, request: ChannelRequest) -> ChannelResponse:
        if not self._is_signed(request):
            return ChannelResponse(401, b"the signature is wrong or too old")
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            form = {name: values[0] for name, values in parse_qs(request.body.decode("utf-8", "replace")).items()}
            kind, body = ("interactive", form["payload"].encode()) if "payload" in form else ("slash_commands", b"")
            body = body or msgspec.json.encode(form)
        else:
            kind, body = "events_api", request.body
            if challenge := _challenge(body):
                return ChannelResponse(200, challenge)
        return ChannelResponse(200 if await self._take(kind, body) else 503)

    def _is_signed(self, request: ChannelRequest) -> bool:
        stamp = request.headers.get("x-slack-request-timestamp", "")
        signature = request.headers.get("x-slack-signature", "").encode("utf-8", "replace")
        signed = b"v0:" + stamp.encode("utf-8", "replace") + b":" + request.body
        right = b"v0=" + hmac.new(self._signing_secret.encode(), signed, hashlib.sha256).hexdigest().encode()
        if not hmac.compare_digest(signature, right):
            return False
        return stamp.isdecimal() and abs(self.context.clock.now_ms() / 1000 - int(stamp)) <= SIGNATURE_SECONDS

    async def _take(self, kind: str, payload: bytes) -> bool:
        """False: it was not taken, and Slack must deliver it again."""
        if self._inbox is None or self._reader is None:
            return False
        try:
            update = parse_update(kind, payload)
        except ValueError as error:  # msgspec's errors are such
            log.warning("an update of Slack makes no sense: %s", error)
            return True
        try:
            if isinstance(update, SlackActionPayload):
                await self._press(update, self._inbox, self._reader)
            elif update is not None:
                async with self._in_order(update.chat):
                    await self._pass_on(await self._reader.read(update), self._inbox)
        except NOT_TAKEN as error:
            log.warning("Slack must deliver an update again: %s", error)
            return False
        except Exception:  # the edge of the adapter: one update must not stop the others
            log.exception("an update of Slack could not be handled")
            return False
        return True

    async def _pass_on(self, message: ChannelMessage | None, inbox: ChannelInbox) -> None:
        if message is not None and message.update not in self._received:
            await inbox.receive(message)
            self._received[message.update] = True

    async def _press(self, payload: SlackActionPayload, inbox: ChannelInbox, reader: SlackEventReader) -> None:
        press = await reader.press(payload)
        if press is None:
            return
        shown = await inbox.press(press)
        if not (shown and payload.response_url):
            return
        # The address itself is the permission; the token does not go there.
        reply = {"response_type": "ephemeral", "replace_original": False, "text": _escape(shown)}
        try:
            async with self._api.connect() as session, session.post(payload.response_url, json=reply) as answer:
                await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            log.warning("Slack did not take the answer to a pressed button: %s", type(error).__name__)

    def _in_order(self, chat: str) -> asyncio.Lock:
        """One update of a chat after the other: a lock serves those who wait in their order."""
        lock = self._orders.get(chat) or asyncio.Lock()
        self._orders[chat] = lock
        return lock

    # -- sending

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        chat = await self._directory.conversation(target.to)
        thread = target.thread or (part.reply_to if TS.fullmatch(part.reply_to) else "")
        if part.file:
            return await self._send_file(chat, thread, part, part.file)
        where = {"channel": chat, "unfurl_links": False, "unfurl_media": False}
        answer = await self._write("chat.postMessage", part, where | ({"thread_ts": thread} if thread else {}))
        if not isinstance(sent := answer.get("ts"), str):
            raise PalinurusError("Slack's answer lacks the message's time, so the message may have arrived")
        return sent

    async def edit(self, target: ChatTarget, message_id: str, part: OutgoingPart) -> None:
        chat = await self._directory.conversation(target.to)
        await self._write("chat.update", part, {"channel": chat, "ts": message_id})

    async def _write(self, method: str, part: OutgoingPart, where: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._api.ask(method, where | _body(part, part.text or _escape(part.plain)), posts=True)
        except SlackRefusal as error:
            if error.code not in BAD_MARKUP:
                raise
        plain = _body(part, _escape(part.plain)) | {"mrkdwn": False}
        return await self._api.ask(method, where | plain, posts=True)

    async def _send_file(self, chat: str, thread: str, part: OutgoingPart, file: OutgoingFile) -> str:
        """Returns the id of the file: Slack says the message's only later."""
        place = await self._api.ask("files.getUploadURLExternal", {"filename": file.name, "length": len(file.data)})
        await self._upload(str(place.get("upload_url") or ""), file)
        name = str(place.get("file_id") or "")
        done = {"files": [{"id": name, "title": file.name}], "channel_id": chat}
        more = {"initial_comment": part.text, "thread_ts": thread}
        done |= {key: value for key, value in more.items() if value}
        await self._api.ask("files.completeUploadExternal", done, posts=True)
        return name

    async def _upload(self, url: str, file: OutgoingFile) -> None:
        """Nobody sees the file before the upload is completed, so every failure is certain."""
        try:
            async with (
                self._api.connect() as session,
                session.post(url, data=file.data, timeout=TRANSFER_TIMEOUT) as answer,
            ):
                await answer.read()
                if answer.status != 200:
                    raise JobFailed(f"Slack did not take the file {file.name}: {answer.status}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise JobFailed(f"Slack did not take the file {file.name}: {type(error).__name__}") from None

    async def delete(self, target: ChatTarget, message_id: str) -> None:
        chat = await self._directory.conversation(target.to)
        await self._api.ask("chat.delete", {"channel": chat, "ts": message_id}, done="message_not_found")

    async def react(self, target: ChatTarget, message_id: str, emoji: str) -> None:
        if not TS.fullmatch(message_id):
            return  # a slash command: there is no message
        place = {"channel": await self._directory.conversation(target.to), "timestamp": message_id}
        if not emoji:
            said = (await self._api.ask("reactions.get", place | {"full": "true"})).get("message") or {}
            mine = [each["name"] for each in said.get("reactions", ()) if self._own in each["users"]]
            for name in mine:
                await self._api.ask("reactions.remove", place | {"name": name}, done="no_reaction")
        elif name := EMOJI.get(emoji.rstrip("\ufe0f")):
            await self._api.ask("reactions.add", place | {"name": name}, done="already_reacted")
        else:
            raise JobRefused(f"Slack's name of {emoji} is not known here")

    # -- files

    async def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        url = file.ref
        if "://" not in url:
            said = await self._api.ask("files.info", {"file": url})
            url = str((said.get("file") or {}).get("url_private") or "")
        if not self._is_of_slack(url):
            raise WebError(f"the file {file.name} is not kept by Slack, so it is not fetched")
        headers = {"Authorization": f"Bearer {self._api.token}"}  # aiohttp drops it when it is redirected elsewhere
        try:
            async with (
                self._api.connect() as session,
                session.get(url, headers=headers, max_redirects=3, timeout=TRANSFER_TIMEOUT) as answer,
            ):
                # Without the permission Slack shows its page for signing in.
                if answer.status != 200 or (answer.content_type == "text/html" and "html" not in file.mime_type):
                    raise WebError(f"Slack refuses the file {file.name}", hint=scope_hint("files:read"))
                async for piece in answer.content.iter_chunked(PIECE):
                    yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise WebError(f"the file {file.name} of Slack did not come: {type(error).__name__}") from None

    def _is_of_slack(self, url: str) -> bool:
        """Whether the token may go there."""
        there, root = urlsplit(url), urlsplit(self._api.root)
        if (there.scheme, there.netloc) == (root.scheme, root.netloc):
            return True
        return there.scheme == "https" and bool(re.fullmatch(r"[a-z0-9.-]+\.slack\.com", there.netloc))

    # -- checking

    async def check(self) -> tuple[ChannelCheck, ...]:
        granted = ""

        async def identify() -> str:
            nonlocal granted
            bot = await self._api.ask("auth.test")
            granted = bot["granted"]
            return f"@{bot.get('user')} in {bot.get('team')}"

        async def compare_scopes() -> str:
            if lacking := ", ".join(each for each in SCOPES if each not in granted.replace(" ", "").split(",")):
                raise SlackRefusal(f"missing: {lacking}", hint=scope_hint(lacking))
            return "all there"

        async def open_socket() -> str:
            await self._api.ask("apps.connections.open", token=self._app_token)
            return "events arrive by WebSocket"

        async with self._api.connect():
            checks = [await _checked("bot token", identify)]
            if checks[0].ok:
                checks.append(await _checked("scopes", compare_scopes))
            if self.settings.mode == "socket":
                checks.append(await _checked("Socket Mode", open_socket))
        return tuple(checks)


async def _checked(name: str, request: Callable[[], Awaitable[str]]) -> ChannelCheck:
    try:
        return ChannelCheck(name, True, await request())
    except PalinurusError as error:
        return ChannelCheck(name, False, error.message, error.hint or "try again later")


def _challenge(body: bytes) -> bytes:
    """What Slack wants to hear once, when the address is entered."""
    try:
        said = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return b""
    return str(said.get("challenge", "")).encode() if said.get("type") == "url_verification" else b""


def _body(part: OutgoingPart, text: str) -> dict[str, Any]:
    """Text and buttons. An empty list takes buttons away that a message has had."""
    if not part.buttons:
        return {"text": text, "blocks": []}
    sections = [{"type": "section", "text": {"type": "mrkdwn", "text": piece}} for piece in _cut(text)]
    buttons = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": button.label[:LABEL_SIZE]},
            "value": button.value,
            "action_id": f"press-{number}",
        }
        for number, button in enumerate(part.buttons)
    ]
    return {"text": text, "blocks": [*sections, {"type": "actions", "elements": buttons}]}


def _cut(text: str) -> Iterator[str]:
    """Pieces that fit a block, cut at ends of lines where there are any."""
    start = 0
    while len(text) - start > SECTION_SIZE:
        end = text.rfind("\n", start + 1, start + SECTION_SIZE)
        end = end if end > 0 else start + SECTION_SIZE
        yield text[start:end]
        start = end
    yield text[start:]


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
