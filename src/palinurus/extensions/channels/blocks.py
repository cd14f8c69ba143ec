"""Block streaming: finished parts of a reply are sent before it is complete.

Each part is an exact piece of the model's text and a delivery under a key of its run, so that the reply knows what was
sent (`unsent_text`), whichever process sends it. Short texts between tool calls wait for each other.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from palinurus.config.load import Config
from palinurus.dispatch.delivery import KIND, DeliveryJob, ReplyBlock, delivery_of
from palinurus.dispatch.reply_settings import StreamSettings
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import QueueFull
from palinurus.domain.events import AssistantDelta, RunEvent
from palinurus.extensions.channels.account import RunningAccount
from palinurus.extensions.channels.settings import ReplySettings
from palinurus.operations.services import Services
from palinurus.text.blocks import BlockCutter, TextBlock

BY_DEFAULT = ("telegram",)  # other channels ask for it themselves
BETWEEN = -1  # the segment of texts between tool calls that were joined
MOST_BLOCKS = 1_000


class BlockPlan(Struct, frozen=True):
    """How a reply is cut."""

    settings: StreamSettings
    most: int  # characters of one part

    def cutter(self) -> BlockCutter:
        chunk = self.settings.block_streaming_chunk
        most = min(chunk.max_chars, self.most)
        return BlockCutter(min(chunk.min_chars, most), most, chunk.break_preference)


def block_settings(
    config: Config, agent_id: str, account: RunningAccount, settings: ReplySettings, mode: str
) -> BlockPlan | None:
    """None: finished parts are not sent."""
    own = config.section(StreamSettings, agent_id)
    default = own.block_streaming_default == "on" and account.name in BY_DEFAULT
    wanted = mode == "block" or (default if settings.block_streaming is None else settings.block_streaming)
    return BlockPlan(own, account.channel.capabilities.limits.size) if wanted else None


def block_key(run_id: str, number: int) -> str:
    return f"{run_id}:block:{number}"


class BlockSender:
    """The finished parts of one run. A segment is the text between two tool calls; the reply is the last one."""

    def __init__(self, services: Services, run: Run, place: Delivery, plan: BlockPlan) -> None:
        self._services = services
        self._run = run
        self._place = place
        self._plan = plan
        self._segment = 0
        self._number = 0  # of the next part
        self._cutter = plan.cutter()
        self._ready: list[tuple[str, ReplyBlock]] = []
        self._whole = ""  # of a segment whose parts wait for its end
        self._short = ""  # ends of earlier segments, which wait for each other
        self._news = asyncio.Event()

    @property
    def count(self) -> int:
        """Parts that were handed over."""
        return self._number

    def hear(self, event: RunEvent) -> None:
        if isinstance(event, AssistantDelta):
            self._take(self._cutter.add(event.text))
        else:
            self._end_segment()
        self._news.set()

    async def send(self, ended: asyncio.Event) -> None:
        """Until the run has ended: what was not sent by then is in the reply."""
        idle = self._plan.settings.block_streaming_coalesce.idle_ms / 1000
        while not ended.is_set():
            try:
                async with asyncio.timeout(idle if self._short else None):
                    await self._news.wait()
            except TimeoutError:
                self._let_short_go()
            self._news.clear()
            while self._ready and not ended.is_set():
                if not await self._post(*self._ready.pop(0)):
                    return

    def _take(self, blocks: list[TextBlock]) -> None:
        for block in blocks:
            if self._plan.settings.block_streaming_break == "text_end":
                self._let_short_go()
                self._ready.append((block.text, ReplyBlock(self._segment, block.opened)))
            else:
                self._whole += block.text

    def _end_segment(self) -> None:
        rest = self._whole + "".join(block.text for block in self._cutter.end())
        if rest.strip():
            joined = f"{self._short}\n\n{rest}" if self._short.strip() else rest
            if len(joined) > self._plan.settings.block_streaming_chunk.max_chars:
                self._let_short_go()
                joined = rest
            self._short = joined
        self._segment, self._whole, self._cutter = self._segment + 1, "", self._plan.cutter()

    def _let_short_go(self) -> None:
        if self._short.strip():
            self._ready.append((self._short, ReplyBlock(BETWEEN)))
        self._short = ""

    async def _post(self, text: str, block: ReplyBlock) -> bool:
        """False: no more parts are sent, and the reply says all the rest."""
        if self._number >= MOST_BLOCKS:
            return False
        key, session = block_key(self._run.id, self._number), str(self._run.key)
        try:
            if text.strip():
                await self._services.deliveries.post(self._place, text, key, session_key=session, block=block)
                self._number += 1
        except QueueFull:
            return False
        return True


async def unsent_text(services: Services, delivery: DeliveryJob) -> str:
    """The text of a reply without the parts of it that were sent before it. Those that still wait behind it are
    dropped: the reply says them."""
    if delivery.idempotency_key != delivery.run_id:
        return delivery.text
    said: dict[int, str] = {}
    kind, number = KIND + delivery.channel, 0
    while (job := await services.jobs.find(kind, block_key(delivery.run_id, number))) is not None:
        number += 1
        posted = delivery_of(job)
        if job.state in ("waiting", "retry"):
            await services.jobs.drop(job.id)
        elif posted.block is not None:
            said[posted.block.segment] = said.get(posted.block.segment, "") + posted.text
    begins = said[max(said)].strip() if said and max(said) != BETWEEN else ""
    text = delivery.text.lstrip()
    return text[len(begins) :].lstrip("\n") if begins and text.startswith(begins) else delivery.text
