"""`pal cron`: jobs and reminders at the shell, for people in words and for programs as JSON."""

from __future__ import annotations

from datetime import datetime

import pytest
from called import Pal
from served_model import ServedModel


def test_a_job_is_added_and_programs_get_its_id_and_next_time(pal_command: Pal) -> None:
    made = pal_command("cron", "add", "--name", "n", "--every", "30m", "--message", "hi", "--json")
    assert (made.code, made.err) == (0, "")
    assert datetime.fromisoformat(made.json["nextRunAt"]).tzinfo is not None
    assert pal_command("cron", "list", "--json").json["jobs"][0]["id"] == made.json["id"]
    gone = pal_command("cron", "rm", made.json["id"], "--json")
    assert gone.json == {"id": made.json["id"], "removed": True, "name": "n"}
    assert pal_command("cron", "list", "--json").json["jobs"] == []
    assert "There are no cron jobs." in pal_command("cron", "list").out


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--at", "in 20 minutes", "--reminder", "stretch"), ("Added stretch (", "waits for a process that stays")),
        (("--every", "weekday at 8:30", "--reminder", "stand up"), (":30, at 08:30 on Monday through Friday",)),
        (("--cron", "0 8 * * 1-5", "--tz", "Asia/Tokyo", "--exact", "--message", "hi"), ("(Asia/Tokyo)",)),
        (("--cron", "*/5 * * * *", "--system-event", "look"), ("every fifth minute of every hour",)),
        (("--at", "tomorrow at 9", "--reminder", "x", "--disabled"), ("disabled",)),
    ],
)
def test_what_was_understood_is_said_back(pal_command: Pal, options: tuple[str, ...], shown: tuple[str, ...]) -> None:
    ended = pal_command("cron", "add", *options)
    assert (ended.code, ended.err) == (0, "")
    for text in shown:
        assert text in ended.out


def test_every_field_arrives(pal_command: Pal) -> None:
    made = pal_command(
        "cron", "add", "--name", "b", "--cron", "0 8 * * *", "--stagger", "2m", "--message", "hi",
        "--description", "why",
        "--model", "mock/m", "--thinking", "low", "--timeout", "90", "--light-context", "--tools", "read, web_fetch",
        "--deliver", "webhook", "--to", "https://example.org/x", "--account", "a", "--thread", "t", "--channel", "c",
        "--catch-up", "all", "--session", "session:trip", "--agent", "main", "--json",
    ).json  # fmt: skip
    assert made["schedule"] == {"kind": "cron", "expr": "0 8 * * *", "staggerMs": 120_000}
    assert made["payload"] == {
        "kind": "agentTurn", "message": "hi", "model": "mock/m", "thinking": "low", "timeoutSeconds": 90.0,
        "lightContext": True, "toolsAllow": ["read", "web_fetch"],
    }  # fmt: skip
    assert made["delivery"] == {
        "mode": "webhook", "channel": "c", "to": "https://example.org/x", "accountId": "a", "threadId": "t"
    }  # fmt: skip
    assert (made["catchUp"], made["sessionTarget"], made["description"]) == ("all", "session:trip", "why")
    changed = pal_command("cron", "edit", "b", "--deliver", "none", "--message", "ho", "--every", "1h", "--json").json
    assert (changed["payload"]["message"], changed["payload"]["model"]) == ("ho", "mock/m")
    assert (changed["delivery"]["mode"], changed["when"]) == ("none", "every hour")
    shown = pal_command("cron", "show", "b").out
    assert "every hour" in shown
    assert "agentTurn: ho" in shown


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "the time or the action is missing"),
        (("--at", "noon"), "the time or the action is missing"),
        (("--at", "noon", "--every", "1h", "--reminder", "x"), "give only one of"),
        (("--at", "noon", "--message", "x", "--reminder", "x"), "give only one of"),
        (("--at", "noon", "--tz", "UTC", "--reminder", "x"), "go with --cron"),
        (("--at", "noon", "--reminder", "x", "--model", "a/b"), "--reminder has no model"),
        (("--at", "whenever", "--reminder", "x"), "'whenever' is not a time"),
        (("--every", "5", "--reminder", "x"), "'5' is not an interval"),
        (("--at", "noon", "--command", "echo 'x"), "cannot be read"),
    ],
)
def test_a_mistake_is_one_line_and_adds_nothing(pal_command: Pal, options: tuple[str, ...], why: str) -> None:
    ended = pal_command("cron", "add", *options)
    assert ended.code != 0
    assert why in ended.err
    assert len(ended.err.splitlines()) == 1
    assert pal_command("cron", "list", "--json").json["jobs"] == []


def test_the_next_times_of_an_expression_are_a_plain_list(pal_command: Pal) -> None:
    ended = pal_command(
        "cron", "next", "--count", "3", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-27T12:00",
        "--json",
    )  # fmt: skip
    assert ended.json == ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    assert pal_command("cron", "next", "--cron", "x").code != 0


def test_a_job_is_run_now_and_its_history_is_shown(pal_command: Pal, served: ServedModel) -> None:
    pal_command("cron", "add", "--name", "weather", "--every", "1d", "--message", "How is the weather?")
    run = pal_command("cron", "run", "weather", "--json").json
    assert (run["ran"], run["run"]["status"], run["run"]["byHand"]) == (True, "ran", True)
    (listed,) = pal_command("cron", "runs", "weather", "--json").json["runs"]
    assert listed["runId"] == run["run"]["runId"]
    assert listed["sessionKey"].startswith("agent:main:cron:")
    assert len(served.asked) == 1
    assert "ran      weather" in pal_command("cron", "runs").out
    assert "ran      weather" in pal_command("cron", "calendar").out
    assert "[weather] " in pal_command("sessions", "show", "main").out
    assert "weather" in pal_command("status").out
    assert "1 of 1 cron jobs enabled" in pal_command("doctor").out


def test_one_switch_pauses_everything(pal_command: Pal) -> None:
    pal_command("cron", "add", "--every", "1h", "--reminder", "tea")
    assert "planned  tea" in pal_command("cron", "calendar").out
    assert pal_command("cron", "pause").code == 0
    assert "paused" in pal_command("cron", "status").out
    assert "planned" not in pal_command("cron", "calendar").out
    assert pal_command("config", "get", "cron.paused").out.strip() == "true"
    assert pal_command("cron", "resume").code == 0
    assert "planned  tea" in pal_command("cron", "calendar").out
    assert "Disabled tea" in pal_command("cron", "disable", "tea").out
    assert "Enabled tea" in pal_command("cron", "enable", "tea").out


def test_a_command_is_shown_and_without_a_yes_nothing_is_added(pal_command: Pal) -> None:
    options = ("cron", "add", "--name", "hello", "--every", "1h", "--command", "echo hello")
    refused = pal_command(*options)
    assert refused.code != 0
    assert "command   echo hello" in refused.err
    assert "--yes" in refused.err
    assert pal_command("cron", "list", "--json").json["jobs"] == []
    added = pal_command(*options, "--yes", "--json")
    assert added.code == 0, added.err
    assert added.json["enabled"]
    assert added.json["payload"]["argv"] == ["echo", "hello"]
    assert "hello" in pal_command("cron", "run", "hello").out
    changed = pal_command("cron", "edit", "hello", "--command", "echo goodbye")
    assert changed.code != 0
    assert not pal_command("cron", "show", "hello", "--json").json["enabled"]
    assert pal_command("cron", "approve", "hello", "--yes", "--json").json["enabled"]
    assert "goodbye" in pal_command("cron", "run", "hello").out


def test_forgotten_words_are_gone_from_reminders_and_their_due_times(pal_command: Pal) -> None:
    made = pal_command("cron", "add", "--every", "1h", "--reminder", "write to Zebulon", "--json").json
    pal_command("cron", "run", made["id"])
    planned = pal_command("forget", "--query", "Zebulon").out
    assert "cron jobs and reminders" in planned
    done = pal_command("forget", "--query", "Zebulon", "--apply")
    assert done.code == 0, done.err
    left = pal_command("cron", "list", "--json").out + pal_command("cron", "runs", "--json").out
    assert "Zebulon" not in left
    assert "Zebulon" not in pal_command("jobs", "list", "--json").out
    assert not pal_command("cron", "show", made["id"], "--json").json["enabled"]
