"""Runs in progress and just ended: what they said so far, and how they came out.

A run keeps the log of its events; whoever follows it reads that log from any place, so a slow follower costs nothing
and a late one misses nothing. The log has a cap: past it, deltas are no longer kept (the reply itself is, in the
transcript) and the end says how many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence

from palinurus.agent.stop import Stop
from palinurus.dispatch.queueing import QueueSettings
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import WaitTimeout
from palinurus.domain.events import AssistantDelta, Lifecycle, Notice, RunEvent, RunResult, ThinkingDelta
from palinurus.domain.keys import SessionKey

log = logging.getLogger(__name__)

LOG_CAP = 100_000
KEPT_ENDED = 200


Told = Callable[["Run", RunEvent], None]
"""Hears events as they happen. Must neither block nor raise."""


def _nobody(_: Run, __: RunEvent) -> None: ...


class Run:
    """A run that this process knows."""

    def __init__(self, run_id: str, key: SessionKey, accepted_at: int, inbound: Inbound | None = None) -> None:
        self.id = run_id
        self.key = key
        self.accepted_at = accepted_at
        self.inbound = inbound  # None: answered on the spot, or known from its row only
        self.queue = QueueSettings()
        self.waits = True  # until its turn starts
        self.host: Run | None = None  # the run whose turn answers this one too
        self.guests: list[Run] = []
        self.stop = Stop()
        self.result: RunResult | None = None
        self.kept = True  # False: the disk failed, its row has no result, and asking again tries again
        self.told: Told = _nobody
        self._log: list[RunEvent] = [Lifecycle("accepted")]
        self._dropped = 0
        self._news: asyncio.Event | None = None  # there while somebody waits for more
        self._over = asyncio.Event()

    def emit(self, event: RunEvent) -> None:
        if len(self._log) >= LOG_CAP and isinstance(event, AssistantDelta | ThinkingDelta):
            self._dropped += 1
            return
        self._log.append(event)
        self._tell()
        self.told(self, event)
        if isinstance(event, Lifecycle):
            self._note(logging.INFO, f"run {event.phase} {event.detail}".rstrip())
        elif isinstance(event, Notice):
            self._note(logging.WARNING, event.text)

    def end(self, result: RunResult) -> None:
        if self.result is None:
            self.result = result
            phase = {"ok": "end", "error": "error", "aborted": "aborted"}[result.status]
            left_out = f" ({self._dropped} deltas were not kept)" if self._dropped else ""
            last = Lifecycle(phase, result.error + left_out)  # type: ignore[arg-type]  # the three above
            self._log.append(last)
            self._tell()
            self._over.set()
            self.told(self, last)
            told = f"run {phase} after {result.duration_ms} ms, {result.model or 'no model'}"
            told = ": ".join(part for part in (told, result.error_kind, result.error) if part)
            self._note(logging.ERROR if result.status == "error" else logging.INFO, told)

    def _note(self, level: int, text: str) -> None:
        log.log(level, "%s", text, extra={"run": self.id, "session": str(self.key)})

    def _tell(self) -> None:
        if self._news is not None:  # all who wait wake up; those who come later make a fresh one
            self._news.set()
            self._news = None

    async def events(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """Everything from place `after` of the log on, to the end of the run."""
        while news := await self.more(after):
            after += len(news)
            for event in news:
                yield event

    async def more(self, after: int) -> Sequence[RunEvent]:
        """All that has happened from place `after` of the log on, once there is something; nothing at the end."""
        while after >= len(self._log) and self.result is None:
            self._news = self._news or asyncio.Event()
            await self._news.wait()
        return self._log[after:]

    async def wait(self, timeout: float | None = None) -> RunResult:
        """How it came out. Waiting never cancels the run."""
        try:
            async with asyncio.timeout(timeout):
                await self._over.wait()
        except TimeoutError:
            raise WaitTimeout(f"run {self.id} is still going on after {timeout:g} s", hint="wait again") from None
        assert self.result is not None  # noqa: S101  # set before `_over`
        return self.result


class Runs:
    """The runs that this process knows: all that go on, and the last that ended."""

    def __init__(self) -> None:
        self._going: dict[str, Run] = {}  # in the order in which they came
        self._ended: OrderedDict[str, Run] = OrderedDict()
        self.told: Told = _nobody  # hears the events of all runs
        self._listeners: list[Told] = []

    def add(self, run: Run) -> Run:
        run.told = self._pass_on
        self._going[run.id] = run
        if run.result is not None:
            self._put_away(run)
        return run

    def _put_away(self, run: Run) -> None:
        if self._going.get(run.id) is run:
            del self._going[run.id]
            self._ended[run.id] = run
        while len(self._ended) > KEPT_ENDED:
            self._ended.popitem(last=False)

    def listen(self, told: Told) -> None:
        """From now on this one hears the events of all runs too."""
        self._listeners.append(told)

    def _pass_on(self, run: Run, event: RunEvent) -> None:
        if run.result is not None:
            self._put_away(run)
        for told in self._listeners:
            told(run, event)
        self.told(run, event)

    def get(self, run_id: str) -> Run | None:
        return self._going.get(run_id) or self._ended.get(run_id)

    def asked_before(self, idempotency_key: str) -> Run | None:
        """The run that goes on or waits under this key."""
        return next(
            (run for run in self.active() if run.inbound and run.inbound.idempotency_key == idempotency_key), None
        )

    def waiting(self, key: SessionKey) -> list[Run]:
        """Those of a session whose turn has not started and that nobody has taken along, oldest first."""
        return [run for run in self.active(key) if run.waits and run.host is None]

    def active(self, key: SessionKey | None = None) -> list[Run]:
        return [run for run in self._going.values() if run.result is None and key in (None, run.key)]
