"""`pal migrate openclaw` and the config: the plan, what our file says afterwards, and what it never says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest
from called import Pal

from palinurus.config.home import Home

TOKEN = "hush-hush-hush-42"
THEIRS: dict[str, Any] = {
    "agents": {
        "defaults": {"model": {"primary": "mock/large", "fallbacks": ["mock/small"]}, "userTimezone": "Europe/Paris"},
        "list": [{"id": "main", "name": "Crumb", "workspace": "~/.openclaw/workspace"}, {"id": "night"}],
    },
    "models": {
        "providers": {
            "mock": {
                "baseUrl": "http://127.0.0.1:9/v1",
                "apiKey": TOKEN,
                "models": [{"id": "large", "contextWindow": 64000}],
            }
        }
    },
    "session": {"dmScope": "per-peer", "reset": {"mode": "never"}},
    "channels": {"telegram": {"botToken": TOKEN}},
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    root = tmp_path / ".openclaw"
    (root / "workspace").mkdir(parents=True)
    (root / "workspace" / "MEMORY.md").write_text("The boat lies at the quay.\n")
    (root / "openclaw.json").write_text(json.dumps(THEIRS))
    allowed = {"version": 1, "agents": {"night": {"allowlist": [{"pattern": "/bin/wc"}, {"pattern": "/bin/ls"}]}}}
    (root / "exec-approvals.json").write_text(json.dumps(allowed))
    return root


@pytest.fixture
def bare(home: Home) -> Path:
    """Our config file, with nothing of its own in it but a remark."""
    home.config_path.write_text("{\n  // mine\n}\n")
    return home.config_path


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {each["path"]: each["outcome"] for each in report["config"]}


def test_the_plan_shows_what_becomes_of_each_setting_and_changes_nothing(
    pal_command: Pal, theirs: Path, bare: Path
) -> None:
    before = bare.read_bytes()
    ended = pal_command("migrate", "openclaw", str(theirs), "--dry-run", "--json")
    told = outcomes(ended.json)
    assert told["agents.defaults.model.primary"] == told["models.providers.mock.baseUrl"] == "taken"
    assert told["models.providers.mock.apiKey"] == told["channels.telegram.botToken"] == "secret"
    assert told["session.reset.mode"] == "refused"
    assert all(each["reason"] for each in ended.json["config"] if each["outcome"] != "taken")
    assert "night: 2 always-allowed commands are stored, and need approval again here" in ended.json["notes"]
    assert bare.read_bytes() == before
    shown = pal_command("migrate", "openclaw", str(theirs)).out
    assert "models.providers.mock.apiKey (secret)" in shown
    assert TOKEN not in ended.out + ended.err + shown


def test_afterwards_our_config_says_what_theirs_said(pal_command: Pal, theirs: Path, bare: Path) -> None:
    planned = pal_command("migrate", "openclaw", str(theirs), "--dry-run", "--json").json
    ended = pal_command("migrate", "openclaw", str(theirs), "--apply", "--json")
    assert outcomes(ended.json) == outcomes(planned)
    assert pal_command("config", "get", "agents.defaults.model.primary").out.strip() == "mock/large"
    assert pal_command("config", "get", "session.dmScope").out.strip() == "per-peer"
    assert pal_command("config", "validate").code == 0
    assert "mock/large" in pal_command("models", "list").out
    assert TOKEN not in ended.out + ended.err
    assert "// mine" in bare.read_text()
    for path in bare.parent.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
    (into,) = [agent["into"] for agent in ended.json["agents"] if agent["id"] == "main"]
    assert Path(into) == bare.parent / "workspace"
    assert (Path(into) / "MEMORY.md").read_text() == "The boat lies at the quay.\n"


def test_a_second_time_no_byte_of_our_config_changes(pal_command: Pal, theirs: Path, bare: Path) -> None:
    first = pal_command("migrate", "openclaw", str(theirs), "--apply", "--json").json
    before = sorted((path.name, path.read_bytes()) for path in bare.parent.glob("palinurus.json*"))
    second = pal_command("migrate", "openclaw", str(theirs), "--apply", "--json").json
    assert sorted((path.name, path.read_bytes()) for path in bare.parent.glob("palinurus.json*")) == before
    assert outcomes(second) == outcomes(first)


def test_what_we_have_set_ourselves_stays(pal_command: Pal, theirs: Path) -> None:
    report = pal_command("migrate", "openclaw", str(theirs), "--apply", "--json").json
    assert pal_command("config", "get", "agents.defaults.model").out.strip() == "embedded/scout"
    assert outcomes(report)["agents.defaults.model.primary"] == "kept-yours"
    assert pal_command("config", "get", "agents.defaults.userTimezone").out.strip() == "Europe/Paris"


def test_secrets_of_the_config_come_with_the_keys_and_are_still_not_shown(
    pal_command: Pal, theirs: Path, bare: Path
) -> None:
    pal_command("migrate", "openclaw", str(theirs), "--apply")
    assert TOKEN not in bare.read_text()
    ended = pal_command("migrate", "openclaw", str(theirs), "--apply", "--keys", "--json")
    assert json.loads(pal_command("config", "get", "models.providers.mock", "--json").out)["apiKey"] == "***"
    assert TOKEN in bare.read_text()
    assert TOKEN not in ended.out + ended.err


@pytest.mark.parametrize("name", ["openclaw-a", "openclaw-b", "openclaw-c", "seed-flat"])
def test_each_home_that_was_really_used_leaves_a_config_that_works(pal_command: Pal, bare: Path, name: str) -> None:
    folder = os.environ.get("FIXTURES")
    if not folder:
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    home = Path(folder, name, "home")
    said = json.loads((home / "openclaw.json").read_text())
    ended = pal_command("migrate", "openclaw", str(home), "--apply", "--json")
    assert ended.code == 0
    assert pal_command("config", "validate").code == 0
    assert "refused" not in outcomes(ended.json).values()
    for secret in ("sk-fake-not-a-key", "fixture-token-not-a-secret", "FAKE-not-a-bot-token"):
        assert secret not in ended.out + bare.read_text()
    if model := said["agents"]["defaults"].get("model"):
        assert pal_command("config", "get", "agents.defaults.model.primary").out.strip() == model["primary"]
        assert model["primary"] in pal_command("models", "status").out
    listed = [agent["id"] for agent in ended.json["agents"]]
    allowed = {each["agent"] for each in ended.json["approvals"]}
    assert all(any(note.startswith(f"{agent}: ") for note in ended.json["notes"]) for agent in allowed)
    assert {Path(agent["into"]).parent for agent in ended.json["agents"]} == {bare.parent}
    assert listed
    before = bare.read_bytes()
    pal_command("migrate", "openclaw", str(home), "--apply")
    assert bare.read_bytes() == before


def test_plugins_stay_behind_and_are_named(pal_command: Pal, bare: Path, tmp_path: Path) -> None:
    """In a home that OpenClaw 2026.6.11 made: one in a folder, one in its list, one in the config only."""
    if not (fixtures := os.environ.get("FIXTURES")):
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    root = tmp_path / ".openclaw"
    shutil.copytree(Path(fixtures, "openclaw-b", "home"), root)
    (root / "extensions" / "voice").mkdir(parents=True)
    (root / "extensions" / "voice" / "openclaw.plugin.json").write_text('{"id": "voice", "configSchema": {}}')
    config = json.loads((root / "openclaw.json").read_text())
    entry = {"enabled": True, "apiKey": TOKEN, "config": {"key": TOKEN}}
    config["plugins"] = {"entries": {"pager": entry}, "slots": {"memory": "none"}, "allow": ["voice"]}
    (root / "openclaw.json").write_text(json.dumps(config))
    connection = apsw.Connection(str(root / "state" / "openclaw.sqlite"))
    columns = [row[1] for row in connection.execute("PRAGMA table_info(installed_plugin_index)")]
    records = json.dumps({"diary": {"source": "npm", "installPath": "/opt/diary"}})
    row = [records if name == "install_records_json" else 0 for name in columns]
    connection.execute(f"INSERT INTO installed_plugin_index VALUES ({', '.join('?' * len(row))})", row)
    connection.close()
    planned = pal_command("migrate", "openclaw", str(root), "--dry-run", "--json")
    (note,) = [each for each in planned.json["notes"] if each.startswith("plugins")]
    assert "diary (/opt/diary), pager, voice (extensions/voice)" in note
    assert {path: how for path, how in outcomes(planned.json).items() if path.startswith("plugins")} == {
        "plugins": "left"
    }
    pal_command("migrate", "openclaw", str(root), "--apply", "--keys")
    assert "plugins is not set" in pal_command("config", "get", "plugins").err
    assert TOKEN not in planned.out + bare.read_text()
    assert pal_command("plugins", "list", "--json").json == {"plugins": []}
