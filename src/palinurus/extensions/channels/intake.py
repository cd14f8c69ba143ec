"""What adapters do alike with what arrives: order within a chat, acknowledgement, and memory that has bounds."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import TypeVar
from weakref import WeakValueDictionary

from palinurus.dispatch.channels import ChannelInbox, ChannelResponse, FileKind
from palinurus.domain.errors import HolderLost, QueueFull, StorageError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Work = Callable[[], Awaitable[None]]

NOT_TAKEN = (QueueFull, StorageError, HolderLost)
"""What an inbox raises for a message that must come again."""
MOST_IN_FLIGHT = 200
MOST_REQUESTS = 64  # of a network, that are answered at the same time
_KINDS: dict[str, FileKind] = {"image": "image", "audio": "audio", "video": "video"}


class BoundedDict(dict[K, V]):
    """Forgets what was put in first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self.most:
            del self[next(iter(self))]


class ChatOrder:
    """Works on what arrives: in order within a chat, side by side otherwise."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[str, asyncio.Task[None]] = {}  # of a chat
        self._failure: BaseException | None = None

    def start(self, work: Work, chat: str = "") -> asyncio.Task[None]:
        """Without a chat it waits for nothing."""
        task = asyncio.create_task(self._after(self._last.get(chat), work), name=f"chat {chat}")
        self._tasks.add(task)
        if chat:
            self._last[chat] = task
        task.add_done_callback(lambda _: self._forget(task, chat))
        return task

    async def _after(self, earlier: asyncio.Task[None] | None, work: Work) -> None:
        if earlier is not None:
            await asyncio.wait((earlier,))
        await work()

    def _forget(self, task: asyncio.Task[None], chat: str) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure
            log.error("what arrived in the chat %s could not be handled", chat, exc_info=failure)
        if self._last.get(chat) is task:
            del self._last[chat]

    def is_busy(self, chat: str = "") -> bool:
        """With this chat; without one, with any."""
        return chat in self._last if chat else bool(self._tasks)

    async def settle(self, seconds: float) -> None:
        """Waits until all is done, or so long. Raises what work has raised."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        if self._failure is not None:
            raise self._failure

    async def room(self) -> None:
        """Waits while too much is in flight; meanwhile nothing is read from the network."""
        while len(self._tasks) >= MOST_IN_FLIGHT:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def finish(self, seconds: float = 0) -> None:
        """What is quickly done is done."""
        if self._tasks and seconds:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = tuple(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class PostIntake:
    """Takes what a network posts to a webhook. What was not taken is answered with 503, so that it comes again."""

    def __init__(self, log: logging.Logger) -> None:
        self.inbox: ChannelInbox | None = None  # while the account runs
        self._log = log
        self._requests = 0
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, chats: Mapping[str, Callable[[ChannelInbox], Awaitable[object]]]) -> ChannelResponse:
        """The work of each chat, after what was posted for it before; of the chat "" in no order."""
        inbox = self.inbox
        if inbox is None or self._requests >= MOST_REQUESTS:
            return refusal(503, "try again later")
        self._requests += 1
        try:
            work = (self._take_chat(inbox, chat, take) for chat, take in chats.items())
            found = await asyncio.gather(*work, return_exceptions=True)
        finally:
            self._requests -= 1
        for error in found:
            if isinstance(error, NOT_TAKEN):
                self._log.warning("a message was not taken; it will be posted again: %s", error)
            elif error is not None:
                self._log.error("a post could not be handled; it will come again", exc_info=error)
        return refusal(503, "try again later") if any(each is not None for each in found) else ChannelResponse()

    async def _take_chat(
        self, inbox: ChannelInbox, chat: str, take: Callable[[ChannelInbox], Awaitable[object]]
    ) -> None:
        lock = self._order.setdefault(chat, asyncio.Lock()) if chat else asyncio.Lock()
        async with lock:
            await take(inbox)


def refusal(status: int, why: str) -> ChannelResponse:
    return ChannelResponse(status, why[:300].encode())


def is_same(said: str, right: str) -> bool:
    """Whether a secret or a signature is right, in a time that does not tell how much of it is."""
    return hmac.compare_digest(said.encode("utf-8", "replace"), right.encode())


def file_kind(mime_type: str) -> FileKind:
    return _KINDS.get(mime_type.partition("/")[0], "document")
