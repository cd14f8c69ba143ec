"""A process that is warm and runs turns when told to: what ours and the peers' have in common.

It imports nothing of Palinurus, because a peer's interpreter runs it too. The parent writes a number of turns as a
line; the answer is a line of JSON with one measurement for each turn. A batch starts with a history of 50 messages in
a session of its own for each turn, so that no turn is dearer than the one before.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

HISTORY = 50
QUESTION = "And what did we say about the second harbour?"
_WORDS = ("the", "harbour", "lies", "south", "of", "the", "old", "tower", "and", "we", "sail", "on", "friday")
_ARRIVED = re.compile(r"arrived (\d+)")

Batch = Callable[[int], list[dict[str, float]]]
"""Runs so many turns, one after the other, and measures each."""


def history(messages: int = HISTORY) -> list[dict[str, str]]:
    """What was said before: questions of about 100 characters, answers of about 600."""
    return [
        {"role": "assistant" if number % 2 else "user", "content": _text(number, 120 if number % 2 else 20)}
        for number in range(messages)
    ]


def _text(number: int, words: int) -> str:
    return f"({number}) " + " ".join(_WORDS[(number + at) % len(_WORDS)] for at in range(words))


class Stopwatch:
    """Wall time, CPU of all threads, how long until the model had the request, and from there to its first words."""

    def __init__(self) -> None:
        self._cpu = time.process_time_ns()
        self._wall = time.monotonic_ns()
        self._accepted: int | None = None
        self._heard: int | None = None

    def accepted(self) -> None:
        self._accepted = time.monotonic_ns()

    def heard(self) -> None:
        """The first words of the model are here."""
        self._heard = self._heard or time.monotonic_ns()

    def read(self, reply: str) -> dict[str, float]:
        cpu, wall = time.process_time_ns(), time.monotonic_ns()
        match = _ARRIVED.search(reply)
        if match is None:
            raise SystemExit(f"the model did not answer: {reply[:200]!r}")
        arrived = int(match[1])
        return {
            "cpu_ms": (cpu - self._cpu) / 1e6,
            "wall_ms": (wall - self._wall) / 1e6,
            "to_wire_ms": (arrived - self._wall) / 1e6,
            "accepted_to_wire_ms": (arrived - (self._accepted or self._wall)) / 1e6,
            "first_words_ms": ((self._heard or wall) - arrived) / 1e6,
        }


def answer(batch: Batch) -> None:
    """Run batches until the parent closes the pipe. What others print goes to stderr: stdout is for figures."""
    figures = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for turns in _orders():
        json.dump(batch(turns), figures)
        figures.write("\n")
        figures.flush()


def _orders() -> Iterator[int]:
    while line := sys.stdin.readline():
        yield int(line)


def run_in(loop: Any, batch: Callable[[int], Any]) -> Batch:
    """A batch that is a coroutine, in a loop that lives as long as the process."""
    return lambda turns: loop.run_until_complete(batch(turns))
