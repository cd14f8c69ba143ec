"""A store of traces in memory, held to the same contract suite as SQLite's."""

from __future__ import annotations

import asyncio

from palinurus.ledger.trace import RunTrace, Status


class MemoryTraces:
    """Implements dispatch.traces.TraceStore."""

    def __init__(self, *, kept: int = 10_000) -> None:
        self.traces: dict[str, RunTrace] = {}  # in the order in which the runs ended
        self._kept = kept

    def note(self, trace: RunTrace) -> None:
        self.traces.pop(trace.run_id, None)
        self.traces[trace.run_id] = trace
        while len(self.traces) > self._kept:
            del self.traces[next(iter(self.traces))]

    async def recent(self, *, limit: int, session: str = "", status: Status | None = None) -> list[RunTrace]:
        await asyncio.sleep(0)
        found = [
            trace
            for trace in reversed(self.traces.values())
            if session in ("", trace.session_key) and status in (None, trace.status)
        ]
        return found[:limit]

    async def find(self, beginning: str) -> list[RunTrace]:
        await asyncio.sleep(0)
        found = sorted(run_id for run_id in self.traces if run_id.startswith(beginning))
        return [self.traces[run_id] for run_id in found[:2]]
