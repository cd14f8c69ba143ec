"""Maintenance of a home every few hours: unused sessions are archived, waiting notes are written to their files."""

from __future__ import annotations

import asyncio
import logging

from palinurus.domain.errors import PalinurusError
from palinurus.operations.services import Services
from palinurus.operations.session_maintenance import clean_up_sessions

log = logging.getLogger(__name__)

EVERY_SECONDS = 6 * 3600.0


class HomeMaintenance:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="pal-maintenance")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _work(self) -> None:
        while True:
            await self._services.turns.maintenance.place_notes()
            try:
                await clean_up_sessions(self._services, enforce=None)
            except PalinurusError as error:  # the next time
                log.warning("maintenance failed, next try in some hours: %s", error)
            await asyncio.sleep(EVERY_SECONDS)
