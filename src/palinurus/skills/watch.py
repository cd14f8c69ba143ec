"""Sees that nothing changes below the roots of skills, so that a turn need not look at a thousand files.

The kernel tells of changes through `watchfiles`. Every root has a stamp that changes when something below it does, and
from time to time in any case: a change that nobody told of (a network file system, a link that leads away) is found a
little later instead of never. A root that is not watched, because it is not there yet or cannot be, has no stamp and is
looked at each time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from contextlib import suppress

log = logging.getLogger(__name__)

TICK_MS = 1_000
TICKS = 10  # after so many every root is looked at again, whatever was told
GATHER_MS, PAUSE_MS = 200, 20  # one installation is many changes


class SkillWatch:
    """One for a process that stays."""

    def __init__(self) -> None:
        self._wanted: frozenset[str] = frozenset()
        self._stamps: dict[str, int] = {}  # of those that are being watched
        self._last = 0
        self._task: asyncio.Task[None] | None = None
        self.trouble = ""

    def cover(self, roots: Iterable[str]) -> None:
        """Watch these too, from the next tick on. May be called from any thread."""
        self._wanted |= frozenset(roots)

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_watch(), name="pal-skill-watch")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def stamp(self, root: str) -> int | None:
        """The same as before: nothing has changed below it since. None: it is not watched."""
        return self._stamps.get(root)

    async def _keep_watch(self) -> None:
        """Until it is cancelled, or the kernel will not have it."""
        try:
            while True:
                wanted = self._wanted
                if present := await asyncio.to_thread(_present, wanted):
                    await self._watch(present, wanted)
                else:
                    await asyncio.sleep(TICK_MS / 1000)
        except (OSError, RuntimeError) as error:  # RuntimeError is what watchfiles makes of the kernel's refusals
            self.trouble = f"skills cannot be watched: {error}"
            log.info(self.trouble)
        finally:
            self._stamps = {}

    async def _watch(self, roots: frozenset[str], wanted: frozenset[str]) -> None:
        """Returns when other roots are to be watched."""
        import watchfiles

        changes = watchfiles.awatch(
            *sorted(roots),
            watch_filter=None,
            debounce=GATHER_MS,
            step=PAUSE_MS,
            rust_timeout=TICK_MS,
            yield_on_timeout=True,
        )
        ticks = 0
        try:
            async for told in changes:
                ticks += not told
                if self._wanted != wanted:
                    return
                if not self._stamps or ticks >= TICKS:
                    if await asyncio.to_thread(_present, wanted) != roots:
                        return
                    ticks = 0
                    self._renew(roots)
                elif told:
                    self._renew(_concerned(roots, (path for _, path in told)))
        finally:
            self._stamps = {}
            with suppress(RuntimeError):  # it was being waited for when the task was cancelled
                await changes.aclose()

    def _renew(self, roots: Iterable[str]) -> None:
        self._last += 1
        self._stamps.update(dict.fromkeys(roots, self._last))


def _present(roots: frozenset[str]) -> frozenset[str]:
    return frozenset(filter(os.path.isdir, roots))


def _concerned(roots: frozenset[str], paths: Iterable[str]) -> frozenset[str]:
    """The roots that these changes are below of; all of them when one is below none, or is a root itself."""
    found = set()
    for path in paths:
        above = {root for root in roots if path.startswith(f"{root}/")}
        if not above:
            return roots
        found |= above
    return frozenset(found)
