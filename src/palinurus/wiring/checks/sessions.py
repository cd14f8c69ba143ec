"""Conversations that nobody uses any more: which `session.maintenance` would put away, or has waiting."""

from __future__ import annotations

from pathlib import Path

from palinurus.config.compacting_settings import maintenance_settings
from palinurus.config.home import Home
from palinurus.config.load import Loaded
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.errors import StorageError
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.retention import stale
from palinurus.sessions.session import Session
from palinurus.storage.database import Database
from palinurus.storage.sqlite import SqliteSessions
from palinurus.wiring.checks.check import Check, ok, warning

MANY = 100_000


async def check_sessions(home: Home, loaded: Loaded) -> list[Check]:
    """Nothing when there is no database, or one that cannot be read: others say so."""
    path = home.root / "home.sqlite"
    if not path.exists():
        return []
    try:
        sessions, waiting = await _read(path)
    except StorageError:
        return []
    settings = maintenance_settings(loaded.config)
    old = stale(sessions, settings, SystemClock().now_ms())
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
    database = Database(path, "home", readonly=True)
    try:
        store = SqliteSessions(database, SystemClock(), random_id)
        return await store.recent(limit=MANY), await store.unplaced(MANY)
    finally:
        await database.close()
