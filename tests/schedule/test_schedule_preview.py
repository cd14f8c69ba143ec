"""What a typed time means is said before anything is made of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from clock_home import open_clock_home

from palinurus.domain.errors import BadRequest
from palinurus.extensions.schedule.cron_job import AtSchedule, CronSchedule, EverySchedule
from palinurus.extensions.schedule.preview import preview_schedule
from palinurus.testing.fakes import FakeClock

WEDNESDAY = datetime(2026, 11, 18, 14, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("when", "schedule", "first"),
    [
        ("in 20 minutes", AtSchedule("2026-11-18T14:50:00+00:00"), "2026-11-18T14:50:00+00:00"),
        ("tomorrow at 9", AtSchedule("2026-11-19T09:00:00+00:00"), "2026-11-19T09:00:00+00:00"),
        ("every weekday at 8", CronSchedule("0 8 * * 1-5", stagger_ms=0), "2026-11-19T08:00:00+00:00"),
        ("0  8 * * 1-5", CronSchedule("0 8 * * 1-5", stagger_ms=0), "2026-11-19T08:00:00+00:00"),
        ("30 0 8 * * MON#1", CronSchedule("30 0 8 * * MON#1", stagger_ms=0), "2026-12-07T08:00:30+00:00"),
        ("every 90 minutes", EverySchedule(5_400_000, 1_795_012_200_000), "2026-11-18T16:00:00+00:00"),
    ],
)
async def test_words_and_expressions_are_read(tmp_path: Path, when: str, schedule: object, first: str) -> None:
    async with open_clock_home(tmp_path, clock=FakeClock(WEDNESDAY)) as home:
        found = await preview_schedule(home.services, when=when)
        assert found.schedule == schedule
        assert found.times[0] == first
        assert len(found.times) == (1 if isinstance(schedule, AtSchedule) else 5)


async def test_times_are_those_of_the_zone(tmp_path: Path) -> None:
    async with open_clock_home(tmp_path, clock=FakeClock(WEDNESDAY)) as home:
        once = await preview_schedule(home.services, when="tomorrow at 9", tz="Asia/Tokyo")
        often = await preview_schedule(home.services, when="every day at 9", tz="Asia/Tokyo", count=1)
        assert once.schedule == AtSchedule("2026-11-19T09:00:00+09:00")
        assert often.schedule == CronSchedule("0 9 * * *", "Asia/Tokyo", 0)
        assert often.times == ("2026-11-19T09:00:00+09:00",)


@pytest.mark.parametrize("when", ["when the tide is low", "", "0 8 * * 9-99", "0 0 30 2 *", "yesterday at 9"])
async def test_what_is_no_time_is_refused(tmp_path: Path, when: str) -> None:
    async with open_clock_home(tmp_path, clock=FakeClock(WEDNESDAY)) as home:
        with pytest.raises(BadRequest):
            await preview_schedule(home.services, when=when)
