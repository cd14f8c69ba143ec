"""A simulated year of one home: cron jobs in five time zones, a process that is killed, a machine that sleeps, hands
that set the clock, people who change their jobs. What happened is written down for the oracle.

"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
from definition import changes_of, cron_moments, every_moments, moment
from msgspec import Struct
from virtual_home import ModelCall, SlowModel, VirtualHome

from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    AtSchedule,
    CatchUp,
    CronJob,
    CronSchedule,
    CronState,
    DueOutcome,
    DueTime,
    EverySchedule,
    ReminderPayload,
    Schedule,
)
from palinurus.extensions.schedule.due import remove, save
from palinurus.extensions.schedule.store import DUE, CronStore
from palinurus.extensions.schedule.times import iso_time
from support.faults import dice_for
from support.virtual import VirtualClock, run_virtually

HOUR, DAY = 3600.0, 24 * 3600.0
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo")
YEARS = (2026, 2018)  # in the second Sao Paulo changes its clocks, at midnight
AROUND_MS = 63_000  # of no due time when the clock is set, as the change may be noticed a minute later
SETTLED_MS = 3_000  # what is done at a due time takes less
PAUSES = (30, 60, 300, 900, 3600)


class Plan(Struct, frozen=True):
    """One job as a person wants it from a moment on."""

    name: str
    schedule: Schedule
    zone: str
    catch_up: CatchUp
    seconds: float  # that a run takes; 0: it is a reminder
    fails: float = 0.0  # how many of its runs
    delete_after_run: bool = False
    enabled: bool = True

    def moments(self, first: int, last: int) -> list[int]:
        match self.schedule:
            case AtSchedule(at):
                return [int(datetime.fromisoformat(at).timestamp() * 1000)]
            case EverySchedule(every, anchor):
                return every_moments(every, anchor, first, last)
            case CronSchedule(expr):
                return cron_moments(expr, self.zone, first, last)


class Change(Struct, frozen=True):
    """A person has saved or removed a job."""

    at: float  # seconds since the world began
    shown: int  # on the wall
    plan: Plan | None  # None: it was removed
    due: list[int] = []  # all due times from its definition


class Row(Struct, frozen=True):
    """A due time as it is stored."""

    id: str
    job: str
    at: int
    status: str
    reason: str


class Story(Struct):
    """Everything that happened, as it is seen from outside."""

    lives: list[tuple[float, float]] = []  # when a process ran
    hands: list[tuple[float, int]] = []  # from when on the clock on the wall went from which time
    changes: dict[str, list[Change]] = {}  # by the id of the job
    calls: list[ModelCall] = []
    rows: dict[str, Row] = {}  # by their ids, also those that were forgotten
    said: list[tuple[str, int, str]] = []  # in the main session: for which row, when on the wall, and what
    counts: dict[str, int] = {}

    def wall(self, at: float) -> int:
        began, shown = self.hands[bisect_right(self.hands, at, key=lambda each: each[0]) - 1]
        return shown + round((at - began) * 1000)


EXPRESSIONS = (
    "30 2 * * *", "0 8 * * 1-5", "15 1,2 * * 0", "0 0 1,15 * MON", "*/30 1-3 * * *", "45 */4 * * *", "0 30 2 * * *",
    "20 5 9 * * 1-5", "0 */6 * * *", "30 23 28-31 * *", "0 2 * * SUN", "10 0,12 */2 * *", "0 3 1 */2 *",
)  # fmt: skip


class World:
    def __init__(self, seed: int, folder: Path, *, days: float) -> None:
        self.dice = dice_for(seed, "year")
        self.year = self.dice.choice(YEARS)
        self.first, self.last = moment(self.year), moment(self.year + 1)
        self.loop = asyncio.get_running_loop()
        home_zone = self.dice.choice(ZONES)
        start = datetime(self.year, 1, 1, tzinfo=UTC)
        self.clock = VirtualClock(self.loop, start, ZoneInfo(home_zone))
        self.story = Story(hands=[(self.loop.time(), self.clock.now_ms())])
        self.plans: dict[str, Plan] = {}  # by id
        self.model = SlowModel(self._take_time)
        self.home = VirtualHome(folder, self.clock, seed, self.model)
        self.home.before_forgetting = self._note_rows
        self.story.calls = self.model.calls
        self._seed = seed
        self._days = days
        self._home_zone = home_zone
        self._highest = self.clock.now_ms()
        self._set_at = -DAY
        self._open: set[str] = set()

    # -- the year --

    async def live(self) -> Story:
        await self._begin()
        for number in range(self.dice.randint(8, 14)):
            await self._add(number)
        await asyncio.sleep(10)
        for begins, seconds in self._windows():
            await self._pass_until(begins)
            ends = self.clock.now_ms() + seconds * 1000
            while self.clock.now_ms() < ends:
                await self._do_something()
        await asyncio.sleep(AROUND_MS / 1000)
        while self._is_busy() or not self._is_settled():
            await asyncio.sleep(self.dice.uniform(1, 200))
        await self._end(killed=True)
        self._note_rows()
        self._note_said()
        return self.story

    def _windows(self) -> list[tuple[int, float]]:
        """When the process runs: while clocks change somewhere, and now and then."""
        changes = [change for zone in ZONES for change in changes_of(zone, self.year)]
        windows = [(change - self.dice.randrange(7_200_000), self.dice.uniform(2, 5) * HOUR) for change in changes]
        left = self._days * DAY - sum(seconds for _, seconds in windows)
        while left > 0:
            seconds = min(self.dice.choice((1, 3, 8, 20)) * HOUR * self.dice.uniform(0.5, 1.5), left + 60)
            windows.append((self.dice.randrange(self.first, self.last), seconds))
            left -= seconds
        return sorted(windows)

    async def _pass_until(self, wall: int) -> None:
        """Days or weeks go by: nothing runs, or the machine sleeps."""
        await self._settle()
        seconds = (wall - self.clock.now_ms()) / 1000
        if seconds <= 0:
            return
        if self.dice.random() < 0.3:
            await self._set_clock(seconds)
        else:
            await self._end(killed=self.dice.random() < 0.8)
            await asyncio.sleep(max(0.0, (wall - self.clock.now_ms()) / 1000))
            await self._begin()

    async def _do_something(self) -> None:
        await asyncio.sleep(self.dice.choice((60, 600, 3600)) * self.dice.uniform(0.2, 1.2))
        dice = self.dice.random()
        if dice < 0.25:
            await self._settle()
            await self._end(killed=self.dice.random() < 0.8)
            await asyncio.sleep(self.dice.choice((1, 60, 900, 7200)) * self.dice.uniform(0.2, 2))
            await self._begin()
        elif dice < 0.35:
            await self._settle()
            await self._set_clock(self.dice.uniform(0.2, 12) * HOUR)  # the machine sleeps
        elif dice < 0.45:
            await self._settle()
            await self._set_clock(self.dice.choice((-1, 1)) * self.dice.choice((120, HOUR, 5 * HOUR)))
        elif dice < 0.6:
            await self._settle(settled_clock=True)
            await self._change_something()

    async def _settle(self, *, settled_clock: bool = False) -> None:
        """Waits for a moment at which nothing is being done, apart from runs that take their time."""
        if settled_clock:  # not while the clock is behind
            await asyncio.sleep(max(0, self._highest - self.clock.now_ms()) / 1000)
        while not self._is_settled():
            await asyncio.sleep(self.dice.uniform(1, 20))

    def _is_settled(self) -> bool:
        now, loop_now = self.clock.now_ms(), self.loop.time()
        if loop_now - self._set_at < AROUND_MS / 1000 or loop_now - self.story.lives[-1][0] < SETTLED_MS / 1000:
            return False
        ends = [call.ended for call in self.model.calls[-50:] if call.ended is not None]
        ends += [end + pause for end in ends for pause in PAUSES]
        going_on = [call.began + self._seconds(call.name) for call in self.model.calls[-50:] if call.ended is None]
        if any(-1 < loop_now - end < 3 for end in ends) or any(-12 < loop_now - end < 3 for end in going_on):
            return False
        return not self._is_due_between(now - SETTLED_MS, now + 1000)

    def _is_due_between(self, first: int, last: int) -> bool:
        dues = [changes[-1].due for changes in self.story.changes.values()]
        return any(bisect_left(due, first) < bisect_right(due, last) for due in dues)

    # -- what happens --

    async def _begin(self) -> None:
        self._note_rows()
        self.story.lives.append((self.loop.time(), float("inf")))
        await self.home.begin()
        self._count("life")

    async def _end(self, *, killed: bool) -> None:
        self._note_rows()
        began, _ = self.story.lives.pop()
        self.story.lives.append((began, self.loop.time()))
        await (self.home.kill() if killed else self.home.leave())
        self._count("kill" if killed else "leave")

    async def _set_clock(self, seconds: float) -> None:
        self._note_rows()
        self._highest = max(self._highest, self.clock.now_ms())
        while self._is_due_between(*self._around(seconds)):
            seconds += self.dice.choice((-1, 1)) * self.dice.uniform(1, 600)
        if not self.first < self.clock.now_ms() + seconds * 1000 < self.last:
            return
        self.clock.set_by(seconds)
        self.story.hands.append((self.loop.time(), self.clock.now_ms()))
        self._set_at = self.loop.time()
        self._count("sleep" if seconds > 0 else "back")
        await asyncio.sleep(AROUND_MS / 1000)

    def _around(self, seconds: float) -> tuple[int, int]:
        lands = self.clock.now_ms() + round(seconds * 1000)
        return lands - AROUND_MS, lands + AROUND_MS

    async def _add(self, number: int) -> None:
        plan = self._draw(f"j{number}")
        await self._save(self.home.new_id(), plan)

    async def _change_something(self) -> None:
        job_id = self.dice.choice(sorted(self.plans))
        stored = await CronStore(self.home.services.database, self.home.new_id).find(job_id)
        match self.dice.choice(("rename", "schedule", "switch", "remove", "add")):
            case "rename" if stored:
                plan = msgspec.structs.replace(self.plans[job_id], enabled=stored.enabled)
                if plan.enabled and isinstance(plan.schedule, AtSchedule) and not stored.next_run_at_ms:
                    return  # its run goes on
                await self._save(job_id, plan, stored)
            case "schedule" if stored:
                drawn = self._draw(self.plans[job_id].name)
                await self._save(job_id, drawn, stored)
            case "switch" if stored and not isinstance(self.plans[job_id].schedule, AtSchedule):
                plan = msgspec.structs.replace(self.plans[job_id], enabled=not stored.enabled)
                await self._save(job_id, plan, stored)
            case "remove" if stored and self.dice.random() < 0.3:
                assert await remove(self.home.services, job_id)
                await self._note_change(job_id, None)
                self._count("remove")
            case "add":
                await self._add(len(self.plans))

    async def _save(self, job_id: str, plan: Plan, before: CronJob | None = None) -> None:
        payload = (
            AgentTurnPayload(f"do {plan.name}", timeout_seconds=7200)
            if plan.seconds
            else ReminderPayload(f"remember {job_id}")
        )
        cron = before or CronJob(job_id, "main", plan.name, plan.schedule, payload)
        cron = msgspec.structs.replace(
            cron, schedule=plan.schedule, payload=payload, catch_up=plan.catch_up, enabled=plan.enabled,
            delete_after_run=plan.delete_after_run, session_target="isolated" if plan.seconds else "main",
            state=CronState() if plan.enabled else cron.state,
        )  # fmt: skip
        saved = await save(self.home.services, cron)
        due: list[int] = []
        if plan.enabled:
            due = plan.moments(self.first, self.last + 10**10)
            late = saved.next_run_at_ms - due[bisect_right(due, saved.next_run_at_ms) - 1]  # the stagger
            assert 0 <= late < self._most_stagger(plan.schedule), (late, plan)
            due = [at + late for at in due]
        self.plans[job_id] = plan
        await self._note_change(job_id, plan, due)
        self._count("save")

    async def _note_change(self, job_id: str, plan: Plan | None, due: Sequence[int] = ()) -> None:
        change = Change(self.loop.time(), self.clock.now_ms(), plan, list(due))
        self.story.changes.setdefault(job_id, []).append(change)
        await asyncio.sleep(1)

    def _most_stagger(self, schedule: Schedule) -> int:
        if not isinstance(schedule, CronSchedule):
            return 1
        if schedule.stagger_ms is not None:
            return max(schedule.stagger_ms, 1)
        fields = schedule.expr.split()
        return 300_000 if fields[-5] == "0" and (len(fields) == 5 or fields[0] == "0") else 1

    def _draw(self, name: str) -> Plan:
        dice, now = self.dice, self.clock.now_ms()
        zone = dice.choice(ZONES)
        schedule: Schedule
        match dice.choice(("at", "every", "cron", "cron", "cron")):
            case "at":
                schedule = AtSchedule(iso_time(now + dice.randrange(600_000, 90 * 86_400_000) // 1000 * 1000))
            case "every":
                schedule = EverySchedule(dice.choice((20, 90, 360, 1500)) * 60_000, now - dice.randrange(10**9))
            case _:
                stagger = dice.choice((None, 0, 120_000))
                named = "" if dice.random() < 0.2 else zone
                zone = named or self._home_zone
                schedule = CronSchedule(dice.choice(EXPRESSIONS), named, stagger)
        catch_up, seconds = dice.choice(("once", "once", "skip", "all")), dice.choice((0, 0, 0, 20, 300, 4000))
        if isinstance(schedule, EverySchedule) and schedule.every_ms < seconds * 1000:
            seconds = 300  # one that takes longer than its interval and catches up on all is never done
        return Plan(
            name,
            schedule,
            zone,
            catch_up,
            seconds,
            dice.choice((0, 0, 0.3, 0.95)),
            dice.random() < 0.5,
        )

    def _take_time(self, name: str, number: int) -> tuple[float, bool]:
        fails = next(each.fails for each in self.plans.values() if each.name == name)
        return self._seconds(name), random.Random(f"{self._seed}/{name}/{number}").random() >= fails

    def _seconds(self, name: str) -> float:
        return next(each.seconds for each in self.plans.values() if each.name == name)

    def _count(self, what: str) -> None:
        self.story.counts[what] = self.story.counts.get(what, 0) + 1

    # -- what is seen --

    def _note_rows(self) -> None:
        """Before what has ended may be forgotten."""
        read = "SELECT id, lane, payload, state, outcome, trouble FROM jobs WHERE kind = :kind"
        found = self.home.database.look(lambda tx: tx.execute(read, {"kind": DUE}).fetchall())
        for row_id in self._open - {each[0] for each in found}:  # it was planned, and is not due any more
            del self.story.rows[row_id]
        for row_id, lane, payload, state, outcome, trouble in found:
            if row_id not in self.story.rows or row_id in self._open:
                due = msgspec.json.decode(payload, type=DueTime)
                ended = msgspec.json.decode(outcome, type=DueOutcome) if outcome else None
                status, reason = (ended.status, ended.reason) if ended else (state, trouble)
                self.story.rows[row_id] = Row(row_id, lane, due.at, status, reason)
        self._open = {each[0] for each in found if each[3] in ("waiting", "running", "retry")}

    def _is_busy(self) -> bool:
        open_ = "kind = :kind AND (state IN ('running', 'retry') OR state = 'waiting' AND due_at <= :now)"
        values = {"kind": DUE, "now": self.clock.now_ms()}
        found = self.home.database.look(lambda tx: tx.execute(f"SELECT 1 FROM jobs WHERE {open_}", values).fetchall())
        return bool(found)

    def _note_said(self) -> None:
        read = "SELECT id, payload FROM entries WHERE id GLOB :mine ORDER BY position"
        for entry, row in self.home.database.look(lambda tx: tx.execute(read, {"mine": f"{DUE}:*"}).fetchall()):
            told = msgspec.json.decode(row)["message"]
            self.story.said.append((entry.split(":")[1], told["timestamp"], told["content"][0]["text"]))


def simulate(seed: int, days: float = 6.0) -> Story:
    async def story() -> Story:
        with tempfile.TemporaryDirectory(prefix="palinurus-year-") as folder:
            return await World(seed, Path(folder), days=days).live()

    log = logging.getLogger("palinurus")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        return run_virtually(story)
    finally:
        log.setLevel(level)
