"""What must have become of every due time, from the story of a year: written apart from the code under test.

It knows the due times by their definition, when a process ran, what the clock on the wall showed, what people changed
and how long the model took. From that it says how each due time ended.

A due time is taken when the wall shows it and a process runs that has ended the run before. Then, of those that have
passed, the newest is run (`once`, and `skip` if it is less than a minute late) or the last hundred (`all`); the others
are missed. A run that was killed goes on in the next process. One that failed is tried again after a pause, unless the
next due time comes before; ten failures in a row disable the job. When a person changes a job, what waits is skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime

from year import PAUSES, Change, ModelCall, Plan, Story

LATE_MS = 60_000
MOST_CAUGHT_UP = 100
MOST_FAILURES = 10
MOST_RESUMES = 5
LONGEST_PAUSE_MS = 3_600_000
NEVER = float("inf")
NOTICED = 62.0  # seconds until a clock that was set is noticed


class Expected:
    """One job, from its first change to the end of the year."""

    def __init__(self, story: Story, changes: list[Change]) -> None:
        self.ends: dict[int, str] = {}  # by due time
        self.told_at: dict[int, int] = {}  # on the wall, by due time: reminders
        self._story = story
        self._changes = list(changes)
        self._plan: Plan | None = None
        self._due: list[int] = []
        self._pending: int | None = None
        self._failures = 0  # in a row
        name = next(each.plan.name for each in changes if each.plan)
        self._calls = [call for call in story.calls if call.name == name]
        self._live()

    def _live(self) -> None:
        free = self._changes[0].at
        while True:
            taken = NEVER if self._pending is None else self._when_shown(free, self._pending)
            if self._changes and self._changes[0].at < taken:
                self._change(self._changes.pop(0))
            elif taken == NEVER:
                break
            else:
                free = self._take(taken)
        if self._pending is not None:
            self.ends[self._pending] = "waiting"

    def _take_back(self, shown: int) -> None:
        if self._pending is not None and self._pending <= shown:  # it waits for a run that has not ended
            self.ends[self._pending] = "skipped"
            for at in self._between(self._pending, shown):
                self.ends[at] = "missed"
        self._pending = None

    def _change(self, change: Change) -> None:
        self._take_back(change.shown)
        self._plan, self._due = change.plan, change.due
        is_enabled = change.plan is not None and change.plan.enabled
        self._failures = 0 if is_enabled else self._failures
        self._pending = self._after(change.shown) if is_enabled else None

    def _take(self, taken: float) -> float:
        """Returns when the lane is free again."""
        assert self._plan is not None
        assert self._pending is not None
        shown = self._story.wall(taken)
        passed = [self._pending, *self._between(self._pending, shown)]
        run = passed[-MOST_CAUGHT_UP if self._plan.catch_up == "all" else -1 :]
        if self._plan.catch_up == "skip" and shown - run[-1] > LATE_MS:
            run = []
        for at in passed[: len(passed) - len(run)]:
            self.ends[at] = "missed"
        if not run:
            self._pending = self._after(shown)
            return taken
        self._pending = self._after(run[0])
        return self._run(run[0], taken)

    def _run(self, at: int, began: float) -> float:
        plan = self._plan
        assert plan is not None
        if not plan.seconds:
            self.ends[at], self.told_at[at] = "ran", self._story.wall(began)
            return began
        failures = 0
        while True:
            ended, ok = self._attempt(began)
            due = self._due
            changed = self._catch_up_with_changes(ended)
            if ok:
                self.ends[at], self._failures = "ran", 0
                return ended
            failures += 1
            self._failures += 1
            pause = PAUSES[min(failures, len(PAUSES)) - 1] * 1000
            shown = self._story.wall(ended)
            then = next(iter(due[bisect_right(due, shown) :]), None)
            again = failures <= len(PAUSES) and (then is None or shown + pause < then)
            if self._failures >= MOST_FAILURES and self._plan is not None:
                self._take_back(shown)  # it is disabled
                again = False
            if not again:
                self.ends[at] = "failed"
                return ended
            began = self._when_tried_again(ended, shown + pause)
            changed |= self._catch_up_with_changes(began)
            if changed:
                self.ends[at] = "skipped"
                return began

    def _attempt(self, began: float) -> tuple[float, bool]:
        """When a run ended and was dealt with, and how. A process that is killed meanwhile begins it again."""
        for _ in range(MOST_RESUMES + 1):
            assert self._calls, f"no run began at {began}"
            call = self._calls.pop(0)
            assert -0.1 <= call.began - began <= NOTICED, f"a run began at {call.began}, not at {began}"
            if call.ended is not None:
                return self._dealt_with(call), call.ok
            began = self._next_life(call.began)
        return began, False

    def _dealt_with(self, call: ModelCall) -> float:
        assert call.ended is not None
        return call.ended if self._is_up(call.ended) else self._next_life(call.ended)

    def _catch_up_with_changes(self, until: float) -> bool:
        changed = False
        while self._changes and self._changes[0].at < until:
            self._change(self._changes.pop(0))
            changed = True
        return changed

    # -- time --

    def _between(self, after: int, until: int) -> list[int]:
        return self._due[bisect_right(self._due, after) : bisect_right(self._due, until)]

    def _after(self, at: int) -> int | None:
        return next(iter(self._due[bisect_right(self._due, at) :]), None)

    def _is_up(self, at: float) -> bool:
        return any(began <= at < ended for began, ended in self._story.lives)

    def _next_life(self, at: float) -> float:
        return next((began for began, _ in self._story.lives if began > at), NEVER)

    def _when_shown(self, since: float, shown: int) -> float:
        """The first moment at which a process runs and the wall shows this time or a later one."""
        hands = self._story.hands
        for began, ended in self._story.lives:
            if ended <= since:
                continue
            first = max(0, bisect_right(hands, max(began, since), key=lambda each: each[0]) - 1)
            for index in range(first, len(hands)):
                from_, wall = hands[index]
                until = min(hands[index + 1][0] if index + 1 < len(hands) else NEVER, ended)
                at = max(from_, began, since, from_ + (shown - wall) / 1000)
                if at < until:
                    return at
        return NEVER

    def _when_tried_again(self, since: float, shown: int) -> float:
        """As `_when_shown`, or as soon as the clock is so far behind that it must have been set back. Where it is only
        a little further behind than that, the change may be noticed too late: what was done decides."""
        begun = self._calls[0].began if self._calls else NEVER
        behind = (
            max(since, began, life)
            for began, wall in [(since, self._story.wall(since)), *self._story.hands]
            for life, ended in self._story.lives
            if began >= since and life <= max(began, life) < ended and shown - wall > LONGEST_PAUSE_MS
            if shown - wall > LONGEST_PAUSE_MS + NOTICED * 1000 or begun <= max(since, began, life) + NOTICED
        )
        return min(self._when_shown(since, shown), min((at for at in behind if at >= since), default=NEVER))


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat()


def check(story: Story) -> Counter[str]:
    """Returns how many due times ended in which way. Raises AssertionError."""
    counted: Counter[str] = Counter()
    told = Counter(row for row, _, _ in story.said)
    for job_id, changes in story.changes.items():
        rows = [row for row in story.rows.values() if row.job == job_id]
        plan = next(each.plan for each in reversed(changes) if each.plan)
        doubled = [at for at, number in Counter(row.at for row in rows).items() if number > 1]
        assert not doubled, f"{plan}: more than one row for {doubled}"
        expected = Expected(story, changes)
        actual = {row.at: row.status for row in rows}
        wrong = {at for at in {*actual, *expected.ends} if actual.get(at) != expected.ends.get(at)}
        for at in sorted(wrong)[:1]:
            reason = next((row.reason for row in rows if row.at == at), "")
            raise AssertionError(
                f"{job_id} {plan}: {iso(at)} is {actual.get(at)} ({reason}), not {expected.ends.get(at)}"
            )
        for row in rows:
            notices = sum(each[0] == row.id and each[2].startswith("The cron job") for each in story.said)
            announced = row.status == "ran" and not row.reason.startswith("the cron job was removed")
            assert told[row.id] - notices == announced, f"{plan}: {row} was told {told[row.id]} times"
        _check_when_told(story, expected, {row.id: row.at for row in rows})
        counted.update(actual.values())
    return counted


def _check_when_told(story: Story, expected: Expected, rows: dict[str, int]) -> None:
    for row, at, _ in story.said:
        if row in rows and rows[row] in expected.told_at:
            late = at - expected.told_at[rows[row]]
            assert -100 <= late <= NOTICED * 1000, f"{rows[row]} was told {late} ms late"
