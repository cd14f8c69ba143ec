"""Traces of runs: made while they go on, kept when they are over, found again by the beginning of their id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from palinurus.dispatch.runs import Run, Runs
from palinurus.domain.clock import Clock
from palinurus.domain.events import AssistantDelta, Lifecycle, RunEvent, ThinkingDelta
from palinurus.ledger.trace import Collector, RunTrace, Status

SAYS_NOTHING = (AssistantDelta, ThinkingDelta)  # most events, and none of them is part of a trace
Kept = Callable[[RunTrace], None]
"""Handed the trace of a run that is over. Must neither block nor raise."""


class TraceStore(Protocol):
    """Keeps the traces of the last runs; older ones give way to newer ones."""

    def note(self, trace: RunTrace) -> None:
        """Keep it in place of an earlier one of the same run. Waits for nothing and raises nothing."""

    async def recent(self, *, limit: int, session: str = "", status: Status | None = None) -> list[RunTrace]:
        """Newest first: by when they ended. What was noted before is among them."""

    async def find(self, beginning: str) -> list[RunTrace]:
        """Those whose run's id begins so, in its order, at most two."""


class Tracer:
    """Hears the events of all runs, once it is among their listeners: `runs.listen(tracer)`."""

    def __init__(self, store: TraceStore, clock: Clock, runs: Runs) -> None:
        self.told: list[Kept] = []  # who else wants the traces of runs that are over
        self._store = store
        self._clock = clock
        self._runs = runs
        self._collectors: dict[str, Collector] = {}  # of runs that go on

    def __call__(self, run: Run, event: RunEvent) -> None:
        if isinstance(event, SAYS_NOTHING):
            return
        collector = self._collectors.get(run.id)
        if collector is None:
            collector = self._collectors[run.id] = _collector(run)
        now = self._clock.now_ms()
        if isinstance(event, Lifecycle) and event.phase in ("end", "error", "aborted"):
            del self._collectors[run.id]
            trace = collector.trace(now, run.result)
            self._store.note(trace)
            for told in self.told:
                told(trace)
        else:
            collector.hear(event, now)

    def going_on(self) -> list[RunTrace]:
        """Those that run or wait, the newest first."""
        now = self._clock.now_ms()
        active = reversed(self._runs.active())
        return [(self._collectors.get(run.id) or _collector(run)).trace(now) for run in active]

    async def recent(self, *, limit: int, session: str = "", status: Status | None = None) -> list[RunTrace]:
        """What goes on, then what is over."""
        live = [
            trace for trace in self.going_on() if session in ("", trace.session_key) and status in (None, trace.status)
        ][:limit]
        if len(live) == limit or status in ("waiting", "running"):
            return live
        return [*live, *await self._store.recent(limit=limit - len(live), session=session, status=status)]

    async def find(self, beginning: str) -> list[RunTrace]:
        """Those whose run's id begins so, at most two. A run that was taken up again is told as it goes on now."""
        live = {trace.run_id: trace for trace in self.going_on() if trace.run_id.startswith(beginning)}
        over = {trace.run_id: trace for trace in await self._store.find(beginning)}
        found = over | live
        return [found[run_id] for run_id in sorted(found)][:2]


def _collector(run: Run) -> Collector:
    channel = run.inbound.channel if run.inbound is not None else ""
    return Collector(run.id, str(run.key), channel, run.accepted_at)


class NoTraces:
    """Implements TraceStore where nothing is kept."""

    def note(self, trace: RunTrace) -> None: ...

    async def recent(self, *, limit: int, session: str = "", status: Status | None = None) -> list[RunTrace]:
        return []

    async def find(self, beginning: str) -> list[RunTrace]:
        return []
