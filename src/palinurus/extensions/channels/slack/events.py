"""Slack's events, commands and presses of buttons, parsed and translated into what every channel passes on."""

from __future__ import annotations

import asyncio
import re

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palinurus.dispatch.channels import ButtonPress, ChannelMessage, QuotedMessage, ReceivedFile
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import PalinurusError
from palinurus.extensions.channels.intake import BoundedDict, file_kind
from palinurus.extensions.channels.slack.api import SlackApi, SlackRefusal
from palinurus.extensions.channels.slack.manifest import command_of

WRITTEN_BY_PEOPLE = frozenset(("", "file_share", "me_message", "thread_broadcast"))  # subtypes of messages
MOST_NAMES = 20  # of people that one message names, looked up
LOOKUP_SECONDS = 2.0  # Slack wants its answer within three
REFERENCE = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
PERSON = re.compile(r"<@([UW][A-Z0-9]+)[|>]")


class SlackFile(Struct, frozen=True):
    id: str = ""
    name: str | None = None
    mimetype: str | None = None
    subtype: str | None = None
    size: int | None = None
    url_private: str | None = None
    url_private_download: str | None = None


class SlackEdit(Struct, frozen=True):
    ts: str


class SlackEvent(Struct, frozen=True):
    type: str
    subtype: str | None = None
    team: str | None = None
    channel: str = ""
    channel_type: str | None = None
    user: str | None = None
    bot_id: str | None = None
    text: str | None = None
    ts: str = ""
    thread_ts: str | None = None
    parent_user_id: str | None = None
    edited: SlackEdit | None = None
    files: tuple[SlackFile, ...] | None = None
    message: SlackEvent | None = None
    previous_message: SlackEvent | None = None

    @property
    def chat(self) -> str:
        return self.channel


class SlackEventType(Struct, frozen=True):
    type: str


class SlackEventPayload(Struct, frozen=True):
    event: Raw
    team_id: str | None = None


class SlackCommandPayload(Struct, frozen=True):
    command: str
    user_id: str
    channel_id: str
    trigger_id: str
    text: str = ""
    channel_name: str = ""
    team_id: str = ""

    @property
    def chat(self) -> str:
        return self.channel_id


class SlackReference(Struct, frozen=True):
    id: str = ""
    name: str | None = None


class SlackPressedMessage(Struct, frozen=True):
    ts: str = ""
    thread_ts: str | None = None


class SlackPressedButton(Struct, frozen=True):
    value: str | None = None


class SlackActionPayload(Struct, frozen=True):
    type: str
    user: SlackReference = SlackReference()
    channel: SlackReference | None = None
    team: SlackReference | None = None
    message: SlackPressedMessage = SlackPressedMessage()
    actions: tuple[SlackPressedButton, ...] = ()
    response_url: str = ""


def parse_update(kind: str, body: bytes) -> SlackEvent | SlackCommandPayload | SlackActionPayload | None:
    """An update of a kind that Socket Mode names; None: nothing that is used here. Raises ValueError."""
    if kind == "slash_commands":
        return msgspec.json.decode(body, type=SlackCommandPayload)
    if kind == "interactive":
        return msgspec.json.decode(body, type=SlackActionPayload)
    if kind != "events_api":
        return None
    payload = msgspec.json.decode(body, type=SlackEventPayload)
    # Events of other types have fields of the same names with something else in them.
    if msgspec.json.decode(payload.event, type=SlackEventType).type not in ("message", "app_mention"):
        return None
    event = msgspec.json.decode(payload.event, type=SlackEvent)
    if not (event.channel and event.ts):
        raise ValueError("a message without its chat or its time")
    return replace(event, team=payload.team_id)


class SlackDirectory:
    """Who people are and what kind a chat is, asked once. What Slack does not say does not hold a message up."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._names: BoundedDict[str, str] = BoundedDict(2_000)
        self._kinds: BoundedDict[str, str] = BoundedDict(2_000)
        self.direct: BoundedDict[str, str] = BoundedDict(2_000)  # the direct chat with each person

    async def name_of(self, user: str) -> str:
        if user not in self._names:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    said = await self._api.call("users.info", {"user": user}, once=True)
            except SlackRefusal:
                said = {}  # a missing scope or a stranger: so it stays
            except (PalinurusError, TimeoutError):
                return ""
            person = said.get("user") or {}
            profile = person.get("profile") or {}
            names = (profile.get("display_name"), profile.get("real_name"), person.get("real_name"), person.get("name"))
            self._names[user] = next((each for each in names if each), "")
        return self._names[user]

    async def kind_of(self, channel: str, said: str = "") -> str:
        """im, mpim, channel or group; `said` is what the event says of it."""
        if channel.startswith("D"):
            return "im"
        if said:
            self._kinds[channel] = said
        elif channel not in self._kinds:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    answer = await self._api.call("conversations.info", {"channel": channel}, once=True)
            except (PalinurusError, TimeoutError):
                return "channel"
            found = answer.get("channel") or {}
            self._kinds[channel] = next((kind for kind in ("im", "mpim") if found.get(f"is_{kind}")), "channel")
        return self._kinds[channel]

    async def conversation(self, to: str) -> str:
        """The id of the chat in which messages to `to` are posted."""
        if not re.fullmatch(r"[UW][A-Z0-9]+", to):
            return to
        if to not in self.direct:
            opened = await self._api.call("conversations.open", {"users": to})
            self.direct[to] = str((opened.get("channel") or {}).get("id") or to)
        return self.direct[to]


class SlackEventReader:
    """Translates for one bot, whose user id is `own`."""

    def __init__(self, directory: SlackDirectory, own: str) -> None:
        self._directory = directory
        self._own = own

    async def read(self, update: SlackEvent | SlackCommandPayload) -> ChannelMessage | None:
        """None: nothing that a person said."""
        return await (self._message(update) if isinstance(update, SlackEvent) else self._command(update))

    async def _message(self, event: SlackEvent) -> ChannelMessage | None:
        said = event.message if event.subtype == "message_changed" else event
        if said is None or not self._is_said(event, said):
            return None
        user, thread = said.user or "", said.thread_ts if said.thread_ts != said.ts else ""
        update = f"{event.channel}:{said.ts}" + (f":{said.edited.ts}" if said is not event and said.edited else "")
        answers_own = bool(thread) and said.parent_user_id == self._own
        mentioned = event.type == "app_mention" or answers_own or self._own in PERSON.findall(said.text or "")
        peer = await self._peer(user, event.channel, event.channel_type or "", thread or "")
        return ChannelMessage(
            id=said.ts,
            update=update,
            sender=user,
            peer=replace(peer, team=event.team or "", mentioned=mentioned),
            text=await self._text(said.text or ""),
            files=tuple(_file(each) for each in said.files or () if each.id or each.url_private),
            quoted=QuotedMessage(thread or "", sender=self._own, is_own=True) if answers_own else None,
            is_edit=said is not event,
            sent_at=_milliseconds(said.ts),
        )

    async def _command(self, payload: SlackCommandPayload) -> ChannelMessage:
        kind = _kind_by_name(payload.channel_name)
        peer = await self._peer(payload.user_id, payload.channel_id, kind)
        name = command_of(payload.command.removeprefix("/"))
        return ChannelMessage(
            id=payload.trigger_id,  # Slack shows no message for it
            update=payload.trigger_id,
            sender=payload.user_id,
            peer=replace(peer, team=payload.team_id, mentioned=True),
            text=f"/{name} {await self._text(payload.text)}".strip(),
        )

    async def press(self, payload: SlackActionPayload) -> ButtonPress | None:
        """None: not a button of ours."""
        value = payload.actions[0].value if payload.type == "block_actions" and payload.actions else None
        channel, message = payload.channel, payload.message
        if not (value and payload.user.id and channel and channel.id):
            return None
        thread = message.thread_ts if message.thread_ts and message.thread_ts != message.ts else ""
        peer = await self._peer(payload.user.id, channel.id, _kind_by_name(channel.name or ""), thread)
        team = payload.team.id if payload.team else ""
        return ButtonPress(value, payload.user.id, replace(peer, team=team, mentioned=True), message.ts)

    def _is_said(self, event: SlackEvent, said: SlackEvent) -> bool:
        by_person = bool(said.user and said.ts) and not said.bot_id and said.user not in (self._own, "USLACKBOT")
        if not by_person:
            return False
        if said is not event:  # Slack also says "changed" when it adds the preview of a link
            before = event.previous_message.edited if event.previous_message else None
            return said.edited is not None and said.edited != before
        return (said.subtype or "") in WRITTEN_BY_PEOPLE

    async def _peer(self, user: str, channel: str, said: str, thread: str = "") -> Peer:
        kind = await self._directory.kind_of(channel, said)
        name = await self._directory.name_of(user)
        if kind == "im":
            self._directory.direct[user] = channel
            return Peer(user, "direct", thread, sender_name=name)
        return Peer(channel, "group" if kind == "mpim" else "channel", thread, sender_name=name)

    async def _text(self, text: str) -> str:
        """As people see it, without the name of the account itself."""
        text = re.sub(rf"<@{re.escape(self._own)}(?:\|[^<>]*)?>[ :,]?", "", text)
        people = list(dict.fromkeys(PERSON.findall(text)))[:MOST_NAMES]
        names = dict(zip(people, await asyncio.gather(*map(self._directory.name_of, people)), strict=True))
        text = REFERENCE.sub(lambda found: _shown(found[1], found[2] or "", names), text)
        return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _shown(target: str, label: str, names: dict[str, str]) -> str:
    sign, name = target[:1], target[1:]
    if sign == "@":
        return "@" + (names.get(name) or label or name)
    if sign == "#":
        return "#" + (label or name)
    if sign == "!":  # !here, !subteam^S1|@team, !date^…|text
        return label or "@" + name.partition("^")[0]
    address = target.removeprefix("mailto:")
    return address if label in ("", address, target) else f"{label} ({address})"


def _kind_by_name(name: str) -> str:
    """Commands and presses carry the chat's name instead of its kind; empty: it says nothing of it."""
    return "mpim" if name.startswith("mpdm-") else "" if name in ("", "directmessage", "privategroup") else "channel"


def _file(file: SlackFile) -> ReceivedFile:
    mime = file.mimetype or ""
    kind = "voice" if file.subtype == "slack_audio" else file_kind(mime)
    ref = file.url_private_download or file.url_private or file.id  # by the id alone in channels shared with others
    return ReceivedFile(kind, ref, file.name or "", mime, file.size or 0)


def _milliseconds(ts: str) -> int:
    whole, _, part = ts.partition(".")
    return int(whole) * 1000 + int(part[:3].ljust(3, "0") or 0) if (whole + part).isdecimal() else 0
