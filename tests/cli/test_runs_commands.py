"""`pal runs`: the last runs in lines, one run as a timeline, and nothing that a terminal would obey."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest
from called import Pal

from palinurus.cli.ledger import duration, timeline
from palinurus.config.home import Home
from palinurus.dispatch.traces import Tracer
from palinurus.domain.messages import Usage
from palinurus.ledger.trace import ModelStep, RunTrace, ToolStep, TraceStore
from palinurus.operations.table import LocalCaller
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.harness import Harness

MAIN = "agent:main:main"
SAILED = RunTrace(
    "3f9a12bc00000001",
    MAIN,
    "cli",
    1_794_744_000_000,
    "ok",
    40,
    5_000,
    "openai/gpt-5",
    Usage(1_000, 50, 200),
    steps=(
        ModelStep(45, "openai", "gpt-5", 955, 340, Usage(500, 20), "toolUse", notices=("overloaded; trying again",)),
        ToolStep(1_000, "exec", 3_000, "sandbox", approval="allowed-once", approval_ms=2_500),
        ModelStep(4_010, "openai", "gpt-5", 980, 100, Usage(700, 30), "stop"),
    ),
)
FAILED = RunTrace(
    "3f9b000000000002",
    "agent:main:\x1b[31mred",
    "cli",
    1_794_744_010_000,
    "error",
    0,
    90_000,
    error="no \x1b]0;answer\x07",
    error_kind="overload",
    steps=(ToolStep(5, "ls\x1b[2J", 10, is_error=True),),
)


@pytest.fixture(autouse=True)
def traces(workspace: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> TraceStore:
    database = MemoryDatabase()
    store = TraceStore(database)
    for trace in (SAILED, FAILED):
        database.look(partial(store._keep, trace=trace))
    pal = Harness(workspace)
    services = pal.services(home).replace(traces=Tracer(store, pal.clock, pal.dispatcher.runs))

    class Opened:
        async def __aenter__(self) -> LocalCaller:
            return LocalCaller(services)

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr("palinurus.cli.command.open_home", lambda _: Opened())
    return store


def test_runs_are_listed_with_the_newest_first(pal_command: Pal) -> None:
    lines = pal_command("runs", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["3f9b0000", "3f9a12bc"]
    assert "2 model · 1 tool · 1,200 in (200 cached), 50 out · openai/gpt-5 · agent:main:main" in lines[1]
    assert " 4.96 s " in lines[1]  # without the time in which it waited


def test_lists_are_filtered_and_are_json_for_programs(pal_command: Pal) -> None:
    assert [run["runId"] for run in pal_command("runs", "list", "--status", "ok", "--json").json["runs"]] == [
        SAILED.run_id
    ]
    assert [run["runId"] for run in pal_command("runs", "list", "--limit", "1", "--json").json["runs"]] == [
        FAILED.run_id
    ]
    of_session = pal_command("runs", "list", "--session-key", MAIN, "--json").json["runs"]
    assert [run["runId"] for run in of_session] == [SAILED.run_id]


def test_a_run_is_shown_as_a_timeline(pal_command: Pal) -> None:
    assert timeline(SAILED, 120) == [
        "run      3f9a12bc00000001",
        "session  agent:main:main · cli",
        "ended    ok · openai/gpt-5 · 1,200 in (200 cached), 50 out",
        "",
        "    0 ms    40 ms █                     waited  in the queue",
        "   45 ms   955 ms ████                  model   openai/gpt-5 · first token 340 ms · 500 in, 20 out · toolUse",
        "                                        ! overloaded; trying again",
        "  1.00 s   3.00 s     ████████████      tool    exec · sandbox · approval allowed-once after 2.50 s",
        "  4.01 s   980 ms                 ████  model   openai/gpt-5 · first token 100 ms · 700 in, 30 out · stop",
        "  4.99 s    10 ms                    █  stored  and answered",
    ]
    assert pal_command("runs", "show", "3f9a").out.splitlines()[0] == "run      3f9a12bc00000001"


def test_the_newest_run_is_shown_when_none_is_named_and_json_is_the_whole_trace(pal_command: Pal) -> None:
    shown = pal_command("runs", "show", "--json").json
    assert msgspec.convert(shown, RunTrace) == FAILED


def test_lines_fit_into_the_terminal_and_say_when_they_are_cut() -> None:
    lines = timeline(SAILED, 80)
    assert max(map(len, lines)) == 80
    assert lines[5].endswith("first token 340 …")


def test_what_goes_on_is_shown_as_going_on() -> None:
    running = msgspec.structs.replace(
        SAILED, status="running", ms=2_000, steps=(ToolStep(1_000, "exec", approval="waiting"),)
    )
    *_, last = timeline(running, 100)
    assert last == "  1.00 s        …           ██████████  tool    exec · approval waiting"
    waiting = RunTrace("w", MAIN, "cli", 0, "waiting", ms=500)
    assert timeline(waiting, 100)[-1] == "    0 ms        … ████████████████████  waited  in the queue"


def test_no_terminal_obeys_what_a_run_brought(pal_command: Pal) -> None:
    for shown in (pal_command("runs", "list").out, pal_command("runs", "show", "3f9b").out):
        assert "\x1b" not in shown
        assert "\x07" not in shown


def test_an_id_that_is_unknown_or_not_clear_is_told_in_one_line(pal_command: Pal) -> None:
    for beginning, complaint in (
        ("zz", "there is no run 'zz'"),
        ("3f9", "more than one run begins with '3f9'"),
    ):
        ended = pal_command("runs", "show", beginning)
        assert ended.code != 0
        assert ended.err == f"pal: {complaint} (pal runs list)\n"


def test_a_home_in_which_nothing_ran_says_so(pal_command: Pal, traces: TraceStore) -> None:
    traces._database.look(lambda tx: tx.run("traces.forget", kept=0))  # type: ignore[attr-defined]
    assert pal_command("runs", "list").out == "No matching runs.\n"
    assert pal_command("runs", "show").err == "pal: there are no runs yet (pal runs list)\n"


@pytest.mark.parametrize(("ms", "told"), [(0, "0 ms"), (999, "999 ms"), (1_500, "1.50 s"), (61_000, "1m 01s")])
def test_durations_are_read_at_a_glance(ms: int, told: str) -> None:
    assert duration(ms) == told
