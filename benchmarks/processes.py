"""Whole processes, timed from start to exit, interleaved so that a slow minute of the machine is slow for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

SECONDS = 180.0
ROOT = Path(__file__).parent.parent


class Broken(Exception):
    """A command that did not do what it was measured for."""


@dataclass(frozen=True)
class Command:
    """What is timed. `says` must stand in its output, or it was not what we meant to time."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    says: str = ""


@dataclass(frozen=True)
class Timing:
    wall_ms: float
    cpu_ms: float  # of the process and of the children it waited for


def time_once(command: Command) -> Timing:
    began = time.monotonic_ns()
    process = subprocess.Popen(
        command.argv,
        env=dict(command.env),
        cwd=command.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    killer = threading.Timer(SECONDS, process.kill)
    killer.start()
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.read().decode("utf-8", "replace")
    complaint = process.stderr.read().decode("utf-8", "replace")
    _, status, used = os.wait4(process.pid, 0)
    ended = time.monotonic_ns()
    killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    if process.returncode != 0 or command.says not in said:
        lines = (complaint or said).strip().splitlines()
        raise Broken(f"exit {process.returncode}: {lines[-1] if lines else 'nothing was said'}")
    return Timing((ended - began) / 1e6, (used.ru_utime + used.ru_stime) * 1000)


def interleaved(commands: Sequence[Command], rounds: int, note: Callable[[str], None]) -> dict[str, Timing]:
    """The median of each over so many rounds, after one round that warms up. One that breaks is left out."""
    taken: dict[str, list[Timing]] = {}
    for number in range(rounds + 1):
        for command in commands:
            if number and command.name not in taken:
                continue
            try:
                timing = time_once(command)
            except Broken as error:
                note(f"{command.name}: left out: {error}")
                taken.pop(command.name, None)
                continue
            times = taken.setdefault(command.name, [])
            if number:
                times.append(timing)
    return {
        name: Timing(median(t.wall_ms for t in times), median(t.cpu_ms for t in times)) for name, times in taken.items()
    }


class Warm:
    """A process that runs turns when it is told to (benchmarks/warm.py)."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self._log = cwd / f"{Path(argv[0]).name}-{Path(argv[-1]).name}.log"
        self._process = subprocess.Popen(
            argv,
            env={**env, "PYTHONPATH": str(ROOT)},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("wb"),
            text=True,
        )

    @classmethod
    def of_module(cls, module: str, env: Mapping[str, str], cwd: Path, python: str = sys.executable) -> Self:
        return cls([python, "-m", module], env, cwd)

    def turns(self, count: int) -> list[dict[str, float]]:
        """Raises Broken when the process does not answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        killer = threading.Timer(SECONDS, self._process.kill)
        killer.start()
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{count}\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        killer.cancel()
        if not line:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise Broken(said[-1] if said else "ended without a word")
        figures: list[dict[str, float]] = json.loads(line)
        return figures

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
