"""What a cron job of OpenClaw says, in the forms of all its versions, and what becomes of it here."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.extensions.migrate.cron_export import write_job
from palinurus.extensions.migrate.cron_import import ImportedJob
from palinurus.extensions.migrate.foreign import ForeignConfig, ForeignDocument, ForeignHome
from palinurus.extensions.migrate.openclaw.config_rules import heartbeats_in
from palinurus.extensions.migrate.openclaw.cron_documents import jobs_in, run_file
from palinurus.extensions.migrate.openclaw.cron_jobs import JobSurroundings, ReadJob, read_job
from palinurus.extensions.migrate.operations import heartbeat_notes
from palinurus.extensions.migrate.report import FoundSetting
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    AtSchedule,
    CommandPayload,
    CronDelivery,
    CronJob,
    CronSchedule,
    EverySchedule,
    SystemEventPayload,
)

NOW = 1_795_000_000_000  # 2026-11-18
AROUND = JobSurroundings(frozenset({"main", "ledger"}), "main", NOW, UTC)
HOURLY = {"kind": "every", "everyMs": 3_600_000, "anchorMs": 7}
TURN = {"kind": "agentTurn", "message": "Look around."}


def read(**fields: Any) -> ReadJob:
    return read_job({"id": "j", "name": "J", "schedule": HOURLY, "payload": TURN, **fields}, AROUND)


def job_of(**fields: Any) -> CronJob:
    found = read(**fields)
    assert found.job is not None, found.reasons
    return found.job


@pytest.mark.parametrize(
    ("written", "schedule"),
    [
        ({"kind": "at", "at": "2026-12-01T09:00:00"}, AtSchedule("2026-12-01T09:00:00+00:00")),
        ({"kind": "at", "at": "2026-12-01T09:00:00.000Z"}, AtSchedule("2026-12-01T09:00:00.000Z")),
        ({"kind": "at", "at": "2026-12-01T09:00:00+02:00"}, AtSchedule("2026-12-01T09:00:00+02:00")),
        ({"kind": "at", "atMs": 1_796_115_600_000}, AtSchedule("2026-12-01T09:00:00+00:00")),
        ({"atMs": "1796115600000"}, AtSchedule("2026-12-01T09:00:00+00:00")),
        ({"kind": "every", "everyMs": 60_000, "anchorMs": 5}, EverySchedule(60_000, 5)),
        ({"kind": "every", "everyMs": "60000"}, EverySchedule(60_000, 99)),
        ({"kind": "Cron", "expr": "0 8 * * 1-5", "tz": "Europe/Berlin"}, CronSchedule("0 8 * * 1-5", "Europe/Berlin")),
        ({"kind": "cron", "expr": "0 0 8 * * *", "staggerMs": 0}, CronSchedule("0 0 8 * * *", "", 0)),
        ({"cron": "0 8 * * *"}, CronSchedule("0 8 * * *")),
        ("0 8 * * *", CronSchedule("0 8 * * *")),
    ],
)
def test_a_schedule_is_read_in_every_form(written: Any, schedule: Any) -> None:
    assert job_of(schedule=written, createdAtMs=99).schedule == schedule


@pytest.mark.parametrize(
    ("written", "payload", "target"),
    [
        ({"payload": {"kind": "systemEvent", "text": "tea"}}, SystemEventPayload("tea"), "main"),
        ({"payload": {"kind": "systemevent", "message": "tea"}}, SystemEventPayload("tea"), "main"),
        ({"payload": {"message": "go"}}, AgentTurnPayload("go"), "isolated"),
        ({"payload": None, "message": "go", "model": "a/b"}, AgentTurnPayload("go", "a/b"), "isolated"),
        ({"payload": None, "command": "tea"}, SystemEventPayload("tea"), "main"),
        (
            {"payload": {**TURN, "model": "a/b", "thinking": "High", "timeoutSeconds": 90, "lightContext": True}},
            AgentTurnPayload("Look around.", "a/b", "high", 90.0, True),
            "isolated",
        ),
        ({"payload": {**TURN, "toolsAllow": ["*"]}}, AgentTurnPayload("Look around."), "isolated"),
        ({"payload": {**TURN, "toolsAllow": ["a"]}}, AgentTurnPayload("Look around.", tools_allow=("a",)), "isolated"),
        ({"payload": {**TURN, "toolsAllow": []}}, AgentTurnPayload("Look around.", tools_allow=()), "isolated"),
        ({"sessionTarget": "session:diary"}, AgentTurnPayload("Look around."), "session:diary"),
        (
            {"sessionTarget": "current", "sessionKey": "agent:main:telegram:direct:7"},
            AgentTurnPayload("Look around."),
            "session:agent:main:telegram:direct:7",
        ),
        ({"sessionTarget": "current"}, AgentTurnPayload("Look around."), "isolated"),
        (
            {"payload": {"kind": "command", "argv": ["date", "-u"], "cwd": "/tmp"}},
            CommandPayload(("date", "-u"), "/tmp"),
            "isolated",
        ),
    ],
)  # fmt: skip
def test_a_payload_and_its_session_are_read_in_every_form(written: Any, payload: Any, target: str) -> None:
    found = job_of(**written)
    assert (found.payload, found.session_target) == (payload, target)


@pytest.mark.parametrize(
    ("written", "delivery"),
    [
        ({}, CronDelivery()),
        ({"delivery": {"mode": "none", "channel": "last"}}, CronDelivery("none", "last")),
        (
            {"delivery": {"mode": "announce", "channel": "Telegram", "to": "-100:topic:42", "accountId": "bot"}},
            CronDelivery("announce", "telegram", "-100", "bot", "42"),
        ),
        ({"delivery": {"channel": "slack", "to": "C", "threadId": 7}}, CronDelivery("announce", "slack", "C", "", "7")),
        ({"payload": {**TURN, "deliver": False, "channel": "slack"}}, CronDelivery("none", "slack")),
        ({"payload": {**TURN, "provider": "slack", "to": "C"}}, CronDelivery("announce", "slack", "C")),
        ({"deliver": False}, CronDelivery("none")),
        ({"isolation": {"postToMainPrefix": "Cron"}}, CronDelivery()),
    ],
)  # fmt: skip
def test_a_delivery_is_read_in_every_form(written: Any, delivery: CronDelivery) -> None:
    assert job_of(**written).delivery == delivery


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"agentId": "ghost"}, "no agent 'ghost'"),
        ({"schedule": {"kind": "cron", "expr": "61 8 * * *"}}, "not a cron expression"),
        ({"schedule": {"kind": "cron", "expr": "0 8 * * *", "tz": "Mars/Olympus"}}, "not a time zone"),
        ({"schedule": {"kind": "every", "everyMs": 1}}, "shorter than a second"),
        ({"schedule": {"kind": "at", "at": "2026-11-01T00:00:00Z"}}, "has passed"),
        ({"sessionTarget": "session:agent:ledger:main"}, "belongs to another agent"),
        ({"payload": {"kind": "command", "argv": ["date"]}}, "approve"),
        ({"delivery": {"mode": "webhook", "to": "https://example.org/x"}}, "https://example.org/x"),
        ({"payload": {"kind": "systemEvent", "text": "tea", "toolsAllow": ["read"]}}, "only some tools"),
        ({"trigger": {"script": "return true"}}, "trigger"),
        ({"budget": 3, "payload": {**TURN, "mood": "calm"}}, "budget, payload.mood"),
    ],
)
def test_what_cannot_be_carried_over_whole_comes_disabled_with_the_reason(written: Any, reason: str) -> None:
    found = read(**written)
    assert found.job is not None
    assert not found.job.enabled
    assert reason in found.job.state.disabled_why
    assert reason in "; ".join(found.reasons)


@pytest.mark.parametrize(
    "written",
    [
        {"schedule": {"kind": "on-exit", "command": "make"}},
        {"schedule": {"kind": "stream", "command": ["tail"]}},
        {"schedule": {"kind": "at", "at": "soon"}},
        {"schedule": None},
        {"payload": {"kind": "script", "script": "1"}},
        {"payload": {"kind": "heartbeat"}},
        {"payload": {"kind": "command", "argv": []}},
        {"declarationKey": "heartbeat:main"},
    ],
)
def test_what_nothing_here_does_is_named_and_stays_there(written: Any) -> None:
    found = read(**written)
    assert found.job is None
    assert found.reasons


def test_what_is_different_here_is_noted_and_the_job_runs() -> None:
    found = read(
        payload={**TURN, "fallbacks": ["a/b"], "thinking": "galactic"},
        delivery={"mode": "announce", "bestEffort": True, "failureDestination": {"to": "x"}},
        failureAlert={"after": 2},
        wakeMode="next-heartbeat",
    )
    assert found.job is not None
    assert found.job.enabled
    assert len(found.notes) == 5


def test_its_state_comes_along() -> None:
    state = {"lastRunAtMs": 5, "lastRunStatus": "error", "lastError": "no", "lastDurationMs": 9, "consecutiveErrors": 3}
    found = job_of(state=state).state
    assert (found.last_run_at_ms, found.last_status, found.last_error) == (5, "failed", "no")
    assert (found.last_duration_ms, found.consecutive_errors) == (9, 3)


def test_a_file_for_the_state_and_rows_of_a_database_are_joined_with_their_jobs() -> None:
    raw = {"id": "J-1", "schedule": HOURLY, "payload": TURN, "state": {}}
    state = {"lastRunAtMs": 5}
    files = [
        ForeignDocument("cron", "cron/jobs.json", json.dumps([raw, 5])),
        ForeignDocument("cron", "cron/jobs-state.json", json.dumps({"version": 1, "jobs": {"J-1": {"state": state}}})),
    ]
    rows = [
        ForeignDocument("cron", "state/openclaw.sqlite#cron_jobs/J-1", json.dumps({**raw, "name": "row"})),
        ForeignDocument("cron", "state/openclaw.sqlite#cron_jobs/J-1/state", json.dumps(state)),
    ]
    for documents in (files, rows, [*files, *rows]):
        found = jobs_in(documents)
        assert list(found) == ["j-1"]
        assert found["j-1"].raw["state"] == state
        assert found["j-1"].raw.get("name") == ("row" if rows[0] in documents else None)


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".hidden", "x" * 200])
def test_an_id_from_outside_becomes_no_path_and_no_key(name: str) -> None:
    (found,) = jobs_in([ForeignDocument("cron", "cron/jobs.json", json.dumps({"jobs": [{"id": name}]}))])
    assert found.startswith("openclaw-")
    assert run_file(ForeignDocument("cron", f"state/openclaw.sqlite#cron_run_logs/{name}", "{}")) == ""
    assert run_file(ForeignDocument("cron", f"cron/runs/{name}.jsonl", "{}")) == ""


@pytest.mark.parametrize(
    ("change", "written"),
    [
        (
            {"session_target": "main"},
            {"sessionTarget": "main", "payload": {"kind": "systemEvent", "text": "Look around."}},
        ),
        (
            {"payload": AgentTurnPayload("New.")},
            {"payload": {"kind": "agentTurn", "message": "New.", "fallbacks": ["m"], "deliver": False}},
        ),
        (
            {"delivery": CronDelivery("announce", "slack", "C")},
            {
                "payload": {**TURN, "model": "a/b", "fallbacks": ["m"]},
                "delivery": {"mode": "announce", "channel": "slack", "to": "C"},
            },
        ),
        ({"description": ""}, {"description": None}),
        ({"name": "K"}, {"name": "K"}),
    ],
)  # fmt: skip
def test_a_change_here_changes_only_that_part_there(change: dict[str, Any], written: dict[str, Any]) -> None:
    payload = {**TURN, "model": "a/b", "fallbacks": ["m"], "deliver": False}
    raw = {"id": "j", "name": "J", "description": "x", "schedule": HOURLY, "sessionTarget": "isolated"}
    raw |= {"payload": payload, "wakeMode": "now", "unheardOf": 5}
    job = read_job(raw, AROUND).job
    assert job is not None
    back = write_job(msgspec.structs.replace(job, **change), raw, ImportedJob("", 0, job.enabled))
    for name in ("updatedAtMs", "state", "palinurus"):
        back.pop(name, None)
    assert back == {name: value for name, value in {**raw, **written}.items() if value is not None}


def test_our_own_key_in_a_foreign_file_gives_a_job_no_more_trust_and_counts_only_for_what_it_was_written_for() -> None:
    outside = {"id": "j", "name": "J", "schedule": HOURLY, "payload": TURN, "sessionKey": "agent:main:slack:group:c1"}
    mine = read_job(outside, AROUND).job
    assert mine is not None
    written = write_job(msgspec.structs.replace(mine, catch_up="skip"), outside)
    written["palinurus"] |= {"origin": "owner", "sources": [], "payload": {"kind": "heartbeat"}}
    forged = read_job(written, AROUND).job
    assert forged is not None
    assert (forged.origin, forged.payload) == (mine.origin, mine.payload)
    written["palinurus"]["payload"] = {"kind": "command", "argv": ["rm"]}
    command = read_job(written, AROUND)
    assert command.job is not None
    assert not command.job.enabled
    changed = read_job({**written, "payload": {**TURN, "message": "Another."}}, AROUND).job
    assert changed is not None
    assert changed.payload == AgentTurnPayload("Another.")


@pytest.mark.parametrize(
    ("agents", "every"),
    [
        ({"defaults": {"heartbeat": {"every": "30m"}}}, {"": "30m"}),
        ({"list": [{"id": "a", "heartbeat": {"every": "1h"}}], "entries": {"b": {"heartbeat": {"every": "0m"}}}},
         {"a": "1h", "b": "0m"}),
        ({"defaults": {"heartbeat": {"every": "00h"}}}, {"": "0m"}),
        ({"defaults": {"heartbeat": {"every": "30m", "enabled": False}}}, {"": "0m"}),
        ({"defaults": {"heartbeat": 5}, "list": [7], "entries": []}, {}),
    ],
)  # fmt: skip
def test_how_often_agents_have_a_heartbeat(agents: Any, every: dict[str, str]) -> None:
    assert heartbeats_in({"agents": agents}) == every


def test_the_plan_says_that_a_heartbeat_is_on_and_how_to_turn_it_off(tmp_path: Path) -> None:
    home = ForeignHome(tmp_path)
    home.config = ForeignConfig("openclaw.json", {"agents": {"defaults": {"heartbeat": {"every": "30m"}}}})
    taken = FoundSetting("agents.defaults.heartbeat.every", "taken")
    (note,) = heartbeat_notes((taken,), home)
    assert "all agents every 30m" in note
    assert "pal heartbeat disable" in note
    assert heartbeat_notes((), home) == []


names = st.sampled_from(
    [
        *("id", "jobId", "agentId", "sessionKey", "name", "schedule", "payload", "delivery", "state", "kind", "owner"),
        *("at", "atMs", "everyMs", "anchorMs", "expr", "tz", "staggerMs", "message", "text", "argv", "cwd", "deliver"),
        *("toolsAllow", "thinking", "timeoutSeconds", "mode", "channel", "to", "threadId", "sessionTarget"),
        *("createdAtMs", "lastRunAtMs", "palinurus"),
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10)
values = st.recursive(
    scalars | st.sampled_from(["at", "every", "cron", "agentTurn", "systemEvent", "command", "session:x", "webhook"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(names, values, max_size=8))
def test_whatever_stands_in_a_job_it_is_read_and_can_be_written(raw: dict[str, Any]) -> None:
    found = jobs_in([ForeignDocument("cron", "cron/jobs.json", json.dumps({"jobs": [raw]}))])
    for each in found.values():
        job = read_job(each.raw, AROUND).job
        if job is not None:
            assert msgspec.json.decode(msgspec.json.encode(job), type=CronJob) == job
            assert write_job(job, each.raw)["schedule" if each.raw.get("schedule") else "state"] is not None
