"""What extensions run while a process stays: started with it, and started anew when the config has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from palinurus.domain.errors import PalinurusError
from palinurus.runtime.extensions import LOADED
from palinurus.runtime.services import HomeServices

LOOK_SECONDS = 15.0  # between two looks at the files of the config, while nobody else looks

log = logging.getLogger(__name__)


async def run_services(services: HomeServices) -> None:
    """Until it is cancelled. Nothing is imported for an extension that the config has no section of."""
    running: list[asyncio.Task[None]] = []
    seen: object = None
    try:
        while True:
            config = services.agents.current_config()
            if config is not seen:
                seen = config
                await _cancel(running)
                running = [asyncio.create_task(_run(each, services)) for each in LOADED.find_services(config)]
            await services.sleep(LOOK_SECONDS)
    finally:
        await _cancel(running)


async def _run(service: Callable[[HomeServices], Awaitable[None]], services: HomeServices) -> None:
    try:
        await service(services)
    except PalinurusError as error:
        log.warning("%s ended: %s", service.__name__, error)
    except Exception:  # the edge of an extension: the others go on
        log.exception("%s ended", service.__name__)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
