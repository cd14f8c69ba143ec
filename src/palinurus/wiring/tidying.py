"""The house tidies up now and then: conversations that nobody uses any more, and notes that still wait for a file."""

from __future__ import annotations

import asyncio
import logging

from palinurus.domain.errors import PalinurusError
from palinurus.operations.house import House
from palinurus.operations.session_cleanup import clean_up_sessions

log = logging.getLogger(__name__)

EVERY_SECONDS = 6 * 3600.0


class Tidying:
    def __init__(self, house: House) -> None:
        self._house = house
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="pal-tidying")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _work(self) -> None:
        while True:
            await self._house.turns.upkeep.place_notes()
            try:
                await clean_up_sessions(self._house, enforce=None)
            except PalinurusError as error:  # the next time
                log.warning("could not tidy up: %s", error)
            await asyncio.sleep(EVERY_SECONDS)
