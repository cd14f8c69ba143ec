"""Names are unique nouns of the trade, and functions are short.

`.ci/run` sets NAMES_TOOL where the tool lies beside the repo. tools/names-exceptions.txt lists what is left as it is,
with the reason for each.
"""

from __future__ import annotations

import ast
import os
import re
import resource
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "palinurus"
EXCEPTIONS = ROOT / "tools" / "names-exceptions.txt"
MOST = {"TWICE": 0, "MOOD": 0, "METAPHOR": 0, "CRUMB": 10, "WIDE": 5}
LONGEST_FUNCTION = 60


def test_no_name_breaks_the_rules() -> None:
    if not (tool := os.environ.get("NAMES_TOOL")):
        pytest.skip("NAMES_TOOL is not set")
    command = [sys.executable, tool, str(SOURCE), "--all", "--except", str(EXCEPTIONS)]
    minute = partial(resource.setrlimit, resource.RLIMIT_CPU, (60, 60))  # of its own: the machine may be busy
    told = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=minute).stdout
    counts = {kind: int(count) for kind, count in re.findall(r"([A-Z]{4,}) (\d+)", told.splitlines()[0])}
    assert {kind: counts[kind] for kind, most in MOST.items() if counts[kind] > most} == {}, told


def test_every_exception_has_its_reason_and_there_are_few() -> None:
    lines = [line for line in EXCEPTIONS.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert [line for line in lines if not re.fullmatch(r"\S+ +# .{10,}", line)] == []
    assert len(lines) <= 40


def test_no_function_is_long() -> None:
    long = []
    for path in SOURCE.rglob("*.py"):
        if {"bundled", "templates"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(SOURCE)}:{node.name} {lines}")
    assert long == []


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by their names; in a package they have its name before theirs."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    twice = [name for name, number in Counter(path.name for path in files).items() if number > 1]
    assert twice == []
