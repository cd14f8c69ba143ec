"""What becomes of due times that passed while Palinurus was not running, the machine slept, or a run took longer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from msgspec import Struct

from palinurus.extensions.schedule.cron_job import CatchUp, CronJob
from palinurus.extensions.schedule.times import MOST_PASSED, iso_time, newest_times, next_time, times_passed

LATE_MS = 60_000  # later than this is too late for one that is not caught up
MOST_CAUGHT_UP = 100  # due times that are run, where all are wanted
OVERDUE = "it was due while Palinurus was not running or the run before had not ended"


class MissedTimes(Struct, frozen=True):
    """A due time was missed, and with it others."""

    times: Sequence[int]  # after it
    then: int | None  # which one is run next; None: there is none any more
    why: str = OVERDUE


def find_missed(cron: CronJob, catch_up: CatchUp, at: int, now: int, zone: tzinfo) -> MissedTimes | None:
    """None: the one that was due at this moment is acted on. What is run is the newest that has passed, or so many."""
    passed = times_passed(cron.schedule, at, now, zone, cron.id)
    most = MOST_CAUGHT_UP if catch_up == "all" else 1
    newest = [at, *passed][-most:]
    if len(passed) == MOST_PASSED:
        newest = newest_times(cron.schedule, at, now, zone, cron.id, most)
    then: int | None = newest[0]
    if catch_up == "skip" and now - newest[-1] > LATE_MS:
        then = next_time(cron.schedule, now, zone, cron.id)
    if then == at:
        return None
    missed = [each for each in passed if then is None or each < then]
    if len(missed) < MOST_PASSED:
        return MissedTimes(missed, then)
    others = f"those after {iso_time(missed[-1])} and before {iso_time(then or now)} have no rows of their own"
    return MissedTimes(missed, then, f"{OVERDUE}; {others}")
