"""Whole lives of a home, by seed: a sample here, many thousands in `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import count, islice

import pytest

from support import TESTS
from support.faults import CALM, Weather, dice_for
from support.simulator import main, on_disk, simulate
from support.world import LOSSES

LIVES = 60
AT_A_TIME = 10
STEPS = 40
DISK_LIVES, DISK_STEPS = 12, 25

FAILED_ONCE = ((2, 60), (30, 60), (38, 60), (75, 60), (149, 60), (217, 60), (457, 60), (670, 60), (2, 40))
"""Seeds and steps that broke a promise. A seed is a life only for the code it was drawn with, so what such a life has
taught is also told in test_found_in_lives.py; a seed that fails tomorrow is added here."""


once = cache(simulate)
"""Where two tests look at the same life."""


@pytest.mark.parametrize("first", range(0, LIVES, AT_A_TIME))
def test_the_promises_hold_through_lives_full_of_faults(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        once(seed, STEPS)


@pytest.mark.parametrize(("seed", "steps"), FAILED_ONCE)
def test_the_promises_hold_where_they_once_did_not(seed: int, steps: int) -> None:
    simulate(seed, steps)


def test_the_promises_hold_on_a_disk_whose_files_vanish() -> None:
    seen: Counter[str] = Counter()
    for seed in range(DISK_LIVES):
        seen.update(simulate(seed, DISK_STEPS, shelf=on_disk).counts)
    assert {"lock kept", "lock taken", *(f"lost {what}" for what in LOSSES)} <= seen.keys()


def seeds_with(kind: str) -> Iterator[int]:
    """Whose lives have a slow disk, or a verbose model."""
    return (seed for seed in count() if getattr(CALM.with_more(dice_for(seed, "more weather")), kind))


def test_the_promises_hold_with_a_model_that_says_far_too_much() -> None:
    said = sum(simulate(seed, 15).counts.get("verbose", 0) for seed in islice(seeds_with("verbose"), 5))
    assert said > 10


def test_the_promises_hold_on_a_disk_that_takes_seconds() -> None:
    for seed in islice(seeds_with("slow"), 3):
        simulate(seed, DISK_STEPS, shelf=on_disk)


def test_a_seed_gives_the_same_life_on_a_disk_each_time() -> None:
    seed = next(seeds_with("slow"))
    life = simulate(seed, DISK_STEPS, shelf=on_disk)
    assert simulate(seed, DISK_STEPS, shelf=on_disk) == life


def test_a_seed_gives_the_same_life_each_time_and_another_seed_another() -> None:
    drawn = ((seed, Weather.drawn(dice_for(seed, "world"))) for seed in range(100))
    seed = next(seed for seed, it in drawn if it.delay and it.fail and it.crash and it.lie)
    life = once(seed, STEPS)
    assert simulate(seed, STEPS) == life
    assert once(seed + 1, STEPS).digest != life.digest


def test_a_seed_gives_the_same_life_in_another_process() -> None:
    program = f"from support.simulator import simulate; print(simulate(5, {STEPS}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout.strip() == once(5, STEPS).digest


def test_lives_are_full_of_what_the_simulator_is_for() -> None:
    seen: Counter[str] = Counter()
    turns = lives = 0
    for seed in range(10):
        life = once(seed, STEPS)
        seen.update(life.counts)
        turns += life.turns
        lives += life.lives
    assert turns > 300
    assert lives > 30  # ten homes, most of which crashed more than once
    assert seen["crash"] > 10
    assert seen["fail"] > 10
    assert seen["answer"] > 300


def test_the_command_lives_the_seeds_it_is_given_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1-3", "--steps", "5"]) == 0
    said = capsys.readouterr().out
    assert "3 lives" in said
    assert "failed: none" in said
