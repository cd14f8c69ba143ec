"""When a session is reset: never, at an hour of the day, or after idle time. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Literal

from msgspec import Struct

from palinurus.sessions.session import Session


class ResetPolicy(Struct, frozen=True):
    mode: Literal["none", "daily", "idle"] = "none"
    at_hour: int = 4
    idle_minutes: int | None = None


def reset_due(policy: ResetPolicy, session: Session, *, now_ms: int, zone: tzinfo) -> str:
    """Why the session is reset before the new message, or "" if it is not.

    Daily and idle may both be set (a daily policy with idle minutes): the first that is due counts.
    """
    if policy.mode == "none":
        return ""
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    if policy.mode == "daily" and session.started_at < _last_boundary(now, policy.at_hour).timestamp() * 1000:
        return "daily"
    silence = timedelta(milliseconds=now_ms - session.last_interaction_at)
    if policy.idle_minutes and silence > timedelta(minutes=policy.idle_minutes):
        return "idle"
    return ""


def _last_boundary(now: datetime, hour: int) -> datetime:
    # fold: an hour that occurs twice when summer time ends is over the first time.
    today = now.replace(hour=hour, minute=0, second=0, microsecond=0, fold=0)
    return today if now >= today else today - timedelta(days=1)
