"""Traces of runs: made while they run, stored when they end, found by a prefix of their id."""

from __future__ import annotations

from collections.abc import Callable

from palinurus.dispatch.runs import Run, Runs
from palinurus.domain.clock import Clock
from palinurus.domain.events import AssistantDelta, Lifecycle, RunEvent, ThinkingDelta
from palinurus.ledger.trace import Collector, RunTrace, Status, TraceStore

NOT_TRACED = (AssistantDelta, ThinkingDelta)  # most events are deltas, which are not part of a trace
OnTrace = Callable[[RunTrace], None]
"""Called with the trace of a run that has ended. Must neither block nor raise."""


class Tracer:
    """Makes traces from the events of all runs: `runs.listen(tracer)`."""

    def __init__(self, store: TraceStore, clock: Clock, runs: Runs) -> None:
        self.listeners: list[OnTrace] = []  # called with the traces of ended runs
        self._store = store
        self._clock = clock
        self._runs = runs
        self._collectors: dict[str, Collector] = {}  # of runs that go on

    def __call__(self, run: Run, event: RunEvent) -> None:
        if isinstance(event, NOT_TRACED):
            return
        collector = self._collectors.get(run.id)
        if collector is None:
            collector = self._collectors[run.id] = _collector(run)
        now = self._clock.now_ms()
        if isinstance(event, Lifecycle) and event.phase in ("end", "error", "aborted"):
            del self._collectors[run.id]
            trace = collector.trace(now, run.result)
            self._store.note(trace)
            for listener in self.listeners:
                listener(trace)
        else:
            collector.hear(event, now)

    def going_on(self) -> list[RunTrace]:
        """Running and waiting ones, the newest first."""
        now = self._clock.now_ms()
        active = reversed(self._runs.active())
        return [(self._collectors.get(run.id) or _collector(run)).trace(now) for run in active]

    async def recent(self, *, limit: int, session: str = "", status: Status | None = None) -> list[RunTrace]:
        """Running ones, then ended ones."""
        live = [
            trace for trace in self.going_on() if session in ("", trace.session_key) and status in (None, trace.status)
        ][:limit]
        if len(live) == limit or status in ("waiting", "running"):
            return live
        return [*live, *await self._store.recent(limit=limit - len(live), session=session, status=status)]

    async def find(self, beginning: str) -> list[RunTrace]:
        """At most two traces whose run id starts with `prefix`. A resumed run is returned as it runs now."""
        live = {trace.run_id: trace for trace in self.going_on() if trace.run_id.startswith(beginning)}
        over = {trace.run_id: trace for trace in await self._store.find(beginning)}
        found = over | live
        return [found[run_id] for run_id in sorted(found)][:2]


def _collector(run: Run) -> Collector:
    channel = run.inbound.channel if run.inbound is not None else ""
    return Collector(run.id, str(run.key), channel, run.accepted_at)
