"""The table of programs says what the real tests have shown, all of it, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.compatibility import (
    PROGRAMS,
    RECORDS,
    ROOT,
    Outcome,
    Record,
    declarations,
    merge_outcomes,
    read_records,
    write_records,
)

TESTS = """
import pytest

@pytest.mark.shows("clawhub", "search")
@pytest.mark.parametrize("good", [True, False])
def test_a(good): assert good

@pytest.mark.shows("OpenClaw", "health")
def test_b(record_property): record_property("version", "2026.1.1")

@pytest.mark.skip(reason="not here")
@pytest.mark.shows("OpenClaw", "agent")
@pytest.mark.shows("OpenClaw", "never tried")
def test_c(): pass

def test_d(): pass
"""


def test_every_row_is_declared_by_a_test_and_every_declaration_has_its_row() -> None:
    rows = {(record.program, record.what) for record in read_records(RECORDS)}
    assert rows == declarations(ROOT / "tests"), (
        "run `make test-real`, or the new tests with COMPATIBILITY set, then `make docs`"
    )
    assert {program for program, _ in rows} == set(PROGRAMS)


def test_a_run_records_what_its_tests_show_also_from_workers(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  shows(program, what): x\n")
    records = tmp_path / "records.json"
    write_records(records, [Record("OpenClaw", "2025.1", "agent", "works")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", "1", "-p", "support.compatibility"]
    env = os.environ | {"COMPATIBILITY": str(records), "PYTHONPATH": str(ROOT / "tests")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # to load the others takes most of the time
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found = {(record.program, record.what): (record.version, record.result) for record in read_records(records)}
    assert found == {
        ("clawhub", "search"): (PROGRAMS["clawhub"](), "fails"),
        ("OpenClaw", "health"): ("2026.1.1", "works"),
        ("OpenClaw", "agent"): ("2025.1", "works"),
        ("OpenClaw", "never tried"): ("", "not tried"),
    }


def test_a_new_release_takes_the_place_of_the_old_one_unless_the_test_chooses_its_version() -> None:
    records = [Record("a", "1", "x", "works"), Record("a", "1", "y", "works"), Record("a", "1", "gone", "works")]
    outcomes = [Outcome("a", "x", "", "fails"), Outcome("a", "y", "2", "works"), Outcome("a", "y", "3", "not tried")]
    merged = merge_outcomes(records, outcomes, lambda _: "2", {("a", "x"), ("a", "y")})
    assert set(merged) == {
        Record("a", "2", "x", "fails"),
        Record("a", "1", "y", "works"),
        Record("a", "2", "y", "works"),
    }
