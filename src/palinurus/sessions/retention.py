"""Which conversations nobody uses any more. Pure: it says which and why; who archives them is another's business.

Archived means that the key begins a new conversation when somebody speaks there again. Not a word is removed: what was
said stays in the database, in searches and in memory. The main session of an agent never goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from palinurus.config.compacting import MaintenanceSettings
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.sessions.session import Session

DAY_MS = 86_400_000


class Stale(Struct, frozen=True, rename="camel"):
    key: str
    session_id: str
    why: str


def stale(sessions: Sequence[Session], settings: MaintenanceSettings, now_ms: int) -> list[Stale]:
    """Those that have been silent for too long, and the oldest of what is too many; the longest silent first."""
    going = sorted((each for each in sessions if each.archived_at is None), key=lambda each: each.updated_at)
    found: list[Stale] = []
    for number, session in enumerate(going):
        silent = now_ms - session.updated_at
        if _is_main(session):
            continue
        if settings.after_seconds is not None and silent > settings.after_seconds * 1000:
            found.append(Stale(session.key, session.id, f"silent for {silent // DAY_MS} days"))
        elif settings.most is not None and len(going) - len(found) > settings.most:
            why = (
                f"one of {len(going):,} conversations; {settings.most:,} are kept open, and this is number {number + 1}"
            )
            found.append(Stale(session.key, session.id, why))
    return found


def _is_main(session: Session) -> bool:
    try:
        return SessionKey.parse(session.key).kind == "main"
    except BadRequest:  # nobody can speak there again; but nobody knows what it was either
        return True
