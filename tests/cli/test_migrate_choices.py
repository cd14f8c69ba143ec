"""What another home brings that decides who answers: its default agent, chosen models, the order of its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from called import Pal

from palinurus.config.home import Home

T = "2026-11-15T09:00:00.000Z"
USED = {"type": "model_change", "id": "m", "parentId": None, "timestamp": T, "provider": "gone", "modelId": "large"}
SAID = {"type": "message", "id": "a", "parentId": "m", "timestamp": T, "message": {"role": "user", "content": "boat?"}}


def their_home(tmp_path: Path, agent: str, config: dict[str, Any], row: dict[str, Any] | None = None) -> Path:
    """One agent with one main session, in which a model was used that nobody here knows."""
    root = tmp_path / ".openclaw"
    sessions = root / "agents" / agent / "sessions"
    sessions.mkdir(parents=True)
    (root / "openclaw.json").write_text(json.dumps(config))
    header = {"type": "session", "version": 3, "id": "s1", "timestamp": T, "cwd": "/home/sam"}
    (sessions / "s1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (header, USED, SAID)))
    told = {"sessionId": "s1", "updatedAt": 1794772000000, "modelProvider": "gone", "model": "large", **(row or {})}
    (sessions / "sessions.json").write_text(json.dumps({f"agent:{agent}:main": told}))
    (root / "workspace").mkdir()
    (root / "workspace" / "BOAT.md").write_text("The boat lies at the quay.\n")
    return root


MAIN = {"agents": {"list": [{"id": "main", "default": True}]}}


def test_a_model_that_was_only_used_there_does_not_answer_here(pal_command: Pal, tmp_path: Path) -> None:
    theirs = their_home(tmp_path, "main", MAIN)
    assert pal_command("migrate", "openclaw", str(theirs), "--apply").code == 0
    reply = pal_command("agent", "--message", "hello", "--json")
    assert (reply.code, reply.json["model"]) == (0, "embedded/scout")
    assert reply.json["sessionId"] == "s1"


def test_a_model_that_was_chosen_there_is_asked_until_another_is_chosen_here(pal_command: Pal, tmp_path: Path) -> None:
    chosen = {"providerOverride": "gone", "modelOverride": "small", "modelOverrideSource": "user"}
    theirs = their_home(tmp_path, "main", MAIN, chosen)
    assert pal_command("migrate", "openclaw", str(theirs), "--apply").code == 0
    refused = pal_command("agent", "--message", "hello")
    assert refused.code != 0
    assert "gone" in refused.err
    pal_command("agent", "--message", "/model embedded/scout")
    assert pal_command("agent", "--message", "hello", "--json").json["model"] == "embedded/scout"


@pytest.mark.parametrize("source", ["auto", "default"])
def test_an_override_that_the_program_set_by_itself_is_no_choice(pal_command: Pal, tmp_path: Path, source: str) -> None:
    fallback = {"providerOverride": "gone", "modelOverride": "small", "modelOverrideSource": source}
    theirs = their_home(tmp_path, "main", MAIN, fallback)
    assert pal_command("migrate", "openclaw", str(theirs), "--apply").code == 0
    assert pal_command("agent", "--message", "hello", "--json").json["model"] == "embedded/scout"


def test_a_choice_made_here_survives_an_export(pal_command: Pal, tmp_path: Path, home: Home) -> None:
    pal_command("config", "set", "models.providers.gone.baseUrl", "http://127.0.0.1:9/v1")
    pal_command("agent", "--message", "hello")
    assert pal_command("agent", "--message", "/model gone/large").code == 0
    away = tmp_path / "away"
    assert pal_command("export", str(away)).code == 0
    for name in ("home.sqlite", "home.id"):
        (home.root / name).unlink()
    assert pal_command("migrate", "openclaw", str(away), "--apply").code == 0
    assert "gone" in pal_command("agent", "--message", "hello").err


DEFAULTS: list[tuple[str, dict[str, Any]]] = [
    ("default", {}),
    ("night", {"agents": {"list": [{"id": "main"}, {"id": "night", "default": True}]}}),
]


@pytest.mark.parametrize(("agent", "config"), DEFAULTS, ids=["by its name", "by its mark"])
def test_the_default_agent_of_the_other_home_is_the_default_of_a_home_that_has_none_of_its_own(
    pal_command: Pal, tmp_path: Path, workspace: Path, agent: str, config: dict[str, Any]
) -> None:
    theirs = their_home(tmp_path, agent, config)
    plan = pal_command("migrate", "openclaw", str(theirs), "--dry-run", "--json").json
    assert {each["id"]: each["into"] for each in plan["agents"]}[agent] == str(workspace)
    done = pal_command("migrate", "openclaw", str(theirs), "--apply", "--json").json
    assert {each["id"]: each["into"] for each in done["agents"]}[agent] == str(workspace)
    assert (workspace / "BOAT.md").read_text() == "The boat lies at the quay.\n"
    reply = pal_command("agent", "--message", "hello", "--json")
    assert (reply.code, reply.json["sessionId"]) == (0, "s1")
    again = pal_command("migrate", "openclaw", str(theirs), "--apply", "--json").json
    assert [each["outcome"] for each in again["sessions"]] == ["same"]


def test_a_home_in_which_something_was_said_keeps_its_default_agent(pal_command: Pal, tmp_path: Path) -> None:
    pal_command("agent", "--message", "hello")
    theirs = their_home(tmp_path, "default", {})
    assert pal_command("migrate", "openclaw", str(theirs), "--apply").code == 0
    assert pal_command("agent", "--message", "hello", "--json").json["sessionId"] != "s1"
    assert pal_command("agent", "--agent", "default", "--message", "hello", "--json").json["sessionId"] == "s1"


def key(name: str) -> dict[str, str]:
    return {"type": "api_key", "provider": "openai", "key": f"sk-FAKE-0000-{name}"}


@pytest.mark.parametrize("where", ["auth-profiles.json", "auth-state.json", "config"])
def test_the_order_of_stored_keys_comes_with_them(pal_command: Pal, tmp_path: Path, home: Home, where: str) -> None:
    order = {"openai": ["openai:c", "openai:a"]}
    theirs = their_home(tmp_path, "main", {**MAIN, **({"auth": {"order": order}} if where == "config" else {})})
    folder = theirs / "agents" / "main" / "agent"
    folder.mkdir()
    files: dict[str, Any] = {"auth-profiles.json": {"profiles": {f"openai:{name}": key(name) for name in "abc"}}}
    if where != "config":
        files[where] = {**files.get(where, {}), "order": order}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    assert pal_command("migrate", "openclaw", str(theirs), "--apply", "--keys").code == 0
    pal_command("models", "set", "openai/gpt-5-mini")
    keys = pal_command("models", "status", "--json").json["credentials"]
    assert [each["id"] for each in keys] == ["openai:c", "openai:a", "openai:b"]
    assert json.loads((home.root / "credentials.json").read_text())["order"] == order


def test_the_plan_names_cron_jobs_with_their_next_time_and_why_one_is_disabled(
    pal_command: Pal, tmp_path: Path
) -> None:
    theirs = their_home(tmp_path, "main", MAIN)
    shared = {"createdAtMs": 1, "schedule": {"kind": "every", "everyMs": 3_600_000}, "state": {}}
    jobs = [
        {"id": "a", "name": "Look around", "payload": {"kind": "agentTurn", "message": "go"}, **shared},
        {"id": "b", "name": "Clean \u001b[2Jup", "payload": {"kind": "command", "argv": ["rm"]}, **shared},
        {"id": "c", "name": "Compute", "payload": {"kind": "script", "script": "1"}, **shared},
        {"id": "d", "name": "heartbeat-main", "declarationKey": "x", "payload": {"kind": "heartbeat"}, **shared},
    ]
    (theirs / "cron").mkdir()
    (theirs / "cron" / "jobs.json").write_text(json.dumps({"version": 1, "jobs": jobs}))
    plan = pal_command("migrate", "openclaw", str(theirs)).out
    assert "4 cron jobs: 2 to bring over, 1 left there; 1 are OpenClaw's own and stay there" in plan
    assert "  Look around: next at 20" in plan
    assert "up': it is disabled here: it runs a command, which a person has to approve here" in plan
    assert "note: cron job 'Compute': there are no payloads of the kind 'script' here" in plan
    assert "\x1b" not in plan
    done = pal_command("migrate", "openclaw", str(theirs), "--apply", "--json").json
    assert [each.get("outcome", "new") for each in done["cronJobs"]] == ["new", "new", "left", "left"]
