"""A program that asks `pal memory search --stdin --json`: a question on a line, the answer on a line."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Any, Self

from benchmarks.processes import SECONDS, Broken, Command


class Stdin:
    def __init__(self, command: Command) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command.argv,
            env=dict(self._command.env),
            cwd=self._command.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=SECONDS)

    def ask(self, question: str) -> float:
        """Milliseconds until the answer is here. Raises Broken when none comes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        killer = threading.Timer(SECONDS, self._process.kill)
        killer.start()
        began = time.perf_counter_ns()
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        took = (time.perf_counter_ns() - began) / 1e6
        killer.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if "results" not in answer:
            raise Broken(f"no answer to {question!r}")
        return took
