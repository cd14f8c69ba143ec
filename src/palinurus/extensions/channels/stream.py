"""What people see of a reply before it is complete: that somebody types, a preview that grows, finished parts.

A preview is one message that is changed while the reply grows; the reply then takes its place (sender.py). Finished
parts (block streaming) are deliveries of their own, ahead of the reply in the queue of the chat; the reply then is what
they did not say. After a crash both are known from the database. Nothing here can fail a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from palinurus.dispatch.channels import ChatTarget, OutgoingPart
from palinurus.dispatch.delivery import KIND, delivery_of
from palinurus.dispatch.runs import Run
from palinurus.domain.errors import JobFailed, NotOffered, PalinurusError
from palinurus.domain.events import (
    ApprovalAsked,
    ApprovalSettled,
    AssistantDelta,
    Lifecycle,
    Notice,
    RunEvent,
    ToolStarted,
)
from palinurus.extensions.channels.account import RunningAccount
from palinurus.extensions.channels.acknowledge import take_back
from palinurus.extensions.channels.blocks import BlockSender, block_settings
from palinurus.extensions.channels.questions import ask
from palinurus.extensions.channels.render import first_part
from palinurus.extensions.channels.store import ChannelStore
from palinurus.operations.services import Services

FindAccount = Callable[[str, str], RunningAccount | None]
TYPING_SECONDS = 4.5
FIRST_TYPING_SECONDS = 0.5  # most commands are answered before
EDIT_SECONDS = 1.2  # between two changes of a preview: networks limit them
SHORTEST_PREVIEW = 40  # characters
MOST_REMEMBERED = 5_000  # runs whose reply waits to be sent
MOST_STEPS = 3  # tools that a preview names
FINISH_SECONDS = 30.0
STREAMING = {"telegram": "progress", "slack": "progress"}

log = logging.getLogger(__name__)


class ReplyStream:
    """One run on its way to one chat."""

    def __init__(self, services: Services, store: ChannelStore, account: RunningAccount, run: Run) -> None:
        assert run.inbound is not None and run.inbound.reply_to is not None  # noqa: S101, PT018  as ReplyStreams asks
        self.inbound = run.inbound
        self.place = run.inbound.reply_to
        self.target = ChatTarget(self.place.to, self.place.thread)
        self.preview = ""
        self._services = services
        self._store = store
        self._account = account
        self._run = run
        settings = account.replies
        self._mode = settings.streaming or STREAMING.get(account.name, "off")
        if not account.channel.capabilities.edits and self._mode != "block":
            self._mode = "off"
        blocks = block_settings(services.config, run.key.agent, account, settings, self._mode)
        self._blocks = BlockSender(services, run, self.place, blocks) if blocks else None
        self._text: list[str] = []  # since the last tool call
        self._steps: list[str] = []
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_cut = False  # something was being sent when it ended, and nobody knows whether it was
        self._tasks = [asyncio.create_task(each) for each in self._work()]

    def hear(self, event: RunEvent) -> None:
        match event:
            case AssistantDelta():
                self._text.append(event.text)
            case ToolStarted():
                self._text.clear()
                self._steps.append(event.name)
            case Notice(discard=True):
                self._text.clear()
            case _:
                return
        if self._blocks is not None:
            self._blocks.hear(event)
        self._news.set()

    async def finish(self) -> str:
        """Shows nothing more; returns the id of the preview, if there is one."""
        self._ended.set()
        self._news.set()
        if self._tasks:  # a network without typing and previews has none
            _, late = await asyncio.wait(self._tasks, timeout=FINISH_SECONDS)
            self._is_cut = bool(late)
            for task in late:
                task.cancel()
        return self.preview

    @property
    def shows_nothing(self) -> bool:
        """Whether nothing of the reply was sent; an earlier process may have sent something of a resumed run."""
        is_resumed = self._run.job is None or self._run.job.attempts > 1
        is_sent = bool(self.preview) or (self._blocks is not None and self._blocks.count > 0)
        return not (is_sent or is_resumed or self._is_cut)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        work: list[Coroutine[Any, Any, None]] = []
        if self._account.channel.capabilities.typing:
            work.append(self._show_typing())
        if self._mode in ("partial", "progress"):
            work.append(self._show_preview())
        if self._blocks is not None:
            work.append(self._blocks.send(self._ended))
        return work

    async def _pause(self, seconds: float) -> bool:
        """False: the run has ended."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return True
        return False

    async def _show_typing(self) -> None:
        seconds = FIRST_TYPING_SECONDS
        while await self._pause(seconds):
            seconds = TYPING_SECONDS
            try:
                await self._account.channel.typing(self.target)
            except Exception as error:  # noqa: BLE001  the edge of an adapter: the reply itself matters
                self._account.log.debug("typing was not shown: %r", error)
                return

    async def _show_preview(self) -> None:
        shown = ""
        while not self._ended.is_set():
            await self._news.wait()
            self._news.clear()
            text = self._shown_text()
            if self._ended.is_set() or text == shown or not text:
                continue
            try:
                if not self.preview and await self._store.has_unsent(self._account.name, self.target.to):
                    await self._pause(EDIT_SECONDS)  # or it would stand before the reply to an earlier message
                    self._news.set()
                    continue
                await self._put(text)
            except JobFailed as error:
                await self._pause(error.retry_after or EDIT_SECONDS)
            except Exception as error:  # noqa: BLE001  the edge of an adapter: the reply itself is sent all the same
                self._account.log.info("no preview of run %s: %r", self._run.id, error)
                return
            else:
                shown = text
            await self._pause(EDIT_SECONDS)

    def _shown_text(self) -> str:
        if self._mode == "progress":
            return "\n".join(f"⏳ {step}" for step in self._steps[-MOST_STEPS:])
        text = "".join(self._text)
        return text if len(text) >= SHORTEST_PREVIEW or self.preview else ""

    async def _put(self, text: str) -> None:
        part = first_part(self._account, text)
        outgoing = OutgoingPart(part.text, part.plain, f"{self._run.id}:preview", silent=True)
        if self.preview:
            await self._account.channel.edit(self.target, self.preview, outgoing)
            return
        self.preview = await self._account.channel.send(self.target, outgoing)
        await self._store.add_preview(self._run.id, self.preview, self._services.clock.now_ms())


class ReplyStreams:
    """Those of all runs that came by a channel."""

    def __init__(self, services: Services, store: ChannelStore, find: FindAccount) -> None:
        self._services = services
        self._store = store
        self._find = find
        self._streams: dict[str, ReplyStream] = {}
        self._unshown: dict[str, None] = {}  # runs of which nothing was sent before their reply, the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, run: Run, event: RunEvent) -> None:
        """A listener of runs."""
        inbound = run.inbound
        if inbound is None or inbound.reply_to is None or inbound.peer is None:
            return
        if isinstance(event, AssistantDelta | ToolStarted | Notice):
            if (stream := self._streams.get(run.id)) is not None:
                stream.hear(event)
        elif isinstance(event, Lifecycle):
            self._hear_lifecycle(run, event)
        elif isinstance(event, ApprovalAsked):
            self._spawn(self._ask(run, event))
        elif isinstance(event, ApprovalSettled):
            self._spawn(self._close_question(run, event))

    @property
    def count(self) -> int:
        return len(self._streams)

    async def finish(self, run_id: str) -> str:
        """Ends what is shown of a run; returns the id of its preview, if there is one."""
        stream = self._streams.get(run_id)
        if stream is None:
            return "" if self.shows_nothing(run_id) else await self._store.preview(run_id)
        preview = await stream.finish()
        if self._streams.pop(run_id, None) is not None and stream.shows_nothing:  # its reply may wait for days
            self._unshown[run_id] = None
            if len(self._unshown) > MOST_REMEMBERED:
                self.forget(next(iter(self._unshown)))
        return preview

    def shows_nothing(self, run_id: str) -> bool:
        """Whether nothing of a reply was sent before it, as far as is known without asking the database."""
        return run_id in self._unshown

    def forget(self, run_id: str) -> None:
        """Its reply was sent."""
        self._unshown.pop(run_id, None)

    async def remove(self, account: RunningAccount, target: ChatTarget, preview: str) -> None:
        """Takes a preview away that no reply replaces."""
        try:
            await account.channel.delete(target, preview)
        except NotOffered:
            await account.channel.edit(target, preview, OutgoingPart("…", "…"))
        except Exception as error:  # noqa: BLE001  the edge of an adapter
            account.log.info("a preview was not removed: %r", error)

    async def close(self) -> None:
        await asyncio.gather(*(stream.finish() for stream in self._streams.values()))
        self._streams.clear()
        for task in tuple(self._tasks):
            task.cancel()

    def _hear_lifecycle(self, run: Run, event: Lifecycle) -> None:
        if event.phase == "start" and run.host is None and run.id not in self._streams:
            assert run.inbound is not None  # noqa: S101  as `hear` asks
            account = self._find(run.inbound.channel, run.inbound.account)
            if account is not None:
                self._streams[run.id] = ReplyStream(self._services, self._store, account, run)
        elif event.phase in ("end", "error", "aborted") and run.id in self._streams:
            self._spawn(self._end(run))

    async def _end(self, run: Run) -> None:
        """A run without a reply leaves no preview behind; otherwise its delivery replaces the preview."""
        stream = self._streams.get(run.id)
        if stream is None:
            return
        preview = await self.finish(run.id)
        account = self._find(stream.place.channel, stream.place.account)
        has_reply = run.result is not None and self._services.deliveries.reply(stream.inbound, run.result) is not None
        if preview and account is not None and not has_reply:
            await self.remove(account, stream.target, preview)
            await self._store.remove_preview(run.id)
        if account is not None:
            await take_back(self._services, account, stream.inbound)

    async def _ask(self, run: Run, event: ApprovalAsked) -> None:
        inbound = run.inbound
        if inbound is None or inbound.reply_to is None:
            return
        account = self._find(inbound.channel, inbound.account)
        buttons = account is not None and account.channel.capabilities.buttons
        await ask(self._services, inbound.reply_to, str(run.key), event, buttons=buttons)

    async def _close_question(self, run: Run, event: ApprovalSettled) -> None:
        """The buttons go, and the decision stands instead of the question."""
        inbound = run.inbound
        account = self._find(inbound.channel, inbound.account) if inbound is not None else None
        if inbound is None or account is None or not account.channel.capabilities.edits:
            return
        job = await self._services.jobs.find(KIND + inbound.channel, f"approval:{event.id}")
        posted = delivery_of(job) if job is not None else None
        if posted is None or not posted.sent:
            return
        by = f" by {event.by}" if event.by else ""
        part = first_part(account, f"{posted.text}\n\n**{event.status}**{by}")
        target = ChatTarget(posted.to, posted.thread)
        await account.channel.edit(target, posted.sent[-1], OutgoingPart(part.text, part.plain))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except PalinurusError as error:
                log.warning("%s", error)
            except Exception:  # the edge of an adapter: runs go on
                log.exception("a reply could not be shown")

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
