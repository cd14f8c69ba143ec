"""Put away conversations that nobody uses any more, as `session.maintenance` says. Never silently, and never a word."""

from __future__ import annotations

import logging
from typing import Annotated

from msgspec import Struct

from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.sessions.retention import Stale, stale

log = logging.getLogger(__name__)

MANY = 100_000
MARK = "maintenance"


class CleanedUp(Struct, frozen=True):
    enforced: bool
    stale: tuple[Stale, ...] = ()
    archived: tuple[str, ...] = ()  # their keys
    failed: tuple[str, ...] = ()  # one line each


@operation("sessions.cleanup", scope="admin")
async def clean_up_sessions(
    house: House, enforce: Annotated[bool | None, "Archive them now, whatever the config says."] = False
) -> CleanedUp:
    """Show conversations that nobody uses any more, or archive them. Not a word is removed.

    Which ones is said by session.maintenance: silent for pruneAfter, or more than maxEntries of them. With
    mode enforce it happens by itself, while a gateway runs.

    Examples:
      pal sessions cleanup
      pal sessions cleanup --enforce
    """
    settings = house.maintenance()
    found = stale(await house.sessions.recent(limit=MANY), settings, house.clock.now_ms())
    if not (settings.mode == "enforce" if enforce is None else enforce):
        if found:
            log.info("%d conversations could be archived: `pal sessions cleanup` lists them", len(found))
        return CleanedUp(enforced=False, stale=tuple(found))
    archived: list[str] = []
    failed: list[str] = []
    for each in found:
        try:
            if await _archive(house, each):
                log.info("%s is archived: %s", each.key, each.why)
                archived.append(each.key)
        except PalinurusError as error:
            failed.append(f"{each.key}: {error}")
    return CleanedUp(True, tuple(found), tuple(archived), tuple(failed))


async def _archive(house: House, each: Stale) -> bool:
    """In its lane, after notes were taken of what is in none yet. False when somebody has spoken there meanwhile."""
    key = SessionKey.parse(each.key)

    async def work() -> bool:
        now = await house.sessions.find(key)
        if now is None or now.id != each.session_id:
            return False
        if not stale([now], house.maintenance(), house.clock.now_ms()) and each.why.startswith("silent"):
            return False
        await house.turns.reset(key, MARK, f"{now.id}-{MARK}")
        await house.sessions.archive(now.id, MARK)
        return True

    return await house.dispatcher.in_lane(key, work)


OPERATIONS = (clean_up_sessions,)
