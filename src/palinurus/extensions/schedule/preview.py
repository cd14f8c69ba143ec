"""What somebody means by a time that they type: the schedule it stands for, and when that is due."""

from __future__ import annotations

import asyncio
import re
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from palinurus.extensions.schedule.cron_job import CronSchedule, Schedule
from palinurus.extensions.schedule.times import check_schedule, due_times, iso_time, zone_of
from palinurus.extensions.schedule.when import parse_schedule, schedule_words
from palinurus.operations.operation import Metavar, operation
from palinurus.operations.services import Services

_EXPRESSION = re.compile(r"[\d*][\d*/,-]*( [\d*?][^ ]*)( [^ ]+){3,4}")


class SchedulePreview(Struct, frozen=True):
    schedule: Schedule  # as `cron.add` takes it
    when: str  # in words
    times: tuple[str, ...]  # the next ones, ISO


@operation("cron.preview", scope="read")
async def preview_schedule(
    services: Services,
    when: Annotated[str, Metavar("TIME"), "A time in words, or a cron expression."],
    tz: Annotated[str, Metavar("ZONE"), "Its time zone, such as Europe/Berlin; else that of the home."] = "",
    count: Annotated[int, Meta(ge=1, le=100), "How many times."] = 5,
) -> SchedulePreview:
    """Read a time as people say it ("tomorrow at 9", "every weekday at 8", "0 8 * * 1-5"), and say when it is due."""
    now, zone = services.clock.now_ms(), zone_of(tz) or services.clock.zone
    text = " ".join(when.split())
    schedule = CronSchedule(text, tz, 0) if _EXPRESSION.fullmatch(text) else parse_schedule(text, now, zone)
    if isinstance(schedule, CronSchedule):
        schedule = replace(schedule, tz=tz)
    await asyncio.to_thread(check_schedule, schedule, zone)
    times = await asyncio.to_thread(lambda: list(islice(due_times(schedule, now, zone), count)))
    return SchedulePreview(schedule, schedule_words(schedule, zone), tuple(iso_time(each, zone) for each in times))
