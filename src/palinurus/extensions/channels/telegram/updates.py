"""Telegram's updates as messages and presses of buttons."""

from __future__ import annotations

from typing import Any

import telegram
from msgspec import Struct
from telegram import Message, User

from palinurus.dispatch.channels import ButtonPress, ChannelMessage, FileKind, QuotedMessage, ReceivedFile
from palinurus.domain.envelope import Peer
from palinurus.extensions.channels.intake import file_kind

GENERAL_TOPIC = "1"
_CHATS = ("private", "group", "supergroup")
_FILES: dict[type, tuple[FileKind, str]] = {  # kind, and type if the sender names none
    telegram.PhotoSize: ("image", "image/jpeg"),
    telegram.Voice: ("voice", "audio/ogg"),
    telegram.Audio: ("audio", "audio/mpeg"),
    telegram.Animation: ("video", "video/mp4"),
    telegram.Video: ("video", "video/mp4"),
    telegram.VideoNote: ("video", "video/mp4"),
    telegram.Document: ("document", "application/octet-stream"),
}


class UpdateContent(Struct, frozen=True):
    """What an update says. It may be nothing of interest, such as that somebody has joined."""

    id: int
    chat: int = 0  # whose order it is in
    message: ChannelMessage | None = None
    press: ButtonPress | None = None
    query: str = ""  # by which the press is answered
    moved_to: str = ""  # the chat has become a supergroup with this id


def read_update(raw: Any, own: User) -> UpdateContent:
    """Raises ValueError for what is no update: the library itself checks nothing."""
    try:
        update = telegram.Update.de_json(raw, None)
        number = int(update.update_id)
        if query := update.callback_query:
            return UpdateContent(number, query.from_user.id, press=_press(query), query=query.id)
        if (message := update.message or update.edited_message) is None:
            return UpdateContent(number)
        return UpdateContent(
            number,
            message.chat.id,
            _message(message, own, number, is_edit=update.edited_message is not None),
            moved_to=str(message.migrate_to_chat_id or ""),
        )
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _message(message: Message, own: User, number: int, *, is_edit: bool) -> ChannelMessage | None:
    sender, name = _sender(message)
    words, files = _words(message), _files(message)
    if not sender or message.chat.type not in _CHATS or not (words or files):
        return None
    text, named = _read_entities(message, words, own)
    quoted = _quoted(message, own)
    return ChannelMessage(
        id=str(message.message_id),
        update=str(number),
        sender=sender,
        peer=_peer(message, name, mentioned=(quoted is not None and quoted.is_own) if named is None else named),
        text=text,
        files=files,
        quoted=quoted,
        is_edit=is_edit,
        forwarded_from=_author_of_forwarded(message),
        sent_at=int((message.edit_date or message.date).timestamp() * 1000),
    )


def _press(query: telegram.CallbackQuery) -> ButtonPress | None:
    message, author = query.message, query.from_user
    if message is None:  # sent by way of the bot into a chat that it does not see
        return None
    if isinstance(message, Message):
        peer = _peer(message, author.full_name)
    else:  # it is too old for Telegram to say more
        peer = Peer(str(message.chat.id), "direct" if message.chat.type == "private" else "group")
    return ButtonPress(query.data or "", str(author.id), peer, str(message.message_id))


def _peer(message: Message, sender_name: str, *, mentioned: bool = False) -> Peer:
    thread = GENERAL_TOPIC if message.chat.is_forum and message.chat.type != "private" else ""
    if message.is_topic_message:
        thread = str(message.message_thread_id)
    kind = "direct" if message.chat.type == "private" else "group"
    return Peer(str(message.chat.id), kind, thread, mentioned=mentioned, sender_name=sender_name)  # type: ignore[arg-type]


def _sender(message: Message) -> tuple[str, str]:
    """Id and name of whom it is by; none for bots. Anonymous administrators and channels write as a chat."""
    if message.sender_chat:
        return str(message.sender_chat.id), message.sender_chat.effective_name or ""
    user = message.from_user
    return ("", "") if user is None or user.is_bot else (str(user.id), user.full_name)


def _author_of_forwarded(message: Message) -> str:
    """Empty: the sender wrote it."""
    origin: Any = message.forward_origin
    if origin is None:
        return ""
    user, chat = (
        getattr(origin, "sender_user", None),
        getattr(origin, "sender_chat", None) or getattr(origin, "chat", None),
    )
    name = user.full_name if user else chat.effective_name if chat else getattr(origin, "sender_user_name", "")
    return name or "somebody"


def _words(message: Message) -> str:
    content = message.effective_attachment
    if isinstance(content, telegram.Location):
        return f"location: {content.latitude}, {content.longitude}"
    if isinstance(content, telegram.Sticker):
        return content.emoji or "sticker"
    return message.text or message.caption or ""


def _quoted(message: Message, own: User) -> QuotedMessage | None:
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created:  # every message of a topic "answers" its beginning
        return None
    author = answered.from_user
    is_own = author is not None and author.id == own.id
    sender, name = (str(own.id), own.full_name) if is_own else _sender(answered)
    text = message.quote.text if message.quote else _words(answered)
    return QuotedMessage(str(answered.message_id), sender, name, text, is_own)


def _read_entities(message: Message, text: str, own: User) -> tuple[str, bool | None]:
    """The text, in a command without our name; and whether it names us. None: it names nobody."""
    units = text.encode("utf-16-le", "surrogatepass")  # Telegram counts in them
    us, named = f"@{own.username}".lower(), None
    for entity in message.entities or message.caption_entities:
        if entity.type not in ("mention", "text_mention", "bot_command"):
            continue
        piece = units[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le", "replace")
        command, at, bot = piece.partition("@")
        if entity.type == "bot_command" and at:
            if f"@{bot}".lower() != us:
                return text, False  # a command for another bot
            named = True
            text = command + text[len(piece) :] if entity.offset == 0 else text
        elif piece.lower() == us or (entity.user is not None and entity.user.id == own.id):
            named = True
    return text, named


def _files(message: Message) -> tuple[ReceivedFile, ...]:
    content: Any = message.effective_attachment
    file = content[-1] if isinstance(content, list | tuple) and content else content  # the largest size of a photo
    if type(file) not in _FILES:
        return ()
    kind, usual_type = _FILES[type(file)]
    mime_type = getattr(file, "mime_type", None) or usual_type
    if kind == "document":
        kind = file_kind(mime_type)
    return (ReceivedFile(kind, file.file_id, getattr(file, "file_name", None) or "", mime_type, file.file_size or 0),)
