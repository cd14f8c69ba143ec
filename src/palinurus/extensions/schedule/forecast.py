"""What a heartbeat will cost in a month: an interval, drawn from what is known. Pure; the dice are an argument.

How often a model is called is a share of the looks, with a Beta distribution: what was seen so far on top of a guess.
Days differ more than chance makes them (working days, holidays), so that what was seen counts for less, by the measured
spread between days. Tokens of a call are those of the past, or the size of the prompt times a wide guess.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean, stdev

from msgspec import Struct

DRAWS = 1000
LOW, HIGH = 0.05, 0.95
GUESS = (0.1, 5.0)  # the share of looks that call a model, and for how many looks the guess counts
ENOUGH_CALLS = 5  # whose tokens tell what a call takes
REPLY_TOKENS = 300  # of one that is guessed
TURNS = (0.5, 0.6)  # of a call that is guessed: the logarithm of how many prompts it takes, and its spread
OUTPUT_SHARE = 0.05  # of the tokens of a call


class DayOfLooks(Struct, frozen=True):
    """A day of the past: how often the heartbeat was due, and how often a model was called."""

    looks: int
    calls: int


class TokenCost(Struct, frozen=True):
    """US dollars per million tokens."""

    input: float
    output: float

    @property
    def per_token(self) -> float:
        return (self.input * (1 - OUTPUT_SHARE) + self.output * OUTPUT_SHARE) / 1_000_000


class ForecastBasis(Struct, frozen=True):
    looks_a_month: float
    days: Sequence[DayOfLooks] = ()
    tokens: Sequence[int] = ()  # of each past call
    prompt_tokens: int = 0
    tasks_a_month: float = 0.0  # calls that tasks in HEARTBEAT.md cause anyway
    cost: TokenCost | None = None  # None: the price is not known


class ForecastRange(Struct, frozen=True):
    low: float
    expected: float
    high: float


class HeartbeatForecast(Struct, frozen=True, rename="camel"):
    """For a month of 30 days. Nine of ten months should be between low and high."""

    looks: int
    calls: ForecastRange
    tokens: ForecastRange
    dollars: ForecastRange | None  # None: the price is not known
    from_days: int  # days of the past that it is made of
    remarks: tuple[str, ...] = ()


def forecast(basis: ForecastBasis, dice: random.Random) -> HeartbeatForecast:
    calls = _draw_calls(basis, dice)
    tokens = _draw_tokens(basis, calls, dice)
    dollars = None if basis.cost is None else _range([each * basis.cost.per_token for each in tokens], 4)
    return HeartbeatForecast(round(basis.looks_a_month), _range(calls), _range(tokens), dollars, len(basis.days))


def _draw_calls(basis: ForecastBasis, dice: random.Random) -> list[float]:
    looks = basis.looks_a_month
    guess, weight = GUESS
    if basis.tasks_a_month and looks:
        guess, weight = min(0.9, basis.tasks_a_month / looks + 0.02), 20.0
    spread = _spread(basis.days)
    called, due = sum(day.calls for day in basis.days), sum(day.looks for day in basis.days)
    drawn = []
    for _ in range(DRAWS):
        share = dice.betavariate(guess * weight + called / spread, (1 - guess) * weight + (due - called) / spread)
        calls = dice.gauss(looks * share, math.sqrt(looks * share * (1 - share) * spread))
        drawn.append(min(max(calls, 0.0), looks))
    return drawn


def _spread(days: Sequence[DayOfLooks]) -> float:
    """How much more the days differ than by chance; 1: not more. Few days say little of it."""
    used = [day for day in days if day.looks]
    share = sum(day.calls for day in used) / max(sum(day.looks for day in used), 1)
    if len(used) < 2 or not 0 < share < 1:
        return 2.0
    chance = share * (1 - share)
    found = sum((day.calls - day.looks * share) ** 2 / (day.looks * chance) for day in used) / (len(used) - 1)
    return max(1.0, found) * (1 + 2 / len(used))


def _draw_tokens(basis: ForecastBasis, calls: Sequence[float], dice: random.Random) -> list[float]:
    known = basis.tokens
    if len(known) < ENOUGH_CALLS:
        guesses = (basis.prompt_tokens * dice.lognormvariate(*TURNS) + REPLY_TOKENS for _ in calls)
        return [each * guess for each, guess in zip(calls, guesses, strict=True)]
    mean, spread = fmean(known), stdev(known)
    errors = (spread * math.sqrt(1 / len(known) + 1 / max(each, 1.0)) for each in calls)
    return [each * max(dice.gauss(mean, error), 0.0) for each, error in zip(calls, errors, strict=True)]


def _range(drawn: list[float], digits: int = 1) -> ForecastRange:
    ordered = sorted(drawn)
    low, high = (ordered[int(len(ordered) * share)] for share in (LOW, HIGH))
    return ForecastRange(*(round(each, digits) for each in (low, fmean(drawn), high)))
