"""Finds sessions that are no longer used, and why. Pure; operations/session_maintenance.py archives them.

After a session is archived, the next message under its key starts a new one. Nothing is removed: transcripts stay in
the database, in searches and in memory. The main session of an agent is never archived. That of a single request to
the API is archived after a day, whatever the config says.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.sessions.session import Session
from palinurus.sessions.settings import MaintenanceSettings

DAY_MS = 86_400_000


class StaleSession(Struct, frozen=True, rename="camel"):
    key: str
    session_id: str
    why: str
    one_off: bool = False


def find_stale(sessions: Sequence[Session], settings: MaintenanceSettings, now_ms: int) -> list[StaleSession]:
    """Sessions that are idle for too long, and the oldest beyond the maximum; the longest idle first."""
    going = sorted((each for each in sessions if each.archived_at is None), key=lambda each: each.updated_at)
    found: list[StaleSession] = []
    for number, session in enumerate(going):
        silent = now_ms - session.updated_at
        key = _key(session)
        if key is None or key.kind == "main":
            continue
        if key.is_one_off and silent > DAY_MS:
            found.append(StaleSession(session.key, session.id, "silent since a program's request", one_off=True))
            continue
        if settings.after_seconds is not None and silent > settings.after_seconds * 1000:
            found.append(StaleSession(session.key, session.id, f"silent for {silent // DAY_MS} days"))
        elif settings.most is not None and len(going) - len(found) > settings.most:
            why = (
                f"one of {len(going):,} conversations; {settings.most:,} are kept open, and this is number {number + 1}"
            )
            found.append(StaleSession(session.key, session.id, why))
    return found


def _key(session: Session) -> SessionKey | None:
    try:
        return SessionKey.parse(session.key)
    except BadRequest:  # an unknown kind, to which no message can be sent
        return None
