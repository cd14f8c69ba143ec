"""What a session needs between two turns, done in its lane: notes, files of notes, the context engine's last word.

It gives way: whoever speaks meanwhile makes it short, and so does a process that leaves.
"""

from __future__ import annotations

import logging

from palinurus.agent.stop import Stop
from palinurus.agent.turn import TurnRunner
from palinurus.domain.errors import StorageError
from palinurus.domain.keys import SessionKey

log = logging.getLogger(__name__)


class Settling:
    def __init__(self, turns: TurnRunner) -> None:
        self._turns = turns
        self._going: dict[SessionKey, Stop] = {}

    async def after_turn(self, key: SessionKey, *, hurry: bool) -> None:
        stop = self._going[key] = Stop()
        if hurry:
            stop.request("somebody waits")
        try:
            await self._turns.settle(key, stop)
        except StorageError as error:  # what was not done is done after the next turn
            log.warning("%s could not be settled: %s", key, error)
        finally:
            del self._going[key]

    def hurry(self, key: SessionKey | None = None) -> None:
        for going, stop in self._going.items():
            if key in (None, going):
                stop.request("somebody waits")
