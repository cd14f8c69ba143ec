"""The forecast of a month is an interval, and most months are in it."""

from __future__ import annotations

import random

from msgspec import Struct
from msgspec.structs import replace

from palinurus.extensions.schedule.cron_job import CronState
from palinurus.extensions.schedule.forecast import DayOfLooks, ForecastBasis, TokenCost, forecast
from palinurus.extensions.schedule.heartbeat_file import parse_heartbeat
from palinurus.extensions.schedule.heartbeat_gate import DAY_MS, PROBE, BeatSituation, decide
from palinurus.extensions.schedule.heartbeat_settings import ActiveHours, HeartbeatSettings
from palinurus.testing.loop_time import excuse

MONTHS = 200
PROMPT_TOKENS = 6000
COST = TokenCost(3.0, 15.0)
FILE = parse_heartbeat("- Is there mail?")


class Life(Struct):
    """How somebody's mail comes, and what their agent makes of it."""

    rate: float  # of a look at which the count has changed
    weekend: float  # of that rate on Saturdays and Sundays
    unrest: float  # how much the days differ
    tokens: float  # of a call, on the average
    reports: float  # share of looks that end in a report
    settings: HeartbeatSettings

    @classmethod
    def drawn(cls, dice: random.Random) -> Life:
        hours = dice.choice([ActiveHours(), ActiveHours("08:00", "22:00")])
        probes = dice.choice([("count",), ("count",), ()])
        settings = HeartbeatSettings(every=dice.choice([1800.0, 3600.0]), probes=probes, active_hours=hours)
        tokens = PROMPT_TOKENS * dice.lognormvariate(0.5, 0.5)
        rate, weekend = 10 ** dice.uniform(-2.5, -0.4), dice.choice([0.0, 0.1, 1.0])
        return cls(rate, weekend, dice.uniform(0, 0.8), tokens, dice.random(), settings)

    def lives(
        self, days: range, state: CronState, dice: random.Random
    ) -> tuple[list[DayOfLooks], list[int], CronState]:
        """What the gate decides in these days: the looks and calls of each, and the tokens of each call."""
        past: list[DayOfLooks] = []
        tokens: list[int] = []
        count = 0
        for day in days:
            rate = self.rate * (self.weekend if day % 7 >= 5 else 1.0) * dice.lognormvariate(0, self.unrest)
            looks = calls = 0
            for minute in range(0, 1440, self.settings.every_ms // 60_000):
                now, looks = day * DAY_MS + minute * 60_000, looks + 1
                count += dice.random() < rate
                seen = {PROBE + "count": f"{days.start} {count}"} if self.settings.probes else {"HEARTBEAT.md": "same"}
                if decide(BeatSituation(now, minute, self.settings, state, FILE, now - DAY_MS, seen=seen)).skip:
                    continue
                calls += 1
                quiet = 0 if dice.random() < self.reports else state.quiet_beats + 1
                state = replace(state, seen=seen, last_look_at_ms=now, quiet_beats=quiet)
                tokens.append(int(self.tokens * dice.lognormvariate(0, 0.4)))
            past.append(DayOfLooks(looks, calls))
        return past, tokens, state


def test_the_interval_covers_the_true_cost_of_most_months() -> None:
    covered = {True: 0, False: 0}
    with excuse("two hundred months are simulated"):
        for seed in range(MONTHS):
            dice = random.Random(seed)
            life, days = Life.drawn(dice), dice.choice([0, 3, 7, 14, 30])
            past, past_tokens, state = life.lives(range(days), CronState(), dice)
            month, tokens, _ = life.lives(range(days, days + 30), state, dice)
            looks = sum(day.looks for day in month)
            basis = ForecastBasis(looks, past, past_tokens, PROMPT_TOKENS, cost=COST)
            dollars = forecast(basis, random.Random(seed)).dollars
            assert dollars is not None
            covered[dollars.low <= sum(tokens) * COST.per_token <= dollars.high] += 1
    assert covered[True] >= 0.8 * MONTHS
    assert covered[False] > 0  # an interval that covers everything says nothing


def test_a_long_past_narrows_the_interval() -> None:
    def width(days: int) -> float:
        past = [DayOfLooks(48, 4 + day % 3) for day in range(days)]
        made = forecast(ForecastBasis(1440, past, [6000] * 5 * days, 6000, cost=COST), random.Random(1)).dollars
        assert made is not None
        return (made.high - made.low) / made.expected

    assert width(30) < width(7) < width(0)
    assert width(30) < 0.5


def test_without_a_price_there_are_only_tokens() -> None:
    made = forecast(ForecastBasis(1440, prompt_tokens=6000), random.Random(1))
    assert made.dollars is None
    assert made.tokens.low < made.tokens.expected < made.tokens.high


def test_tasks_are_counted_and_hours_that_never_come_cost_nothing() -> None:
    made = forecast(ForecastBasis(1440, prompt_tokens=6000, tasks_a_month=60), random.Random(1))
    assert made.calls.low < 60 < made.calls.high
    assert forecast(ForecastBasis(0, prompt_tokens=6000), random.Random(1)).tokens.high == 0
