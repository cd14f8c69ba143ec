"""Runs in progress and just ended: what they said so far, and how they came out.

A run keeps the log of its events; whoever follows it reads that log from any place, so a slow follower costs nothing
and a late one misses nothing. The log has a cap: past it, deltas are no longer kept (the reply itself is, in the
transcript) and the end says how many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator

from palinurus.agent.loop import Stop
from palinurus.dispatch.queueing import QueueSettings
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import WaitTimeout
from palinurus.domain.events import AssistantDelta, Lifecycle, Notice, RunEvent, RunResult, ThinkingDelta
from palinurus.domain.keys import SessionKey

log = logging.getLogger(__name__)

LOG_CAP = 100_000
KEPT_ENDED = 200


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
        self._log: list[RunEvent] = [Lifecycle("accepted")]
        self._dropped = 0
        self._news = asyncio.Event()

    def emit(self, event: RunEvent) -> None:
        if len(self._log) >= LOG_CAP and isinstance(event, AssistantDelta | ThinkingDelta):
            self._dropped += 1
            return
        self._log.append(event)
        self._tell()
        if isinstance(event, Lifecycle):
            self._note(logging.INFO, f"run {event.phase} {event.detail}".rstrip())
        elif isinstance(event, Notice):
            self._note(logging.WARNING, event.text)

    def end(self, result: RunResult) -> None:
        if self.result is None:
            self.result = result
            phase = {"ok": "end", "error": "error", "aborted": "aborted"}[result.status]
            left_out = f" ({self._dropped} deltas were not kept)" if self._dropped else ""
            self._log.append(Lifecycle(phase, result.error + left_out))  # type: ignore[arg-type]  # the three above
            self._tell()
            told = f"run {phase} after {result.duration_ms} ms, {result.model or 'no model'}"
            told = ": ".join(part for part in (told, result.error_kind, result.error) if part)
            self._note(logging.ERROR if result.status == "error" else logging.INFO, told)

    def _note(self, level: int, text: str) -> None:
        log.log(level, "%s", text, extra={"run": self.id, "session": str(self.key)})

    def _tell(self) -> None:
        # A fresh event for those who come later; all who wait on the old one wake up.
        self._news.set()
        self._news = asyncio.Event()

    async def events(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """Everything from place `after` of the log on, to the end of the run."""
        at = after
        while True:
            while at < len(self._log):
                at += 1
                yield self._log[at - 1]
            if self.result is not None:
                return
            await self._news.wait()

    async def wait(self, timeout: float | None = None) -> RunResult:
        """How it came out. Waiting never cancels the run."""
        try:
            async with asyncio.timeout(timeout):
                while self.result is None:
                    await self._news.wait()
        except TimeoutError:
            raise WaitTimeout(f"run {self.id} is still going on after {timeout:g} s", hint="wait again") from None
        return self.result


class Runs:
    """The runs that this process knows: all that go on, and the last that ended."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def add(self, run: Run) -> Run:
        self._runs[run.id] = run
        ended = [known.id for known in self._runs.values() if known.result is not None]
        for run_id in ended[:-KEPT_ENDED]:
            del self._runs[run_id]
        return run

    def get(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def asked_before(self, idempotency_key: str) -> Run | None:
        """The run that goes on or waits under this key."""
        return next(
            (run for run in self.active() if run.inbound and run.inbound.idempotency_key == idempotency_key), None
        )

    def waiting(self, key: SessionKey) -> list[Run]:
        """Those of a session whose turn has not started and that nobody has taken along, oldest first."""
        return [run for run in self.active(key) if run.waits and run.host is None]

    def active(self, key: SessionKey | None = None) -> list[Run]:
        return [run for run in self._runs.values() if run.result is None and key in (None, run.key)]
