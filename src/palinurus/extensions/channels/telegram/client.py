"""Requests to Telegram's Bot API, and what their failures say of a message: it was not sent, it never can be, or nobody
knows. The library repeats no request by itself.

The token is part of every address, so addresses are neither logged nor shown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct
from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    Message,
    ReplyParameters,
)
from telegram.error import NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData

from palinurus.dispatch.channels import ChatTarget, OutgoingFile, OutgoingPart
from palinurus.domain.errors import JobFailed, JobRefused, PalinurusError
from palinurus.extensions.channels.requests import ANSWER_SECONDS, NetworkClient
from palinurus.extensions.channels.telegram.updates import GENERAL_TOPIC

T = TypeVar("T")
TOKEN_HINT = "write to @BotFather, /mybots, API Token, and set channels.telegram.botToken"  # noqa: S105
UPDATES_PER_POLL = 100
UPDATE_KINDS = ["message", "edited_message", "callback_query"]

ROW = 3  # buttons in one row
NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
_SENT_AS = {
    "image/jpeg": "photo",
    "image/png": "photo",
    "image/webp": "photo",
    "image/gif": "animation",
    "audio/ogg": "voice",
    "audio/mpeg": "audio",
    "audio/mp4": "audio",
    "video/mp4": "video",
}
_MUST_BE_DOCUMENT = ("photo_", "image_process", "photo must", "too big for a photo", "voice_messages_forbidden")

logging.getLogger("telegram").setLevel(logging.CRITICAL + 1)  # it logs what people say; whatever is wrong is raised


class AnswerParameters(Struct, frozen=True):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class RefusalAnswer(Struct, frozen=True):
    """What Telegram answers to a request that it did not do."""

    description: str = ""
    parameters: AnswerParameters = AnswerParameters()


class BotApiError(TelegramError):
    """Telegram's server answered, and did not do what was asked for. The library's errors lack the status."""

    def __init__(self, code: int, answer: RefusalAnswer) -> None:
        super().__init__(f"{code} {answer.description}".strip())
        self.code = code
        self.retry_after = answer.parameters.retry_after
        self.moved_to = str(answer.parameters.migrate_to_chat_id or "")
        self.is_about_token = code in (401, 404)  # 404: it does not look like one

    def says(self, *phrases: str) -> bool:
        return any(phrase in self.message.lower() for phrase in phrases)


class BotApiRequest(BaseRequest):
    """The library's requests by our client, which costs a quarter of its own, with errors that keep Telegram's status
    and parameters.
    """

    __slots__ = ("_client", "_stack")

    def __init__(self, client: NetworkClient) -> None:
        self._client = client
        self._stack = AsyncExitStack()

    @property
    def read_timeout(self) -> float:
        return ANSWER_SECONDS

    async def initialize(self) -> None:
        await self._stack.enter_async_context(self._client.opened())

    async def shutdown(self) -> None:
        await self._stack.aclose()

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        *_: Any,
        **__: Any,
    ) -> tuple[int, bytes]:
        seconds = read_timeout if isinstance(read_timeout, float | int) else ANSWER_SECONDS
        try:
            answer = await self._client.ask(method, url, data=_form(request_data), seconds=seconds)
        except PalinurusError as error:
            raise NetworkError(error.message) from error
        if answer.status < 400:
            return answer.status, answer.body
        try:
            refusal = msgspec.json.decode(answer.body, type=RefusalAnswer)
        except ValueError:  # a proxy's page
            refusal = RefusalAnswer()
        raise BotApiError(answer.status, refusal)


def _form(request: RequestData | None) -> aiohttp.FormData | dict[str, str] | None:
    if request is None or not request.contains_files:
        return request.json_parameters if request is not None else None
    form = aiohttp.FormData(request.json_parameters)
    for name, (filename, content, mime_type) in request.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=mime_type)
    return form


class BotClient(Bot):
    """A bot with one pool of connections for polls and one for everything else. Building it takes a moment."""

    __slots__ = ("_files",)

    def __init__(self, token: str, root: str) -> None:
        polls, others = (NetworkClient("Telegram", root, connections=size) for size in (2, 32))
        super().__init__(token, f"{root}/bot", f"{root}/file/bot", BotApiRequest(others), BotApiRequest(polls))
        self._files = others

    def __repr__(self) -> str:
        return type(self).__name__  # the library's has the token

    async def poll(self, offset: int, seconds: int) -> list[Any]:
        """The updates as JSON: the library would give up all of them for one that it cannot read."""
        asked = {"offset": offset, "timeout": seconds, "limit": UPDATES_PER_POLL, "allowed_updates": UPDATE_KINDS}
        found = await self._post("getUpdates", asked, read_timeout=seconds + 10)
        if not isinstance(found, list):
            raise TelegramError("the updates are not a list")
        return found

    async def download(self, file_id: str) -> AsyncIterator[bytes]:
        file = await self.get_file(file_id)
        async for piece in self._files.pieces(file.file_path or ""):
            yield piece

    @asynccontextmanager
    async def connections(self) -> AsyncIterator[BotClient]:
        for request in self._request:
            await request.initialize()
        try:
            yield self
        finally:
            for request in self._request:
                await request.shutdown()


@contextmanager
def mapped_errors(*, repeatable: bool = False) -> Iterator[None]:
    """Raises JobFailed, JobRefused or, when nobody can know, PalinurusError for an error of the library.

    `repeatable`: doing it twice is harmless, so JobFailed is raised also when nobody knows.
    """
    try:
        yield
    except BotApiError as error:
        about = f"Telegram: {error.message}"
        if error.code == 429 or error.is_about_token or (repeatable and error.code >= 500):
            hint = TOKEN_HINT if error.is_about_token else ""
            raise JobFailed(about, hint=hint, retry_after=error.retry_after) from error
        if error.code < 500:
            raise JobRefused(about) from error
        raise PalinurusError(f"{about}: it is not known whether it was done") from error
    except TelegramError as error:
        if repeatable or isinstance(error.__cause__, JobFailed):
            raise JobFailed(error.message) from error
        raise PalinurusError(f"{error.message}: it is not known whether it was done") from error


async def send_part(bot: BotClient, chat: str, target: ChatTarget, part: OutgoingPart) -> str:
    more = {
        "disable_notification": part.silent,
        "message_thread_id": _thread(target),
        "reply_markup": keyboard(part),
        "reply_parameters": _reply(part),
    }
    sent = await (_send_file(bot, chat, part.file, more) if part.file else _send_text(bot, chat, part, more))
    return str(sent.message_id)


async def edit_part(bot: BotClient, chat: str, message_id: int, part: OutgoingPart) -> None:
    async def edit(text: str, mode: str | None) -> None:
        await bot.edit_message_text(
            text, chat, message_id, parse_mode=mode, link_preview_options=NO_PREVIEW, reply_markup=keyboard(part)
        )

    try:
        await _with_markup(part, edit)
    except BotApiError as error:
        if not error.says("message is not modified"):
            raise


async def _send_text(bot: BotClient, chat: str, part: OutgoingPart, more: dict[str, Any]) -> Message:
    return await _with_markup(
        part, lambda text, mode: bot.send_message(chat, text, mode, link_preview_options=NO_PREVIEW, **more)
    )


async def _send_file(bot: BotClient, chat: str, file: OutgoingFile, more: dict[str, Any]) -> Message:
    content = InputFile(file.data, file.name)

    async def send_as(kind: str) -> Message:
        method: Callable[..., Awaitable[Message]] = getattr(bot, f"send_{kind}")
        return await method(chat, content, **more)

    kind = _SENT_AS.get(file.mime_type.partition(";")[0].strip().lower(), "document")
    try:
        return await send_as(kind)
    except BotApiError as error:  # a picture of odd proportions, a person who wants no voice messages
        if error.code != 400 or not error.says(*_MUST_BE_DOCUMENT):
            raise
        return await send_as("document")


async def _with_markup(part: OutgoingPart, request: Callable[[str, str | None], Awaitable[T]]) -> T:
    """Makes a request with HTML, and again with plain text if Telegram cannot read the HTML."""
    try:
        return await request(part.text, "HTML")
    except BotApiError as error:
        if not error.says("can't parse entities"):
            raise
        return await request(part.plain or part.text, None)


def keyboard(part: OutgoingPart) -> InlineKeyboardMarkup | None:
    buttons = [InlineKeyboardButton(each.label, callback_data=each.value) for each in part.buttons]
    return InlineKeyboardMarkup([buttons[at : at + ROW] for at in range(0, len(buttons), ROW)]) if buttons else None


def _thread(target: ChatTarget) -> int | None:
    return int(target.thread) if target.thread not in ("", GENERAL_TOPIC) else None  # General has no number here


def _reply(part: OutgoingPart) -> ReplyParameters | None:
    """A model may name what is no id: then nothing is quoted."""
    named = int(part.reply_to) if re.fullmatch(r"[0-9]{1,10}", part.reply_to) else 0
    return ReplyParameters(named, allow_sending_without_reply=True) if 0 < named < 2**31 else None
