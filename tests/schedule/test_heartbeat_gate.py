"""Whether a heartbeat calls a model, what counts as a report, and what HEARTBEAT.md says: pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from palinurus.config.load import Config
from palinurus.extensions.schedule.cron_job import CronState, WakeNote
from palinurus.extensions.schedule.heartbeat import report_of
from palinurus.extensions.schedule.heartbeat_file import HeartbeatFile, parse_heartbeat
from palinurus.extensions.schedule.heartbeat_gate import PROBE, BeatSituation, decide
from palinurus.extensions.schedule.heartbeat_settings import (
    ActiveHours,
    HeartbeatSettings,
    prompt_section,
    runs_heartbeat,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 100 * DAY
FILE = parse_heartbeat("- Is there mail in `inbox.md`?")
TASKS = parse_heartbeat("tasks:\n  - name: mail\n    interval: 2h\n    prompt: Is there mail?\n")
SEEN = {"HEARTBEAT.md": "a", "inbox.md": "b"}
LOOKED = CronState(seen=SEEN, last_look_at_ms=NOW - 30 * MINUTE)
SETTINGS = HeartbeatSettings(every=1800.0)
PROBING = replace(SETTINGS, probes=("count",))
PROBED = SEEN | {PROBE + "count": "3"}
CALM = BeatSituation(NOW, 600, SETTINGS, LOOKED, FILE, NOW - 2 * DAY, seen=SEEN)


@pytest.mark.parametrize(
    ("change", "skip"),
    [
        ({"minute": 360, "settings": replace(SETTINGS, active_hours=ActiveHours("08:00", "22:00"))}, "outside the act"),
        ({"owner_wrote": NOW - 8 * DAY}, "the owner has not written for 8 days"),
        ({"owner_wrote": NOW - 8 * DAY, "settings": replace(SETTINGS, absent_after=0.0)}, ""),
        ({"busy": True}, "the agent is busy"),
        ({"busy": True, "woken": True}, ""),
        ({"file": HeartbeatFile()}, "there is no HEARTBEAT.md"),
        ({"file": HeartbeatFile(), "settings": replace(SETTINGS, prompt="Look around.")}, ""),
        ({"file": parse_heartbeat("# Later\n- \n")}, "HEARTBEAT.md is empty"),
        (
            {"file": parse_heartbeat("tasks:\n  - name: x\n    interval: soon\n    prompt: y")},
            "HEARTBEAT.md is empty; the",
        ),
        ({"no_model": "the key of openai has expired"}, "the key of openai has expired"),
        # Without probes the pause doubles while nothing is found, and is short again once the owner has written.
        ({}, ""),
        ({"state": replace(LOOKED, quiet_beats=1)}, "nothing has changed; the next check is in 30 min"),
        ({"state": replace(LOOKED, quiet_beats=1, last_look_at_ms=NOW - HOUR)}, ""),
        ({"state": replace(LOOKED, quiet_beats=40, last_look_at_ms=NOW - 23 * HOUR)}, "nothing has changed; the next"),
        ({"state": replace(LOOKED, quiet_beats=40, last_look_at_ms=NOW - DAY)}, ""),
        ({"state": replace(LOOKED, quiet_beats=9), "owner_wrote": NOW - MINUTE}, ""),
        ({"state": replace(LOOKED, quiet_beats=9), "settings": replace(SETTINGS, back_off=0.0)}, ""),
        ({"state": replace(LOOKED, quiet_beats=9), "seen": SEEN | {"inbox.md": "c"}}, ""),
        ({"state": replace(LOOKED, quiet_beats=9, notes=(WakeNote("1", "hi"),))}, ""),
        # With probes only a change counts.
        ({"settings": PROBING, "seen": PROBED}, ""),
        ({"settings": PROBING, "seen": PROBED, "state": replace(LOOKED, seen=PROBED)}, "nothing has changed since"),
        (
            {
                "settings": PROBING,
                "state": replace(LOOKED, quiet_beats=2),
                "failed_probes": ("the probe `count` failed",),
            },
            "nothing has changed; the probe `count` failed",
        ),
        # Tasks have their own times.
        ({"file": TASKS}, ""),
        ({"file": TASKS, "state": replace(LOOKED, task_runs={"mail": NOW - HOUR})}, "no task is due"),
        ({"file": TASKS, "state": replace(LOOKED, task_runs={"mail": NOW - 2 * HOUR + 1000})}, ""),
        (
            {
                "file": TASKS,
                "settings": PROBING,
                "seen": PROBED,
                "state": replace(LOOKED, task_runs={"mail": NOW - HOUR}),
            },
            "",
        ),
    ],
)
def test_a_model_is_called_only_if_there_is_something_to_do(change: dict[str, Any], skip: str) -> None:
    decision = decide(replace(CALM, **change))
    assert decision.skip.startswith(skip)
    assert bool(decision.skip) == bool(skip)


def test_before_anybody_has_looked_only_cheap_reasons_count() -> None:
    unseen = replace(CALM, seen=None, state=replace(LOOKED, quiet_beats=9))
    assert decide(unseen).skip == ""
    assert decide(replace(unseen, busy=True)).skip == "the agent is busy"


def test_a_decision_names_what_has_changed_and_which_tasks_are_due() -> None:
    decision = decide(replace(CALM, file=TASKS, settings=PROBING, seen=PROBED | {"inbox.md": "c"}))
    assert [task.name for task in decision.tasks] == ["mail"]
    assert decision.changed == (PROBE + "count",)


@pytest.mark.parametrize(
    ("reply", "report"),
    [
        ("HEARTBEAT_OK", ""),
        ("  **HEARTBEAT_OK**\n", ""),
        ("HEARTBEAT_OK.", ""),
        ("HEARTBEAT_OK All quiet.", ""),
        ("All quiet. HEARTBEAT_OK", ""),
        (f"HEARTBEAT_OK {'x' * 20}", ""),
        (f"HEARTBEAT_OK {'x' * 21}", "x" * 21),
        (f"{'x' * 21}\n`HEARTBEAT_OK`", "x" * 21),
        (f"HEARTBEAT_OK {'x' * 21} HEARTBEAT_OK", "x" * 21),
        ("I say HEARTBEAT_OK when all is well.", "I say HEARTBEAT_OK when all is well."),
        ("HEARTBEAT_OKAY", "HEARTBEAT_OKAY"),
        ("Milk is out.", "Milk is out."),
        ("", ""),
    ],
)
def test_what_is_sent_of_a_reply(reply: str, report: str) -> None:
    assert report_of(reply, 20) == report


@pytest.mark.parametrize(
    ("text", "is_empty"),
    [
        ("", True),
        ("\n\n# Title\n## More\n", True),
        ("-\n* \n+ [ ]\n- [x] \n", True),
        ("<!-- nothing\nto do -->\n# Title", True),
        ("# Title\n- milk", False),
        ("look at the mail", False),
    ],
)
def test_a_file_without_words_is_empty(text: str, is_empty: bool) -> None:
    assert parse_heartbeat(text).is_empty is is_empty


def test_tasks_and_files_are_found_in_the_text() -> None:
    file = parse_heartbeat(
        "Be short. See `notes/todo.md`, [this](plan.txt) and https://example.org/a.html.\n"
        'tasks:\n\n  - name: mail\n    interval: 30m\n    prompt: "Look at inbox.csv"\n'
        "  - name: bad\n    interval: often\n    prompt: x\n  - interval: 1h\n"
        "Afterwards: rest.\n"
    )
    assert [(task.name, task.interval_ms, task.prompt) for task in file.tasks] == [
        ("mail", 30 * MINUTE, "Look at inbox.csv")
    ]
    assert len(file.faults) == 2
    assert "Be short." in (file.text or "")
    assert "Afterwards" in (file.text or "")
    assert set(file.named_files) >= {"notes/todo.md", "plan.txt", "inbox.csv"}


@pytest.mark.parametrize(
    ("start", "end", "inside", "outside", "minutes"),
    [
        ("08:00", "22:00", (480, 1319), (479, 1320), 840),
        ("22:00", "06:00", (1320, 0, 359), (360, 1319), 480),
        ("00:00", "24:00", (0, 1439), (), 1440),
        ("09:00", "09:00", (), (0, 540, 541), 0),
    ],
)
def test_active_hours(start: str, end: str, inside: tuple[int, ...], outside: tuple[int, ...], minutes: int) -> None:
    hours = ActiveHours(start, end)
    assert all(map(hours.include, inside))
    assert not any(map(hours.include, outside))
    assert hours.minutes == minutes


@pytest.mark.parametrize(
    ("agents", "on"),
    [
        ({}, {"main": False}),
        ({"defaults": {"heartbeat": {"target": "last"}}}, {"main": False}),
        ({"defaults": {"heartbeat": {"every": "30m"}}}, {"main": True}),
        ({"defaults": {"heartbeat": {"every": "0m"}}}, {"main": False}),
        ({"defaults": {"heartbeat": {"enabled": True}}}, {"main": True}),
        ({"defaults": {"heartbeat": {"every": "30m", "enabled": False}}}, {"main": False}),
        ({"defaults": {"heartbeat": {"every": "1h"}}, "list": [{"id": "a"}, {"id": "b"}]}, {"a": True, "b": True}),
        (
            {"defaults": {"heartbeat": {"every": "1h"}}, "list": [{"id": "a"}, {"id": "b", "heartbeat": {}}]},
            {"a": False, "b": True},
        ),
        ({"entries": {"a": {"heartbeat": {"every": "5m"}}, "b": {}}}, {"a": True, "b": False}),
    ],
)
def test_for_which_agents_the_config_turns_it_on(agents: dict[str, Any], on: dict[str, bool]) -> None:
    config = Config({"agents": agents})
    assert {agent: runs_heartbeat(config, agent) for agent in config.agent_ids} == on
    assert {agent: bool(prompt_section(config, agent)[1]) for agent in config.agent_ids} == on
