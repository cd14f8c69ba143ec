"""Commands on a real home with the embedded model: what they show to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home


def test_one_message_is_answered_and_kept(pal_command: Pal) -> None:
    said = pal_command("agent", "--message", "remember that my bicycle is green")
    assert said.code == 0
    asked = pal_command("agent", "-m", "what colour is my bicycle?")
    assert "my bicycle is green" in asked.out
    assert "#L" in asked.out
    shown = pal_command("sessions", "show")
    assert "you: what colour is my bicycle?" in shown.out


def test_a_program_gets_the_result_as_json(pal_command: Pal) -> None:
    result = pal_command("agent", "-m", "hi", "--json", "--session-key", "holiday").json
    assert (result["status"], result["sessionKey"]) == ("ok", "agent:main:explicit:holiday")
    assert {"runId", "sessionId", "text", "model", "usage", "error", "errorKind", "durationMs"} <= set(result)


def test_a_session_can_be_named_by_its_id(pal_command: Pal) -> None:
    """OpenClaw's scripts do."""
    pal_command("agent", "-m", "hi", "--session-key", "holiday")
    (session,) = pal_command("sessions", "list", "--json").json["sessions"]
    again = pal_command("agent", "-m", "hi again", "--json", "--session-id", session["id"]).json
    assert again["sessionKey"] == "agent:main:explicit:holiday"


def test_a_message_is_read_from_standard_input(pal_command: Pal) -> None:
    assert pal_command("agent", "-m", "-", stdin="remember the\ntide\n").code == 0
    assert "remember the\ntide" in pal_command("sessions", "show").out


def test_chat_answers_each_line_of_its_input_and_ends_with_it(pal_command: Pal) -> None:
    lines = "remember that my bicycle is green\n\nwhat colour is my bicycle?\n/status\n"
    ended = pal_command("chat", stdin=lines)
    assert (ended.code, ended.err) == (0, "")
    assert "my bicycle is green" in ended.out
    assert "embedded/scout" in ended.out


def test_a_newcomer_s_first_command_makes_the_home(
    pal_command: Pal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALINURUS_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("OPENAI_API_KEY", "")
    pal_command("setup")
    pal_command("config", "set", "agents.defaults.model", "embedded/scout")
    assert (tmp_path / "new" / "workspace" / "AGENTS.md").exists()
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    assert pal_command("agent", "-m", "hi").code == 0


def test_setup_says_what_it_made_and_overwrites_nothing(pal_command: Pal, home: Home, workspace: Path) -> None:
    first = pal_command("setup", "--json").json
    assert first["workspaces"] == {"main": str(workspace)}
    assert (workspace / "SOUL.md").read_text() == "# Soul\nCurious and calm.\n"
    assert str(workspace / "SOUL.md") in first["kept"]
    assert pal_command("setup", "--json").json["created"] == []
    assert home.config_path.exists()


def test_sessions_are_listed_newest_first_and_searched(pal_command: Pal) -> None:
    assert "No sessions yet" in pal_command("sessions", "list").out
    pal_command("agent", "-m", "remember the green bicycle")
    pal_command("agent", "-m", "我的自行车是绿色的", "--session-key", "agent:main:direct:alice")
    listed = pal_command("sessions", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["session", "agent:main:direct:alice", "agent:main:main"]
    assert "green bicycle" in pal_command("sessions", "search", "bicycle").out
    hits = pal_command("sessions", "search", "自行车", "--json").json["hits"]
    assert "agent:main:direct:alice" in {hit["sessionKey"] for hit in hits}
    assert pal_command("sessions", "search", "submarine").out == "No messages match.\n"


def test_context_shows_what_each_part_costs(pal_command: Pal, workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("rule " * 6000)
    text = pal_command("context").out
    row = next(line.split() for line in text.splitlines() if line.startswith("AGENTS.md"))
    raw, sent, tokens = (int(cell.replace(",", "")) for cell in row[1:4])
    assert (raw, row[4]) == (30_000, "truncated")
    assert sent <= 20_000
    assert tokens > 1000
    parts = {part["name"]: part for part in pal_command("context", "--json").json["parts"]}
    assert parts["AGENTS.md"]["truncated"] is True
    assert parts["SOUL.md"]["raw"] == parts["SOUL.md"]["injected"] + 1  # the line break at its end


def test_the_command_in_the_chat_shows_the_same_table(pal_command: Pal) -> None:
    shown = pal_command("context").out
    said = pal_command("chat", stdin="/context\n").out
    assert said == shown


def test_config_values_are_set_shown_and_taken_out(pal_command: Pal) -> None:
    assert pal_command("config", "get", "agents.defaults.model").out == "embedded/scout\n"
    assert pal_command("config", "set", "agents.defaults.bootstrapMaxChars", "12000").code == 0
    assert pal_command("config", "get", "agents.defaults.bootstrapMaxChars", "--json").json == 12000
    assert pal_command("config", "unset", "agents.defaults.bootstrapMaxChars").code == 0
    assert pal_command("config", "get", "agents.defaults.bootstrapMaxChars").code == 1


def test_a_secret_of_the_config_is_not_shown(pal_command: Pal) -> None:
    pal_command("config", "set", "models.providers.mine.apiKey", "correct-horse-battery")
    pal_command("config", "set", "models.providers.mine.baseUrl", "http://127.0.0.1:9/v1")
    assert "correct-horse" not in pal_command("config", "get", "models.providers.mine").out


def test_status_says_who_the_agent_is(pal_command: Pal, workspace: Path) -> None:
    (workspace / "IDENTITY.md").write_text("---\nname: Logic\nemoji: 🤖\ncreature: owl\nvibe: calm\n---\n")
    pal_command("config", "set", "agents.entries.main.identity.theme", "night")
    rows = dict(line.split(maxsplit=1) for line in pal_command("status").out.splitlines())
    assert (rows["agent"], rows["identity"]) == ("main", "Logic 🤖 · creature: owl; vibe: calm; theme: night")
    said = pal_command("status", "--json").json["identity"]
    assert said == {"name": "Logic", "emoji": "🤖", "creature": "owl", "vibe": "calm", "theme": "night"}
    (workspace / "IDENTITY.md").write_text("- Name: (not chosen yet)\n")
    pal_command("config", "unset", "agents.entries.main.identity")
    assert "identity" not in pal_command("status").out


def test_the_config_is_checked_located_and_described(pal_command: Pal, home: Home) -> None:
    assert pal_command("config", "file").out == f"{home.config_path}\n"
    assert "is valid" in pal_command("config", "validate").out
    assert json.loads(pal_command("config", "schema").out)["type"] == "object"


def test_status_tells_where_everything_is(pal_command: Pal, home: Home, workspace: Path) -> None:
    report = pal_command("status", "--json").json
    assert (report["home"], report["workspace"]) == (str(home.root), str(workspace))
    assert report["model"] == "embedded/scout"
    assert report["modelReason"]
    assert "embedded/scout" in pal_command("status").out


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("context",),
        ("sessions", "list"),
        ("sessions", "search", "boat"),
        ("config", "validate"),
        ("config", "get", "agents"),
        ("setup",),
    ],
    ids=" ".join,
)
def test_json_may_stand_before_the_command_and_behind_it(pal_command: Pal, words: tuple[str, ...]) -> None:
    pal_command("setup")
    assert pal_command("--json", *words).json == pal_command(*words, "--json").json


def test_output_that_goes_into_a_pipe_has_no_colours(pal_command: Pal) -> None:
    pal_command("agent", "-m", "hi")
    assert "\x1b" not in pal_command("sessions", "show").out + pal_command("status").out


def test_another_workspace_is_used_for_one_command(pal_command: Pal, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("Other rules.\n")
    report = pal_command("--workspace", str(other), "status", "--json").json
    assert report["workspace"] == str(other)
