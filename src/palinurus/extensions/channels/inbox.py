"""What one account receives: each message once, with its files, quoted text and sender, handed to the reception.

A repeated update is dropped here for twenty minutes; after a restart the queue of runs knows it by its idempotency key.
Files are fetched when the reception has admitted the message, never for strangers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from palinurus.dispatch.admission import FORWARDED, plain_name
from palinurus.dispatch.channels import ButtonPress, ChannelCommand, ChannelMessage, QuotedMessage
from palinurus.dispatch.routing import MessageRoute
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import ContextNote, Origin, harmless, wrapped
from palinurus.extensions.channels.account import RunningAccount
from palinurus.extensions.channels.acknowledge import acknowledge
from palinurus.extensions.channels.media import add_files, name_files
from palinurus.extensions.channels.questions import answer_press
from palinurus.extensions.channels.store import ChannelStore
from palinurus.operations.services import Services

REMEMBERED_MS = 20 * 60 * 1000
MOST_REMEMBERED = 5_000
LONGEST_QUOTE = 4_000
LONGEST_FORWARD = 20_000


class RecentUpdates:
    """Ids of updates that were received in the last twenty minutes."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, int] = OrderedDict()

    def add(self, update: str, now: int) -> bool:
        """False: it is known already."""
        while self._seen and (len(self._seen) >= MOST_REMEMBERED or now - self._oldest > REMEMBERED_MS):
            self._seen.popitem(last=False)
        if update in self._seen:
            return False
        self._seen[update] = now
        return True

    @property
    def _oldest(self) -> int:
        return next(iter(self._seen.values()))

    def remove(self, update: str) -> None:
        """It was not taken: it may come again."""
        self._seen.pop(update, None)


class AccountInbox:
    """Implements ChannelInbox."""

    def __init__(
        self, services: Services, store: ChannelStore, account: RunningAccount, commands: tuple[ChannelCommand, ...]
    ) -> None:
        self.commands = commands
        self.when_connected: Callable[[], Awaitable[None]] | None = None
        self._services = services
        self._store = store
        self._account = account
        self._recent = RecentUpdates()
        self._taking: dict[str, asyncio.Future[None]] = {}  # updates that are being stored
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, identity: str) -> None:
        self._account.connected(identity)
        if self.when_connected is not None:
            self._spawn(self.when_connected())

    def disconnected(self, why: str) -> None:
        self._account.disconnected(why)

    async def load_cursor(self) -> str:
        return await self._store.cursor(self._account.name, self._account.account)

    async def save_cursor(self, cursor: str) -> None:
        await self._store.save_cursor(self._account.name, self._account.account, cursor)

    async def receive(self, message: ChannelMessage) -> None:
        if (taking := self._taking.get(message.update)) is not None:  # it came again before it was stored
            await asyncio.shield(taking)
            return
        if not self._recent.add(message.update, self._services.clock.now_ms()):
            return
        taking = self._taking[message.update] = asyncio.ensure_future(self._take(message))
        try:
            await taking
        except BaseException:
            self._recent.remove(message.update)
            raise
        finally:
            del self._taking[message.update]

    async def _take(self, message: ChannelMessage) -> None:
        self._account.count_received()
        try:
            received = await self._services.reception.receive(
                self._inbound(message), lambda inbound, route: self._complete(message, inbound, route)
            )
        except BadRequest as error:  # too long, or empty: nobody can answer it
            self._account.log.info("a message of %s is refused: %s", message.sender, error)
            return
        if received.outcome == "accepted":
            self._spawn(acknowledge(self._services, self._account, message))

    async def report_failure(self, to: str, message_id: str, why: str) -> None:
        await self._services.deliveries.report_failure(self._account.name, to, message_id, why)

    async def press(self, press: ButtonPress) -> str:
        return await answer_press(self._services, self._account, press)

    def _inbound(self, message: ChannelMessage) -> Inbound:
        name, account = self._account.name, self._account.account
        text = message.text if message.text.strip() else name_files(message.files)
        notes = [_quoted_note(message.quoted, name)] if message.quoted is not None else []
        if message.forwarded_from and message.text.strip() and self._services.reception.is_owner(name, message.sender):
            notes.append(_forwarded_note(message))  # else it is text from outside anyway
            text = FORWARDED
        return Inbound(
            f"[changed] {text}" if message.is_edit else text,
            f"{name}:{account}:{message.update}",
            channel=name,
            account=account,
            peer=message.peer,
            message_id=message.id,
            sender=message.sender,
            notes=tuple(filter(None, notes)),
            reply_to=Delivery(name, message.peer.id, account, message.peer.thread),
        )

    async def _complete(self, message: ChannelMessage, inbound: Inbound, route: MessageRoute) -> Inbound:
        if not message.files:
            return inbound
        return await add_files(self._services, self._account, message, inbound, route.agent_id)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001  the message itself is stored
                self._account.log.info("%s: %r", self._account.name, error)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _quoted_note(quoted: QuotedMessage, channel: str) -> ContextNote | None:
    """What the message answers: the agent's own words as they are, those of others as text from outside."""
    text = quoted.text.strip()[:LONGEST_QUOTE]
    if not text:
        return None
    if quoted.is_own:
        return ContextNote("notice", f"The message answers this one of yours:\n{harmless(text)}")
    name = plain_name(quoted.sender_name or quoted.sender) or "somebody"
    told = f"The message answers this one of {name}:\n{wrapped('this chat', text)}"
    sources = (f"sender:{channel}:{quoted.sender}",) if quoted.sender else ()
    return ContextNote("history", told, origin=Origin.OUTSIDE, sources=sources)


def _forwarded_note(message: ChannelMessage) -> ContextNote:
    """What somebody else wrote and the sender passes on: their words, and no commands."""
    text = wrapped("a forwarded message", message.text.strip()[:LONGEST_FORWARD])
    told = f"The sender passes on this message of {plain_name(message.forwarded_from) or 'somebody'}:\n{text}"
    return ContextNote("history", told, origin=Origin.OUTSIDE)
