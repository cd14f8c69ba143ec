"""The workload of benchmarks/prefix.py: most of each prompt has been read before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_nine_tenths_of_what_is_sent_was_sent_before() -> None:
    command = [sys.executable, "-m", "benchmarks.prefix"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
