"""Conversations that nobody uses any more: which `session.maintenance` would put away, or has waiting."""

from __future__ import annotations

from pathlib import Path

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.errors import StorageError
from palinurus.runtime.checks.check import Check, ok, warning
from palinurus.runtime.checks.place import open_database
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.retention import find_stale
from palinurus.sessions.session import Session
from palinurus.sessions.settings import MaintenanceSettings
from palinurus.sessions.store import SessionStore

MANY = 100_000


async def check_sessions(home: Home, loaded: LoadedConfig) -> list[Check]:
    """Nothing when there is no database, or one that cannot be read: others say so."""
    path = home.root / "home.sqlite"
    if not path.exists():
        return []
    try:
        sessions, waiting = await _read(path)
    except StorageError:
        return []
    settings = loaded.config.section(MaintenanceSettings)
    old = [each for each in find_stale(sessions, settings, SystemClock().now_ms()) if not each.one_off]
    checks = [ok("sessions", f"{len(sessions):,} open")]
    if old and settings.mode == "warn":
        what = f"{len(old):,} of {len(sessions):,} could be archived: {old[0].key} is {old[0].why}"
        todo = "`pal sessions cleanup --enforce` does it once, session.maintenance.mode enforce does it always"
        checks = [warning("sessions", what, todo=todo)]
    elif old:
        checks = [ok("sessions", f"{len(sessions):,} open, {len(old):,} of them will be archived")]
    if waiting:
        what = f"{len(waiting):,} notes wait for their file; a search finds them"
        checks.append(warning("notes", what, todo="see whether the workspace can be written"))
    return checks


async def _read(path: Path) -> tuple[list[Session], list[Extraction]]:
    async with open_database(path, "home") as database:
        store = SessionStore(database, SystemClock(), random_id)
        return await store.recent(limit=MANY), await store.unplaced(MANY)
