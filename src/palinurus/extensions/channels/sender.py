"""Sends deliveries to a network, message by message: what was sent stays sent, and the next attempt goes on after it.

A reply that was shown before it was complete takes the place of its preview: that is a change of a message, which may
be repeated. Everything else is repeated only when it certainly did not arrive.
"""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.load import Config
from palinurus.dispatch.channels import ChannelCapabilities, ChatTarget, OutgoingFile, OutgoingPart
from palinurus.dispatch.delivery import ANSWER, DeliveryJob
from palinurus.domain.errors import JobError, JobFailed, JobRefused, OutsideWorkspace, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import harmless
from palinurus.extensions.channels.account import RunningAccount
from palinurus.extensions.channels.blocks import unsent_text
from palinurus.extensions.channels.render import render
from palinurus.extensions.channels.settings import ReplyMode, ReplySettings
from palinurus.extensions.channels.store import ChannelStore
from palinurus.extensions.channels.stream import ReplyStreams
from palinurus.operations.services import Services
from palinurus.tools.policy import ToolRequest, decide
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import is_private

log = logging.getLogger(__name__)

MOST_FILES = 10  # of one reply
_LINE = re.compile(r"^[ \t]*MEDIA:[ \t]*(?P<path>[^\s][^\n]*)\n?", re.MULTILINE)
LONGEST_NAME = 80  # of a file that is named in a reply
PROMPT = "A line `MEDIA:path` in a reply sends that file of the workspace to the chat."


class MediaText(Struct, frozen=True):
    """A reply without its MEDIA lines, and the paths in them."""

    text: str
    paths: tuple[str, ...] = ()


def read_media_lines(text: str) -> MediaText:
    if "MEDIA:" not in text:
        return MediaText(text)
    paths = tuple(dict.fromkeys(found["path"].strip().strip("`\"'") for found in _LINE.finditer(text)))
    return MediaText(_LINE.sub("", text).strip(), paths) if paths else MediaText(text)


async def load_files(
    services: Services, delivery: DeliveryJob, paths: tuple[str, ...]
) -> tuple[list[OutgoingFile], list[str]]:
    """The files, and a line for each that cannot be sent."""
    files: list[OutgoingFile] = []
    troubles = [f"(only the first {MOST_FILES} files are sent)"] if len(paths) > MOST_FILES else []
    key = SessionKey.parse(delivery.session_key)
    is_owners = services.reception.is_owner(delivery.channel, delivery.to) and key.is_private
    for path in paths[:MOST_FILES]:
        name = " ".join(harmless(PurePosixPath(path).name).split())[:LONGEST_NAME]
        try:
            check_reading(services, key, delivery, is_owners=is_owners)
            agent = await services.agents.get(key.agent).in_session(key)
            data = await asyncio.to_thread(_read, agent.files.boundary, path, hides=not is_owners)
        except (PalinurusError, OSError, ValueError) as error:
            log.info("a file of a reply in %s was not sent: %s", key, error)
            why = error.message if isinstance(error, PalinurusError) else "it cannot be read"
            troubles.append(f"({name} was not sent: {why[:200]})")
            continue
        files.append(OutgoingFile(name, mimetypes.guess_type(name)[0] or "application/octet-stream", data))
    return files, troubles


def check_reading(services: Services, key: SessionKey, delivery: DeliveryJob, *, is_owners: bool) -> None:
    """Raises OutsideWorkspace: where the agent may not read files, it sends none."""
    asked = ToolRequest("read", key, owner=is_owners, channel=delivery.channel, sender=delivery.to)
    if not decide(services.toolsets.policy(key.agent), asked).allowed:
        raise OutsideWorkspace("files are not read here", hint="`pal tools explain read --session-key …` says why")


def _read(boundary: Boundary, path: str, *, hides: bool) -> bytes:
    """`hides`: private files, also by a link to them."""
    with boundary.open_file(path) as file:
        if hides and (is_private(file.path) or is_private(path)):
            raise OutsideWorkspace("it is private", hint="it is sent to the owner only")
        return file.read()


def prompt_section(config: Config, agent_id: str) -> tuple[str, str]:
    """For agents of homes with channels."""
    return "Files", PROMPT


PART_SECONDS = 120.0  # of one message with its retries; after that nobody knows
LONG = 8_000  # characters that are rendered beside the event loop
FindAccount = Callable[[str, str], RunningAccount | None]
_TAG = re.compile(r"(?<![ \t])[ \t]*\[\[\s*reply_to(?:_current|:\s*(?P<id>[^\]\s]{1,200}))\s*\]\][ \t]*")


class TaggedText(Struct, frozen=True):
    """A reply without its tags, and which message it asks to quote. None: it does not ask."""

    text: str
    reply_to: str | None = None


def read_tags(text: str, current: str) -> TaggedText:
    """`[[reply_to_current]]` and `[[reply_to:ID]]`: the last one counts."""
    found = list(_TAG.finditer(text))
    if not found:
        return TaggedText(text)
    return TaggedText(_TAG.sub("", text).strip(), found[-1]["id"] or current)


class NetworkSender:
    """Implements dispatch.ChannelSender for all accounts of a channel."""

    def __init__(
        self,
        services: Services,
        find: FindAccount,
        streams: ReplyStreams,
        store: ChannelStore,
        channel: str,
        capabilities: ChannelCapabilities,
    ) -> None:
        self.channel = channel
        self.repeatable = capabilities.repeatable
        self._services = services
        self._find = find
        self._streams = streams
        self._store = store

    async def send(self, delivery: DeliveryJob) -> str:
        account = self._find(self.channel, delivery.account)
        if account is None:
            named = f"the account {delivery.account} of {self.channel}" if delivery.account else self.channel
            raise JobFailed(f"{named} is not running", hint="`pal channels list` shows why", retry_after=5)
        preview = await self._streams.finish(delivery.run_id) if delivery.run_id and not delivery.sent else ""
        is_whole = self._streams.shows_nothing(delivery.run_id)
        text = delivery.text if is_whole else await unsent_text(self._services, delivery)
        target = ChatTarget(delivery.to, delivery.thread)
        parts = await self._parts(account, delivery, text)
        sent = list(delivery.sent)
        for part in parts[len(sent) :]:
            if not preview or sent or not await self._replace(account, target, preview, part):
                async with asyncio.timeout(PART_SECONDS):
                    sent.append(await account.channel.send(target, part))
            else:
                sent.append(preview)
            account.count_sent()
            if len(sent) < len(parts):
                await self._services.deliveries.note_sent(delivery, sent)
        if preview and not parts:
            await self._streams.remove(account, target, preview)
        if preview:
            await self._store.remove_preview(delivery.run_id)
        self._streams.forget(delivery.run_id)
        return " ".join(sent)

    async def _replace(self, account: RunningAccount, target: ChatTarget, preview: str, part: OutgoingPart) -> bool:
        """False: the preview cannot be changed any more, and the part is sent as a message of its own."""
        try:
            await account.channel.edit(target, preview, part)
        except JobRefused as error:  # somebody has deleted it, or it is too old
            account.log.info("a preview was not changed: %s", error)
            return False
        except JobError:
            raise
        except Exception as error:  # changing a message twice to the same text does no harm
            raise JobFailed(f"the preview could not be changed: {error!r}") from error
        return True

    async def _parts(self, account: RunningAccount, delivery: DeliveryJob, text: str) -> list[OutgoingPart]:
        settings = account.replies
        is_models = is_by_model(delivery)
        tagged = read_tags(text, delivery.reply_to) if is_models else TaggedText(text)
        words = f"{settings.response_prefix}{tagged.text}" if settings.response_prefix and tagged.text else tagged.text
        media = read_media_lines(words) if is_models else MediaText(words)
        files, troubles = await load_files(self._services, delivery, media.paths) if media.paths else ([], [])
        words = "\n\n".join(filter(None, (media.text, *troubles)))
        opened = delivery.block.opened if delivery.block is not None else ""
        if len(words) > LONG:
            rendered = await asyncio.to_thread(render, account, words, opened)
        else:
            rendered = render(account, words, opened)
        mode = reply_mode(settings, delivery, tagged)
        quoted = delivery.reply_to if tagged.reply_to is None else tagged.reply_to
        parts = [OutgoingPart(each.text, each.plain) for each in rendered]
        if parts:
            parts[-1] = replace(parts[-1], buttons=delivery.buttons)
        parts += [OutgoingPart("", file=file) for file in files]
        return [
            replace(
                part,
                idempotency_key=f"{delivery.idempotency_key}:{number}",
                reply_to=quoted if mode == "all" or (mode == "first" and number == 0) else "",
            )
            for number, part in enumerate(parts)
        ]


def is_by_model(delivery: DeliveryJob) -> bool:
    """Whether tags in its text are meant as such. In the plan of an approval, or a list of plans, they are shown."""
    is_reply = bool(delivery.run_id) and not delivery.idempotency_key.startswith(ANSWER)
    return bool(delivery.session_key) and (is_reply or delivery.block is not None)


def reply_mode(settings: ReplySettings, delivery: DeliveryJob, tagged: TaggedText) -> ReplyMode:
    """Which messages of a delivery quote the one that it answers."""
    if settings.reply_to_mode is not None and tagged.reply_to is None:
        return settings.reply_to_mode
    in_group = bool(delivery.session_key) and SessionKey.parse(delivery.session_key).kind in ("group", "channel")
    return "first" if tagged.reply_to is not None or in_group else "off"
