"""When a session starts over: a table of policies, times and zones."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.keys import SessionKey
from palinurus.sessions.reset import ResetPolicy, reset_due
from palinurus.sessions.session import Session, new_session

BERLIN, NEW_YORK, UTC = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("UTC")
NONE, DAILY, IDLE = ResetPolicy(), ResetPolicy("daily", 4), ResetPolicy("idle", idle_minutes=30)
BOTH = ResetPolicy("daily", 4, 30)


def ms(text: str, zone: ZoneInfo, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp() * 1000)


def session(started: int, spoke: int) -> Session:
    fresh = new_session("s", SessionKey.main(), started)
    return Session(fresh.id, fresh.key, fresh.agent, fresh.chat_type, started, spoke, started, spoke)


@pytest.mark.parametrize(
    ("policy", "started", "spoke", "now", "due"),
    [
        (NONE, "2020-01-01T00:00", "2020-01-01T00:00", "2026-11-15T09:00", ""),
        # daily: the hour of the zone lies between the start and now
        (DAILY, "2026-11-14T22:00", "2026-11-15T03:59", "2026-11-15T03:59:59", ""),
        (DAILY, "2026-11-14T22:00", "2026-11-15T03:59", "2026-11-15T04:00", "daily"),
        (DAILY, "2026-11-15T04:00", "2026-11-15T04:00", "2026-11-15T23:00", ""),
        (DAILY, "2026-11-15T04:00", "2026-11-15T23:00", "2026-11-16T03:00", ""),
        (DAILY, "2026-11-15T03:59", "2026-11-15T03:59", "2026-11-15T05:00", "daily"),
        (ResetPolicy("daily", 0), "2026-11-15T23:59", "2026-11-15T23:59", "2026-11-16T00:00", "daily"),
        (DAILY, "2026-10-01T05:00", "2026-11-15T05:00", "2026-11-15T05:30", "daily"),
        # idle: silence since a person spoke
        (IDLE, "2026-11-15T09:00", "2026-11-15T09:00", "2026-11-15T09:30", ""),
        (IDLE, "2026-11-15T09:00", "2026-11-15T09:00", "2026-11-15T09:30:01", "idle"),
        (IDLE, "2026-11-14T09:00", "2026-11-15T09:00", "2026-11-15T09:10", ""),
        (ResetPolicy("idle"), "2020-01-01T00:00", "2020-01-01T00:00", "2026-11-15T09:00", ""),
        # both: whichever is over first
        (BOTH, "2026-11-15T09:00", "2026-11-15T09:00", "2026-11-15T10:00", "idle"),
        (BOTH, "2026-11-15T03:50", "2026-11-15T03:50", "2026-11-15T04:05", "daily"),
        (BOTH, "2026-11-15T09:00", "2026-11-15T09:50", "2026-11-15T10:00", ""),
    ],
)
@pytest.mark.parametrize("zone", [UTC, BERLIN, NEW_YORK], ids=str)
def test_a_session_starts_over_when_its_policy_says_so(
    policy: ResetPolicy, started: str, spoke: str, now: str, due: str, zone: ZoneInfo
) -> None:
    found = reset_due(policy, session(ms(started, zone), ms(spoke, zone)), now_ms=ms(now, zone), zone=zone)
    assert found == due


def test_the_day_ends_at_the_hour_of_the_owner_s_zone() -> None:
    started, now = ms("2026-11-15T02:00", UTC), ms("2026-11-15T03:30", UTC)  # in Berlin 03:00 and 04:30
    assert reset_due(DAILY, session(started, started), now_ms=now, zone=UTC) == ""
    assert reset_due(DAILY, session(started, started), now_ms=now, zone=BERLIN) == "daily"


def test_an_hour_that_the_clock_skips_in_spring_still_ends_the_day_once() -> None:
    policy = ResetPolicy("daily", 2)  # on 2026-03-29 Berlin's clocks go from 02:00 to 03:00
    before, after = ms("2026-03-29T01:59", BERLIN), ms("2026-03-29T03:00", BERLIN)
    assert reset_due(policy, session(before, before), now_ms=before + 30_000, zone=BERLIN) == ""
    assert reset_due(policy, session(before, before), now_ms=after, zone=BERLIN) == "daily"
    assert reset_due(policy, session(after, after), now_ms=after + 3_600_000, zone=BERLIN) == ""


def test_an_hour_that_comes_twice_in_autumn_ends_the_day_only_once() -> None:
    policy = ResetPolicy("daily", 2)  # on 2026-10-25 Berlin has 02:00 to 03:00 twice
    before, first = ms("2026-10-25T01:59", BERLIN), ms("2026-10-25T02:00", BERLIN)
    second = ms("2026-10-25T02:30", BERLIN, fold=1)
    assert reset_due(policy, session(before, before), now_ms=first, zone=BERLIN) == "daily"
    assert reset_due(policy, session(first, first), now_ms=second, zone=BERLIN) == ""
    assert reset_due(policy, session(before, before), now_ms=second, zone=BERLIN) == "daily"


HOUR = 3_600_000
YEAR = ms("2026-01-01T00:00", UTC)


@given(st.integers(0, 364 * 24 * 60), st.integers(0, 23), st.integers(1, 72), st.sampled_from([UTC, BERLIN, NEW_YORK]))
def test_a_session_is_never_older_than_a_day_and_an_hour(minute: int, at: int, age: int, zone: ZoneInfo) -> None:
    started = YEAR + minute * 60_000
    due = reset_due(ResetPolicy("daily", at), session(started, started), now_ms=started + age * HOUR, zone=zone)
    assert due == "daily" or age <= 25
