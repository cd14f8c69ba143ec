"""Whole lives of a home, by seed: a sample here, many thousands in `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from palinurus.testing.faults import Weather, dice_for
from palinurus.testing.simulator import main, on_disk, simulate

LIVES = 60
AT_A_TIME = 20
STEPS = 40

FAILED_ONCE = ((2, 60), (30, 60), (38, 60), (75, 60), (149, 60), (217, 60), (457, 60), (670, 60), (2, 40))
"""Seeds and steps that broke a promise. A seed is a life only for the code it was drawn with, so what such a life has
taught is also told in test_found_in_lives.py; a seed that fails tomorrow is added here."""


@pytest.mark.parametrize("first", range(0, LIVES, AT_A_TIME))
def test_the_promises_hold_through_lives_full_of_faults(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        simulate(seed, STEPS)


@pytest.mark.parametrize(("seed", "steps"), FAILED_ONCE)
def test_the_promises_hold_where_they_once_did_not(seed: int, steps: int) -> None:
    simulate(seed, steps)


@pytest.mark.parametrize("seed", [3, 8])
def test_the_promises_hold_over_sqlite(seed: int) -> None:
    simulate(seed, 20, shelf=on_disk)


def test_a_seed_gives_the_same_life_each_time_and_another_seed_another() -> None:
    stormy = (seed for seed in range(100) if all(msgspec.structs.astuple(Weather.drawn(dice_for(seed, "world")))))
    seed = next(stormy)
    life = simulate(seed, STEPS)
    assert simulate(seed, STEPS) == life
    assert simulate(seed + 1, STEPS).digest != life.digest


def test_a_seed_gives_the_same_life_in_another_process() -> None:
    program = f"from palinurus.testing.simulator import simulate; print(simulate(5, {STEPS}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == simulate(5, STEPS).digest


def test_lives_are_full_of_what_the_simulator_is_for() -> None:
    seen: Counter[str] = Counter()
    turns = lives = 0
    for seed in range(10):
        life = simulate(seed, STEPS)
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
