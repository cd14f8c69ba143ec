"""`pal doctor`: what is wrong is found, said with what to do, and mended where no decision is needed."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from called import Ended, Pal

from palinurus.config.home import Home
from palinurus.runtime.lock import HomeLock


def checks(ended: Ended, state: str = "") -> list[dict[str, Any]]:
    return [check for check in ended.json["checks"] if state in ("", check["state"])]


@pytest.fixture
def good(pal_command: Pal, home: Home) -> Pal:
    """A home in which somebody has lived, and nothing is wrong."""
    home.config_path.chmod(0o600)
    pal_command("agent", "-m", "remember the green bicycle")
    pal_command("sessions", "search", "bicycle")
    pal_command("doctor", "--fix")
    return pal_command


def test_a_home_in_order_has_nothing_wrong(good: Pal) -> None:
    ended = good("doctor", "--json")
    assert (ended.code, checks(ended, "bad")) == (0, [])
    assert {"home", "config", "lock", "database", "index", "workspace", "keys", "model", "disk"} <= {
        check["name"] for check in checks(ended)
    }
    assert "0 error(s)" in good("doctor").out or "No problems found" in good("doctor").out


def test_files_that_others_may_read_are_found_and_mended(good: Pal, home: Home) -> None:
    home.root.chmod(0o755)
    good("models", "auth", "add", "openai", stdin="sk-ABCDEF0123456789abcdef")
    (home.root / "credentials.json").chmod(0o644)
    found = good("doctor", "--json", "--no-model")
    assert found.code == 1
    assert {Path(check["where"]).name for check in checks(found, "bad") if check["name"] == "modes"} == {
        home.root.name,
        "credentials.json",
    }
    mended = good("doctor", "--fix", "--json", "--no-model")
    assert (mended.code, len(checks(mended, "mended"))) == (0, 2)
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((home.root / "credentials.json").stat().st_mode) == 0o600


def test_a_broken_config_is_told_with_every_mistake_and_the_rest_is_looked_at(good: Pal, home: Home) -> None:
    home.config_path.write_text('{\n "agents": {"defaults": {"maxConcurrent": "many", "timeoutSeconds": "long"}}\n}\n')
    ended = good("doctor", "--json")
    assert ended.code == 1
    told = " ".join(check["what"] for check in checks(ended, "bad"))
    assert "maxConcurrent" in told
    assert "timeoutSeconds" in told
    assert {"database", "index", "lock", "disk"} <= {check["name"] for check in checks(ended, "ok")}


def test_an_odd_key_is_worth_a_look_and_no_mistake(good: Pal) -> None:
    good("config", "set", "--force", "agents.defaults.modle", "x")
    ended = good("doctor", "--json")
    assert ended.code == 0
    assert any("did you mean agents.defaults.model?" in check["what"] for check in checks(ended, "warning"))


def test_a_damaged_database_is_wrong_and_left_alone(good: Pal, home: Home) -> None:
    for suffix in ("-wal", "-shm"):
        home.root.joinpath(f"home.sqlite{suffix}").unlink(missing_ok=True)
    (home.root / "home.sqlite").write_bytes(b"no database" * 100)
    ended = good("doctor", "--fix", "--json")
    assert ended.code == 1
    assert [check["name"] for check in checks(ended, "bad")] == ["database"]
    assert (home.root / "home.sqlite").read_bytes() == b"no database" * 100


def test_a_damaged_index_is_no_loss_and_is_taken_away_when_asked(good: Pal, home: Home) -> None:
    index = home.root / "derived" / "transcripts.sqlite"
    index.write_bytes(b"no database" * 100)
    odd = {check["name"] for check in checks(good("doctor", "--json", "--no-model"), "warning")}
    assert odd - {"sandbox"} == {"index"}  # which machines have bubblewrap is not the question here
    good("doctor", "--fix")
    assert not index.exists()
    assert "bicycle" in good("sessions", "search", "bicycle").out


def test_an_index_that_is_behind_says_by_how_much(good: Pal) -> None:
    good("agent", "-m", "one more")
    (index,) = [check for check in checks(good("doctor", "--json")) if check["name"] == "index"]
    assert (index["state"], "entries behind" in index["what"]) == ("ok", True)


def test_messages_that_were_never_answered_are_told(good: Pal, home: Home) -> None:
    with sqlite3.connect(home.root / "home.sqlite") as database:
        database.execute(
            "INSERT INTO jobs VALUES (NULL, 'r', 'run', 's', 'k', '{}', 1, 1, 'running', 1, 0, 1, NULL, '', 0, 0, '')"
        )
    database.close()
    (pending,) = [check for check in checks(good("doctor", "--json"), "warning") if check["name"] == "messages"]
    assert pending["what"].startswith("1 accepted and not answered")


def test_a_holder_that_does_not_answer_is_named(good: Pal, home: Home) -> None:
    lock = HomeLock(home.root / "lock")
    assert lock.acquire("pal test")
    try:
        ended = good("doctor", "--json", "--no-model")
    finally:
        lock.release()
    (wrong,) = checks(ended, "bad")
    assert f"pid {os.getpid()} (pal test) holds the home and does not answer" in wrong["what"]


@pytest.mark.parametrize(
    ("model", "name", "why"),
    [
        ("nobody/model", "provider", "unknown provider 'nobody'"),
        ("openai/gpt-6-sol", "model", "auth: openai/gpt-6-sol has no key"),
    ],
)
def test_a_model_that_cannot_answer_is_wrong_and_says_why(good: Pal, model: str, name: str, why: str) -> None:
    good("config", "set", "agents.defaults.model", model)
    ended = good("doctor", "--json")
    assert ended.code == 1
    assert any(check["name"] == name and why in check["what"] for check in checks(ended, "bad"))


def test_a_workspace_that_is_too_large_or_gone_is_told(good: Pal, workspace: Path, tmp_path: Path) -> None:
    (workspace / "AGENTS.md").write_text("rule " * 6000)
    told = [check["what"] for check in checks(good("doctor", "--json"), "warning")]
    assert any("AGENTS.md has" in what and "20,000 are sent" in what for what in told)
    good("config", "set", "agents.defaults.workspace", str(tmp_path / "gone"))
    assert any("does not exist" in check["what"] for check in checks(good("doctor", "--json"), "bad"))


def test_a_home_that_is_not_there_yet_is_no_mistake_and_is_not_made(
    pal_command: Pal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALINURUS_HOME", str(tmp_path / "new"))
    pal_command("doctor", "--no-model")
    assert not (tmp_path / "new").exists()


def test_nothing_is_answered_behind_somebody_s_back(good: Pal, home: Home) -> None:
    before = (home.root / "home.sqlite").stat().st_mtime_ns
    good("doctor")
    assert (home.root / "home.sqlite").stat().st_mtime_ns == before


def test_agents_that_share_a_folder_or_have_none_are_found(good: Pal, home: Home, workspace: Path) -> None:
    config = json.loads(home.config_path.read_text())
    config["agents"]["list"] = [
        {"id": "main", "default": True},
        {"id": "twin", "workspace": str(workspace)},
        {"id": "inner"},  # inside main's, as agents.defaults.workspace has it
        {"id": "lost", "workspace": str(home.root / "gone")},
    ]
    home.config_path.write_text(json.dumps(config))
    ended = good("doctor", "--json", "--no-model")
    told = {(check["name"], check["state"], check["what"]) for check in checks(ended)}
    assert ("agents", "warning", "main and twin share it, and so their files, memory and instructions") in told
    inside = "the workspace of inner is inside that of main, whose tools do not see it"
    assert ("agents", "warning", inside) in told
    assert any(name == "workspace" and state == "bad" and "gone" in what for name, state, what in told)
    assert ended.code == 1


def test_a_binding_to_nobody_is_found(good: Pal, home: Home) -> None:
    config = json.loads(home.config_path.read_text())
    config["bindings"] = [{"agentId": "nobody", "match": {"channel": "slack", "teamId": "T1"}}]
    home.config_path.write_text(json.dumps(config))
    ended = good("doctor", "--json", "--no-model")
    assert any(
        check["name"] == "config" and check["state"] == "bad" and "there is no agent 'nobody'" in check["what"]
        for check in checks(ended)
    )


def test_the_status_knows_the_other_agents(good: Pal) -> None:
    good("agents", "add", "work", "--emoji", "🦉", "--bind", "slack")
    shown = good("status").out
    assert "work 🦉" in shown
    assert "slack" in shown
    told = good("status", "--agent", "work", "--json").json
    assert (told["agent"], [each["id"] for each in told["others"]], told["sessions"]) == ("work", ["main"], [])
