"""The table of operations: one name each, and everything in it can cross a border."""

from __future__ import annotations

import msgspec
import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, UnknownOperation
from palinurus.operations.runs import StopRuns, stop_runs
from palinurus.operations.sessions import list_sessions
from palinurus.operations.table import Feed, LocalCaller, Operation, read_params
from palinurus.runtime.table import TABLE
from palinurus.testing.harness import Harness

ROWS = list(TABLE)


def test_names_are_unique_and_say_family_and_verb() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names)) >= 9
    assert [name for name in names if name != name.lower()] == ["exec.approval.waitDecision"]  # as OpenClaw calls it


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_parameters_and_results_have_a_schema(row: Operation | Feed) -> None:  # type: ignore[type-arg]
    assert msgspec.json.schema(row.params)
    assert msgspec.json.schema(row.result)
    assert row.scope in ("read", "write", "approvals", "pairing", "admin")


def test_an_unknown_name_says_which() -> None:
    with pytest.raises(UnknownOperation, match=r"'sessions\.dream'") as unknown:
        TABLE.get("sessions.dream")
    assert "another release" in unknown.value.hint


def test_parameters_are_checked_at_the_border() -> None:
    assert read_params(list_sessions, b'{"limit": 5}') == list_sessions.params(limit=5)
    with pytest.raises(BadRequest, match=r"sessions\.list: .*limit"):
        read_params(list_sessions, b'{"limit": "many"}')


async def test_stopping_needs_a_session_or_a_run(pal: Harness, home: Home) -> None:
    with pytest.raises(BadRequest, match="which run"):
        await LocalCaller(pal.services(home)).call(stop_runs, StopRuns())
