"""Commits in the history of a workspace: what tools of a finished run wrote, and what the owner changed on a surface
such as the dashboard. Everything else in the workspace is the owner's to commit.

A run itself never waits for git. The commit comes after a moment of quiet, so that a talk with many turns is not a
commit each; and at the latest when the home is closed. Without git, or where the workspace is no repository of its own,
nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from palinurus.dispatch.runs import Run
from palinurus.domain.errors import NotFound, PalinurusError
from palinurus.domain.events import Lifecycle, RunEvent, ToolFinished
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.history import CommitResult, WorkspaceHistory
from palinurus.workspace.seed import untouched_templates

log = logging.getLogger(__name__)

QUIET_SECONDS = 2.0
CLOSE_SECONDS = 10.0
MOST_NAMED = 20
ENDED = ("end", "error", "aborted")

OWNER = "owner"

Where = Callable[[str], Boundary | None]
"""The workspace of an agent, the one through which all its files are written; None when its history is not kept. Must
not raise."""


class Change(Struct, frozen=True):
    what: str
    by: str


class Histories:
    """Implements dispatch.runs.Told: hears of all runs."""

    def __init__(self, where: Where, redact: Callable[[str], str], quiet: float = QUIET_SECONDS) -> None:
        self._where = where
        self._redact = redact
        self._quiet = quiet
        self._handy: set[str] = set()  # runs that have used a tool
        self._changes: dict[str, list[Change]] = {}  # by agent: what is in no commit yet
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()

    def __call__(self, run: Run, event: RunEvent) -> None:
        if isinstance(event, ToolFinished):
            self._handy.add(run.id)
        elif isinstance(event, Lifecycle) and event.phase in ENDED and run.id in self._handy:
            self._handy.discard(run.id)
            self._note(run.key.agent, Change(f"run {run.id} in {run.key}", run.key.agent))

    def edited(self, agent: str, what: str) -> None:
        """The owner has changed a file on a surface. Must not raise."""
        self._note(agent, Change(what, OWNER))

    def _note(self, agent: str, change: Change) -> None:
        boundary = self._where(agent)
        if boundary is None or not os.path.isdir(boundary.root / ".git"):  # noqa: PTH112 — Path.is_dir may raise
            return
        self._changes.setdefault(agent, []).append(change)
        if agent not in self._tasks:
            self._tasks[agent] = asyncio.create_task(self._work(agent), name=f"history of {agent}")

    async def _work(self, agent: str) -> None:
        """Whenever no run has ended for a while."""
        try:
            while agent in self._changes:
                await self._calm(agent)
                await self._commit(agent)
        finally:
            del self._tasks[agent]

    async def _calm(self, agent: str) -> None:
        known = 0
        while len(self._changes[agent]) != known and not self._closing.is_set():
            known = len(self._changes[agent])
            with suppress(TimeoutError):
                async with asyncio.timeout(self._quiet):
                    await self._closing.wait()

    async def close(self) -> None:
        """Keep now what was to be kept later."""
        self._closing.set()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=CLOSE_SECONDS)

    async def _commit(self, agent: str) -> None:
        changes, boundary = self._changes.pop(agent, []), self._where(agent)
        if not changes or boundary is None:
            return
        written = boundary.take_written()
        if not written:
            return
        body = self._redact("\n".join(change.what for change in changes[-MOST_NAMED:]))
        author = changes[-1].by if len({change.by for change in changes}) == 1 else agent
        try:
            done = await asyncio.to_thread(self._keep, boundary.root, written, body, author)
        except NotFound as error:  # a repository of somebody else's, as they want it
            log.info("no history of %s: %s", agent, error)
            return
        except PalinurusError as error:  # its files are as they were, and the next run tries again
            for path in written:
                boundary.note_written(path)
            log.warning("the history of %s was not kept: %s", agent, error)
            return
        if done.commit is not None:
            log.info("kept %d file(s) of %s in its history: %s", len(done.commit.files), agent, done.commit.id[:12])
        for left in done.left_out:
            log.warning("not taken into the history of %s: %s, because %s", agent, left.path, left.why)

    def _keep(self, root: Path, written: set[str], body: str, author: str) -> CommitResult:
        paths = written | untouched_templates(root)
        return WorkspaceHistory(root).commit_written(paths, body, author, self._redact)
