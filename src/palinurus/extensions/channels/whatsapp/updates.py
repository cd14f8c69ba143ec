"""What WhatsApp posts to the webhook, as messages and presses of buttons.

One post may hold several entries, changes and messages. Each is read by itself, so that one which makes no sense costs
only itself. Only direct chats exist here: Meta opens groups of the Cloud API to few accounts, and a message of one
must not be taken for a private one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from palinurus.dispatch.channels import ButtonPress, ChannelMessage, FileKind, QuotedMessage, ReceivedFile
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import BadRequest
from palinurus.extensions.channels.whatsapp.graph import GraphError

log = logging.getLogger(__name__)

T = TypeVar("T")
Id = Annotated[str, Meta(min_length=1, max_length=512)]
FILES: dict[str, FileKind] = {
    "image": "image", "sticker": "image", "audio": "audio", "video": "video", "document": "document"
}  # fmt: skip
SILENT = ("reaction", "system", "request_welcome")  # nothing that anybody said to the agent


class PostChange(Struct, frozen=True):
    field: str = ""
    value: Raw = Raw(b"{}")


class PostEntry(Struct, frozen=True):
    changes: tuple[PostChange, ...] = ()


class WebhookBody(Struct, frozen=True):
    entry: tuple[PostEntry, ...] = ()


class NumberMetadata(Struct, frozen=True):
    phone_number_id: str
    display_phone_number: str = ""


class ContactProfile(Struct, frozen=True):
    name: str = ""


class WhatsAppContact(Struct, frozen=True):
    """Who has written."""

    wa_id: str = ""
    user_id: str = ""
    profile: ContactProfile = ContactProfile()


class ChangeValue(Struct, frozen=True):
    metadata: NumberMetadata
    contacts: tuple[WhatsAppContact, ...] = ()
    messages: tuple[Raw, ...] = ()
    statuses: tuple[Raw, ...] = ()


class MessageStatus(Struct, frozen=True):
    """What became of a message that was sent."""

    id: str
    status: str
    recipient_id: str = ""
    recipient_user_id: str = ""  # of people who hide their number
    errors: tuple[GraphError, ...] = ()


class ChosenOption(Struct, frozen=True):
    id: str


class MessageContent(Struct, frozen=True):
    """What the types of messages have: each has some of it."""

    body: str = ""
    text: str = ""  # of a button of a template
    id: str = ""  # of a file, like the next four
    mime_type: str = ""
    filename: str = ""
    caption: str = ""
    voice: bool = False
    latitude: float = 0
    longitude: float = 0
    name: str = ""
    address: str = ""
    button_reply: ChosenOption | None = None
    list_reply: ChosenOption | None = None


class CardPart(Struct, frozen=True):
    formatted_name: str = ""
    phone: str = ""


class ContactCard(Struct, frozen=True):
    """A contact that somebody passes on."""

    name: CardPart = CardPart()
    phones: tuple[CardPart, ...] = ()


class MessageContext(Struct, frozen=True):
    id: str = ""
    sender: str = field(default="", name="from")
    forwarded: bool = False
    frequently_forwarded: bool = False


class WhatsAppMessage(Struct, frozen=True):
    id: Id
    type: str
    phone: str = field(default="", name="from")
    from_user_id: str = ""  # of people who hide their number
    group_id: str = ""
    timestamp: str = ""
    context: MessageContext = MessageContext()
    contacts: tuple[ContactCard, ...] = ()

    @property
    def sender(self) -> str:
        return self.phone or self.from_user_id


class FailedMessage(Struct, frozen=True):
    """What WhatsApp had taken, and did not deliver."""

    to: str
    why: str


WhatsAppUpdate = tuple[str, ChannelMessage | ButtonPress | FailedMessage]  # with the id of the message that it is about


def read_updates(body: bytes, number_id: str) -> list[WhatsAppUpdate]:
    """The updates of one post for this number, in their order. Raises BadRequest."""
    try:
        post = msgspec.json.decode(body, type=WebhookBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body: {error}") from None
    changes = [each for entry in post.entry for each in entry.changes if each.field == "messages"]
    return [update for change in changes for update in _of_change(change, number_id)]


def _of_change(change: PostChange, number_id: str) -> Iterator[WhatsAppUpdate]:
    value = _read(change.value, ChangeValue)
    if value is None:
        return
    if value.metadata.phone_number_id != number_id:
        # It is acknowledged all the same: a repetition would not change it.
        number = value.metadata.phone_number_id
        log.warning("WhatsApp posted for the number %.40r, which is not phoneNumberId: it is not read", number)
        return
    for raw in value.statuses:
        status = _read(raw, MessageStatus)
        if status is not None and status.status == "failed":
            why = "; ".join(f"{each.code} {each.message[:100]!r}" for each in status.errors[:3])
            to = status.recipient_id or status.recipient_user_id
            yield status.id, FailedMessage(to, f"WhatsApp took it and did not deliver it: {why}")
    for raw in value.messages:
        message = _read(raw, WhatsAppMessage)
        parts = message and _read(raw, dict[str, Raw])
        content = message and parts and _content(message.type, parts)
        update = message and content and _update_of(message, content, value)
        if message and update:
            yield message.id, update


def _content(kind: str, parts: dict[str, Raw]) -> MessageContent | None:
    is_list = kind == "contacts"
    return MessageContent() if is_list or kind not in parts else _read(parts[kind], MessageContent)


def _read(raw: Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        log.warning("a part of a post of WhatsApp makes no sense and is left out: %.200s", error)
        return None


def _update_of(
    message: WhatsAppMessage, content: MessageContent, value: ChangeValue
) -> ChannelMessage | ButtonPress | None:
    if message.type in SILENT:
        return None
    if message.group_id or not message.sender:
        log.warning("a message of WhatsApp is left out: %s", "it is of a group" if message.group_id else "no sender")
        return None
    names = (each.profile.name for each in value.contacts if message.sender in (each.wa_id, each.user_id))
    said = message.context
    is_own = bool(said.sender) and said.sender == _digits(value.metadata.display_phone_number)
    peer = Peer(message.sender, mentioned=is_own, sender_name=next(names, ""))
    if chosen := content.button_reply or content.list_reply:
        return ButtonPress(chosen.id, message.sender, peer, said.id)
    kind: FileKind | None = FILES.get(message.type) if content.id else None
    if kind == "audio" and content.voice:
        kind = "voice"
    text = content.caption if kind else _text_of(message, content)
    if not text and not kind:
        log.warning("a message of WhatsApp of the type %.40r cannot be read and is left out", message.type)
        return None
    return ChannelMessage(
        message.id,
        message.id,
        message.sender,
        peer,
        text,
        files=(ReceivedFile(kind, content.id, content.filename, content.mime_type),) if kind else (),
        quoted=QuotedMessage(said.id, said.sender, is_own=is_own) if said.id else None,
        forwarded_from="somebody" if said.forwarded or said.frequently_forwarded else "",
        sent_at=int(message.timestamp) * 1000 if message.timestamp.isdecimal() and len(message.timestamp) < 12 else 0,
    )


def _text_of(message: WhatsAppMessage, content: MessageContent) -> str:
    if message.type == "location" and content != MessageContent():
        named = ", ".join(filter(None, (content.name, content.address)))
        return f"Location: {named + ' ' if named else ''}({content.latitude}, {content.longitude})"
    cards = ((card.name.formatted_name, *(each.phone for each in card.phones)) for card in message.contacts)
    return content.body or content.text or "\n".join("Contact: " + ", ".join(filter(None, card)) for card in cards)


def _digits(number: str) -> str:
    return "".join(filter(str.isdecimal, number))
