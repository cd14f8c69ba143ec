"""Which events of a calendar file are near, and that a heartbeat calls a model for each of them once."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from clock_home import WAIT
from test_heartbeat import beating, passes, reasons, workspace_of

from palinurus.domain.envelope import Inbound
from palinurus.extensions.schedule.heartbeat_calendar import events_between
from palinurus.extensions.schedule.heartbeat_jobs import keep_heartbeats
from support.delivery import MemorySender
from support.wire import Says

BERLIN = ZoneInfo("Europe/Berlin")


def event(*lines: str) -> str:
    return "\r\n".join(["BEGIN:VEVENT", "SUMMARY:Obey me", *lines, "END:VEVENT", ""])


def near(text: str, now: str, hours: float = 24) -> list[str]:
    since = datetime.fromisoformat(now).replace(tzinfo=BERLIN)
    found = events_between(text, since, since + timedelta(hours=hours), BERLIN)
    return [f"{at.astimezone(BERLIN):%Y-%m-%d %H:%M}" for at in found]


@pytest.mark.parametrize(
    ("lines", "now", "times"),
    [
        (["DTSTART:20261118T140000Z"], "2026-11-18T14:30", ["2026-11-18 15:00"]),
        (["DTSTART:20261118T140000"], "2026-11-18T13:30", ["2026-11-18 14:00"]),
        (["DTSTART;TZID=America/New_York:20261118T090000"], "2026-11-18T14:30", ["2026-11-18 15:00"]),
        (['DTSTART;TZID="No/Where":20261118T140000'], "2026-11-18T13:30", ["2026-11-18 14:00"]),
        (["DTSTART;VALUE=DATE:20261119"], "2026-11-18T13:30", ["2026-11-19 00:00"]),
        (["DTSTA", " RT:20261118T140000Z"], "2026-11-18T14:30", ["2026-11-18 15:00"]),
        (["DTSTART:20261118T140000Z"], "2026-11-18T15:00", []),
        (["DTSTART:20261118T140000Z", "STATUS:CANCELLED"], "2026-11-18T14:30", []),
        (["DTSTART:20261399T140000Z"], "2026-11-18T14:30", []),
        (["RRULE:FREQ=DAILY"], "2026-11-18T14:30", []),
        # 2 November 2026 is a Monday.
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY"], "2026-11-18T07:00", ["2026-11-18 08:00"]),
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY;INTERVAL=2"], "2026-11-17T07:00", []),
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY;COUNT=16"], "2026-11-17T07:00", ["2026-11-17 08:00"]),
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY;COUNT=15"], "2026-11-17T07:00", []),
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY;UNTIL=20261117"], "2026-11-17T07:00", ["2026-11-17 08:00"]),
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY;UNTIL=20261116T070000Z"], "2026-11-17T07:00", []),
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY", "EXDATE:20261117T080000"], "2026-11-17T07:00", []),
        (["DTSTART:20261102T080000", "RRULE:FREQ=WEEKLY"], "2026-11-16T07:00", ["2026-11-16 08:00"]),
        (["DTSTART:20261102T080000", "RRULE:FREQ=WEEKLY"], "2026-11-17T07:00", []),
        (["DTSTART:20261102T080000", "RRULE:FREQ=WEEKLY;BYDAY=MO,WE"], "2026-11-18T07:00", ["2026-11-18 08:00"]),
        (
            ["DTSTART:20261104T080000", "RRULE:FREQ=WEEKLY;BYDAY=MO,WE;COUNT=4"],
            "2026-11-16T07:00",
            ["2026-11-16 08:00"],
        ),
        (["DTSTART:20261104T080000", "RRULE:FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3"], "2026-11-16T07:00", []),
        (["DTSTART:20261102T080000", "RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"], "2026-11-09T07:00", []),
        (
            ["DTSTART:20261102T080000", "RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"],
            "2026-11-16T07:00",
            ["2026-11-16 08:00"],
        ),
        (["DTSTART:20260818T080000", "RRULE:FREQ=MONTHLY"], "2026-11-18T07:00", ["2026-11-18 08:00"]),
        (["DTSTART:20260818T080000", "RRULE:FREQ=MONTHLY;BYDAY=3WE"], "2026-11-18T07:00", ["2026-11-18 08:00"]),
        (["DTSTART:20260818T080000", "RRULE:FREQ=MONTHLY;BYDAY=-2WE"], "2026-11-18T07:00", ["2026-11-18 08:00"]),
        (["DTSTART:20260818T080000", "RRULE:FREQ=MONTHLY;BYMONTHDAY=-13"], "2026-11-18T07:00", ["2026-11-18 08:00"]),
        (["DTSTART:20201118T080000", "RRULE:FREQ=YEARLY"], "2026-11-18T07:00", ["2026-11-18 08:00"]),
        (["DTSTART:20201118T080000", "RRULE:FREQ=YEARLY;COUNT=6"], "2026-11-18T07:00", []),
        (["DTSTART:20261102T080000", "RRULE:FREQ=DAILY;BYHOUR=8,9"], "2026-11-18T07:00", []),
        (["DTSTART:20261117T090000", "RRULE:FREQ=DAILY;BYHOUR=8,9"], "2026-11-17T07:00", ["2026-11-17 09:00"]),
        (["DTSTART:20261020T080000", "RRULE:FREQ=DAILY"], "2026-10-25T01:00", ["2026-10-25 08:00"]),
    ],
)
def test_an_event_is_near_when_its_calendar_says_so(lines: list[str], now: str, times: list[str]) -> None:
    assert near(event(*lines), now) == times


def test_a_large_calendar_is_read_in_time_that_follows_its_length(cpu_limit: Any) -> None:
    rule = "RRULE:FREQ=DAILY;COUNT=99999;EXDATE=x"
    text = event("DTSTART:19700101T080000", rule, f"EXDATE:{','.join(['20261118T080000'] * 20)}") * 4_000
    with cpu_limit(10):
        assert near(text[: 2 * 1024 * 1024], "2026-11-18T07:00") == []
        assert near("BEGIN:VEVENT\n" + " x" * 1_000_000, "2026-11-18T07:00") == []


async def test_a_heartbeat_calls_a_model_once_for_an_event_that_comes_near(tmp_path: Path) -> None:
    settings = {"calendars": ["calendar.ics", "gone.ics"], "calendarWindow": "1h"}
    async with beating(tmp_path, "tasks:\n  - name: a\n    interval: 30d\n    prompt: b\n", **settings) as home:
        at = home.clock.now + timedelta(hours=3, minutes=10)
        (workspace_of(home) / "calendar.ics").write_text(event(f"DTSTART:{at:%Y%m%dT%H%M%SZ}"))
        await keep_heartbeats(home.services)
        await passes(home, 1)  # the task, which is due once in a month
        assert len(home.server.requests) == 1
        await passes(home, 3)
        assert len(home.server.requests) == 1
        assert "the calendar gone.ics cannot be read" in (await reasons(home))[-1]
        await passes(home, 4)
        assert len(home.server.requests) == 2
        told = str(home.server.requests[-1]["messages"])
        assert f"Changed since the last check: calendar.ics: an event at {at:%Y-%m-%dT%H:%M}" in told
        assert "Obey me" not in told


@pytest.mark.parametrize(("policy", "sent"), [("allow", ["The milk is out."]), ("block", [])])
async def test_a_report_is_not_sent_to_a_person_where_that_is_blocked(
    policy: str, sent: list[str], tmp_path: Path
) -> None:
    settings = {"target": "last", "directPolicy": policy}
    async with beating(tmp_path, answer=lambda _: Says("The milk is out."), **settings) as home:
        sender: MemorySender = home.channel()
        run = await home.services.dispatcher.submit(Inbound("hi", "1", channel="telegram", sender="42"))
        await run.wait(WAIT)
        await keep_heartbeats(home.services)
        await passes(home, 1)
        assert sender.texts[1:] == sent
        assert (await home.said())[-1] == "The milk is out."
