"""One comparison of the disk with the index: how far it is, and what it means for an answer."""

from __future__ import annotations

import asyncio
import time

from palinurus.domain.errors import PalinurusError
from palinurus.memory.answer import Freshness
from palinurus.memory.report import OnProgress, Progress, Skipped, SyncReport

TOLD = 5  # paths that are named of those that are behind


class Sweep:
    """One comparison of the disk with the index, under way or done."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.force = False
        self.gentle = True  # conversations that grew by little may wait
        self.listeners: list[OnProgress] = []
        self.began = time.perf_counter()
        self.swept = False  # it is known what differs
        self.compared = self.added = self.changed = self.removed = self.pieces = 0
        self.behind: dict[str, None] = {}
        self.skipped: list[Skipped] = []
        self.unseen: dict[str, str] = {}  # what could not be looked at; of it the index is believed
        self.missing = ""  # a root that is not there
        self.trouble = ""
        self.error: Exception | None = None

    def tell(self, stage: str, done: int, total: int) -> None:
        for listener in self.listeners:
            listener(Progress(stage, done, total))

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self.done.set_result(None)

    def report(self) -> SyncReport:
        return SyncReport(
            compared=self.compared,
            added=self.added,
            changed=self.changed,
            removed=self.removed,
            pieces=self.pieces,
            skipped=tuple(self.skipped),
            behind=tuple(self.behind),
            took_ms=round((time.perf_counter() - self.began) * 1000, 1),
            trouble=self.trouble,
        )

    def freshness(self) -> Freshness:
        behind = list(self.behind)
        return Freshness(
            "unswept" if not self.swept else "stale" if behind or self.unseen or self.error else "fresh",
            compared=self.compared,
            caught_up=self.added + self.changed + self.removed,
            behind=tuple(behind[:TOLD]),
            behind_count=len(behind),
            why=self._why(),
        )

    def _why(self) -> str:
        if isinstance(self.error, PalinurusError):
            return self.error.message
        if not self.swept:
            return "there was no time to look at the files"
        if self.behind:
            return "there was no time to read all that has changed"
        for path, reason in self.unseen.items():
            return f"{path} could not be looked at: {reason}"
        return self.trouble or (f"not there: {self.missing}" if self.missing else "")
