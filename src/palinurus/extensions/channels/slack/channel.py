"""The Slack adapter: messages, buttons, reactions and files of one bot."""

from __future__ import annotations

import asyncio
import hmac
import io
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, ClassVar
from urllib.parse import parse_qs

import msgspec

from palinurus.dispatch.channels import (
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
)
from palinurus.domain.errors import (
    ConfigError,
    JobFailed,
    JobRefused,
    PalinurusError,
    WebError,
)
from palinurus.extensions.channels.intake import BoundedDict, PostIntake, is_same
from palinurus.extensions.channels.settings import SlackSettings, required_secret
from palinurus.extensions.channels.slack.api import (
    BAD_MARKUP,
    WHERE_TOKENS_ARE,
    SlackApi,
    SlackRefusal,
    SlackTokenRefusal,
    scope_hint,
)
from palinurus.extensions.channels.slack.events import (
    SlackActionPayload,
    SlackCommandPayload,
    SlackDirectory,
    SlackEvent,
    SlackEventReader,
    parse_update,
)
from palinurus.extensions.channels.slack.manifest import SCOPES
from palinurus.extensions.channels.slack.sockets import SocketMode
from palinurus.text.markdown import TextLimits

log = logging.getLogger(__name__)

SIGNATURE_SECONDS = 300
SECTION_SIZE = 3_000  # characters of one block of text
LABEL_SIZE = 75
UPLOAD_SECONDS = 60.0
HOSTS = r"[a-z0-9.-]+\.slack\.com"
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
        secret = partial(required_secret, context, hint=WHERE_TOKENS_ARE)
        token = secret(settings.bot_token, "botToken", variable="SLACK_BOT_TOKEN")
        self._app_token = self._signing_secret = ""
        if settings.mode == "http":
            self._signing_secret = secret(settings.signing_secret, "signingSecret", variable="SLACK_SIGNING_SECRET")
            self.webhook_paths = (settings.webhook_path,)
        else:
            self._app_token = secret(settings.app_token, "appToken", variable="SLACK_APP_TOKEN")
        self._api = SlackApi(context, settings, token)
        self._directory = SlackDirectory(self._api)
        self._reader = SlackEventReader(self._directory, "")
        self._posts = PostIntake(log)
        self._own = ""
        self._received: BoundedDict[str, bool] = BoundedDict(5_000)  # a mention comes as two events, others again

    # -- receiving

    async def run(self, inbox: ChannelInbox) -> None:
        async with self._api.opened():
            try:
                bot = await self._api.call("auth.test")
                self._own = str(bot.get("user_id") or "")
                self._reader = SlackEventReader(self._directory, self._own)
                self._posts.inbox = inbox
                identity = f"@{bot.get('user') or self._own}"
                if self.settings.mode == "socket":
                    await SocketMode(self.context, self._api, self._app_token, self._take).run(inbox, identity)
                else:
                    inbox.connected(identity)
                    await asyncio.Event().wait()
            except (SlackTokenRefusal, SlackRefusal) as error:
                raise ConfigError(error.message, hint=error.hint or WHERE_TOKENS_ARE) from None
            finally:
                self._posts.inbox = None

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
        signature = request.headers.get("x-slack-signature", "")
        signed = b"v0:" + stamp.encode("utf-8", "replace") + b":" + request.body
        right = "v0=" + hmac.new(self._signing_secret.encode(), signed, "sha256").hexdigest()
        if not is_same(signature, right):
            return False
        return stamp.isdecimal() and abs(self.context.clock.now_ms() / 1000 - int(stamp)) <= SIGNATURE_SECONDS

    async def _take(self, kind: str, payload: bytes) -> bool:
        """False: it was not taken, and Slack must deliver it again."""
        try:
            update = parse_update(kind, payload)
        except ValueError as error:  # msgspec's errors are such
            log.warning("an update of Slack makes no sense: %s", error)
            return True
        if update is None:
            return True
        if isinstance(update, SlackActionPayload):
            answer = await self._posts.take({"": partial(self._press, update)})
        else:
            answer = await self._posts.take({update.chat: partial(self._pass_on, update)})
        return answer.status == 200

    async def _pass_on(self, update: SlackEvent | SlackCommandPayload, inbox: ChannelInbox) -> None:
        message = await self._reader.read(update)
        if message is not None and message.update not in self._received:
            await inbox.receive(message)
            self._received[message.update] = True

    async def _press(self, payload: SlackActionPayload, inbox: ChannelInbox) -> None:
        press = await self._reader.press(payload)
        if press is None:
            return
        shown = await inbox.press(press)
        if not (shown and payload.response_url):
            return
        # The address itself is the permission; the token does not go there.
        reply = {"response_type": "ephemeral", "replace_original": False, "text": _escape(shown)}
        try:
            await self._api.ask("POST", payload.response_url, json=reply)
        except PalinurusError as error:
            log.warning("Slack did not take the answer to a pressed button: %s", error)

    # -- sending

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        chat = await self._directory.conversation(target.to)
        thread = target.thread or (part.reply_to if TS.fullmatch(part.reply_to) else "")
        if part.file:
            return await self._send_file(chat, thread, part.file)
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
            return await self._api.call(method, where | _body(part, part.text or _escape(part.plain)), posts=True)
        except SlackRefusal as error:
            if error.code not in BAD_MARKUP:
                raise
        plain = _body(part, _escape(part.plain)) | {"mrkdwn": False}
        return await self._api.call(method, where | plain, posts=True)

    async def _send_file(self, chat: str, thread: str, file: OutgoingFile) -> str:
        """Returns the id of the file: Slack says the message's only later."""
        place = await self._api.call("files.getUploadURLExternal", {"filename": file.name, "length": len(file.data)})
        await self._upload(str(place.get("upload_url") or ""), file)
        name = str(place.get("file_id") or "")
        done = {"files": [{"id": name, "title": file.name}], "channel_id": chat}
        done |= {"thread_ts": thread} if thread else {}
        await self._api.call("files.completeUploadExternal", done, posts=True)
        return name

    async def _upload(self, url: str, file: OutgoingFile) -> None:
        """Nobody sees the file before the upload is completed, so every failure is certain."""
        try:
            answer = await self._api.ask("POST", url, data=io.BytesIO(file.data), seconds=UPLOAD_SECONDS)
        except WebError as error:
            raise JobFailed(error.message) from None
        if answer.status != 200:
            raise JobFailed(f"Slack did not take the file {file.name}: {answer.status}")

    async def delete(self, target: ChatTarget, message_id: str) -> None:
        chat = await self._directory.conversation(target.to)
        await self._api.call("chat.delete", {"channel": chat, "ts": message_id}, done="message_not_found")

    async def react(self, target: ChatTarget, message_id: str, emoji: str) -> None:
        if not TS.fullmatch(message_id):
            return  # a slash command: there is no message
        place = {"channel": await self._directory.conversation(target.to), "timestamp": message_id}
        if not emoji:
            said = (await self._api.call("reactions.get", place | {"full": "true"})).get("message") or {}
            mine = [each["name"] for each in said.get("reactions", ()) if self._own in each["users"]]
            for name in mine:
                await self._api.call("reactions.remove", place | {"name": name}, done="no_reaction")
        elif name := EMOJI.get(emoji.rstrip("\ufe0f")):
            await self._api.call("reactions.add", place | {"name": name}, done="already_reacted")
        else:
            raise JobRefused(f"Slack's name of {emoji} is not known here")

    # -- files

    async def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        url = file.ref
        if "://" not in url:
            said = await self._api.call("files.info", {"file": url})
            url = str((said.get("file") or {}).get("url_private") or "")
        if not self._api.is_own(url, HOSTS):
            raise WebError(f"the file {file.name} is not kept by Slack, so it is not fetched")
        headers = {"Authorization": f"Bearer {self._api.token}"}  # aiohttp drops it when it is redirected elsewhere
        refuses = "" if "html" in file.mime_type else "text/html"  # without the permission: its page for signing in
        async for piece in self._api.pieces(url, headers, redirects=3, refuses=refuses, hint=scope_hint("files:read")):
            yield piece

    # -- checking

    async def check(self) -> tuple[ChannelCheck, ...]:
        granted = ""

        async def identify() -> str:
            nonlocal granted
            bot = await self._api.call("auth.test")
            granted = bot["granted"]
            return f"@{bot.get('user')} in {bot.get('team')}"

        async def compare_scopes() -> str:
            if lacking := ", ".join(each for each in SCOPES if each not in granted.replace(" ", "").split(",")):
                raise SlackRefusal(f"missing: {lacking}", hint=scope_hint(lacking))
            return "all there"

        async def open_socket() -> str:
            await self._api.call("apps.connections.open", token=self._app_token)
            return "events arrive by WebSocket"

        async with self._api.opened():
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
