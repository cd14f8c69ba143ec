"""Parts of replies as messages of Telegram."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    Message,
    ReplyParameters,
)

from palinurus.dispatch.channels import ChatTarget, OutgoingFile, OutgoingPart
from palinurus.extensions.channels.telegram.client import BotApiError, BotClient
from palinurus.extensions.channels.telegram.updates import GENERAL_TOPIC

T = TypeVar("T")
CAPTION_SIZE = 1024
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


def has_long_caption(part: OutgoingPart) -> bool:
    """Whether the text of its file has to be a message of its own."""
    text = part.plain or part.text
    return part.file is not None and len(text.encode("utf-16-le", "surrogatepass")) // 2 > CAPTION_SIZE


async def send_part(bot: BotClient, chat: str, target: ChatTarget, part: OutgoingPart) -> str:
    more = {
        "disable_notification": part.silent,
        "message_thread_id": _thread(target),
        "reply_markup": keyboard(part),
        "reply_parameters": _reply(part),
    }
    sent = await (_send_file(bot, chat, part, part.file, more) if part.file else _send_text(bot, chat, part, more))
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


async def _send_file(
    bot: BotClient, chat: str, part: OutgoingPart, file: OutgoingFile, more: dict[str, Any]
) -> Message:
    content = InputFile(file.data, file.name)

    async def send_as(kind: str) -> Message:
        method: Callable[..., Awaitable[Message]] = getattr(bot, f"send_{kind}")
        return await _with_markup(part, lambda text, mode: method(chat, content, caption=text, parse_mode=mode, **more))

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
    return ReplyParameters(int(part.reply_to), allow_sending_without_reply=True) if part.reply_to else None
