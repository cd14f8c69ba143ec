"""`pal migrate openclaw`: a plan, then the same carried over, and nothing the second time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from called import Pal

LINES = [
    {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-11-15T09:00:00.000Z"},
    {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "where is the boat?"}},
]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    root = tmp_path / ".openclaw"
    sessions = root / "agents" / "night" / "sessions"
    sessions.mkdir(parents=True)
    (root / "openclaw.json").write_text('{"agents": {"list": [{"id": "night", "name": "Night Watch"}]}, "hooks": {}}')
    (sessions / "sessions.json").write_text('{"agent:night:main": {"sessionId": "s1", "updatedAt": 1794772000000}}')
    (sessions / "s1.jsonl").write_text("\n".join(map(json.dumps, LINES)) + "\n{broken\n")
    (root / "workspace").mkdir()
    (root / "workspace" / "MEMORY.md").write_text("The boat lies at the quay.\n")
    keys = {"profiles": {"anthropic:old": {"type": "api_key", "provider": "anthropic", "key": "sk-ant-FAKE-0000-x"}}}
    (root / "agents" / "night" / "agent").mkdir()
    (root / "agents" / "night" / "agent" / "auth-profiles.json").write_text(json.dumps(keys))
    return root


def test_the_plan_tells_what_would_come_and_does_nothing(pal_command: Pal, theirs: Path) -> None:
    ended = pal_command("migrate", "openclaw", str(theirs), "--dry-run", "--json")
    report: dict[str, Any] = json.loads(ended.out)
    assert ended.code == 0
    assert [(a["id"], a["name"]) for a in report["agents"]] == [("night", "Night Watch")]
    (session,) = report["sessions"]
    assert (session["agent"], session["key"], session["sessionId"]) == ("night", "agent:night:main", "s1")
    assert (session["entries"], session["messages"]) == ({"message": 1, "session": 1}, {"user": 1})
    assert (session["archived"], session["outcome"]) == (False, "new")
    assert [f["path"] for f in report["workspaceFiles"]] == ["MEMORY.md"]
    assert {"cronJobs", "approvals", "skills", "skipped"} <= report.keys()
    (skipped,) = report["skipped"]
    assert (skipped["file"], skipped["line"]) == ("agents/night/sessions/s1.jsonl", 3)
    assert "FAKE" not in ended.out
    assert json.loads(pal_command("sessions", "list", "--json").out)["sessions"] == []


def test_it_is_carried_over_and_can_be_talked_about(pal_command: Pal, theirs: Path) -> None:
    first = pal_command("migrate", "openclaw", str(theirs), "--apply")
    assert first.code == 4  # its third line is no JSON: a script must notice that something is missing
    assert "1 brought over" in first.out
    shown = json.loads(pal_command("sessions", "list", "--json").out)["sessions"]
    assert [session["key"] for session in shown] == ["agent:night:main"]
    assert "where is the boat?" in pal_command("sessions", "show", "agent:night:main").out
    again = pal_command("migrate", "openclaw", str(theirs), "--apply")
    assert "1 here already" in again.out
    reply = pal_command("agent", "--agent", "night", "--message", "hello")
    assert reply.code == 0
    assert json.loads(pal_command("sessions", "list", "--json").out)["sessions"][0]["entryCount"] > 2


def test_stored_keys_come_only_when_asked_for(pal_command: Pal, theirs: Path) -> None:
    ended = pal_command("migrate", "openclaw", str(theirs), "--apply")
    assert "anthropic:old" not in pal_command("models", "auth", "list", "--agent", "night").out
    ended = pal_command("migrate", "openclaw", str(theirs), "--apply", "--keys", "--json")
    assert ended.code == 4
    assert "FAKE" not in ended.out + ended.err
    assert "anthropic:old" in pal_command("models", "auth", "list", "--agent", "night").out


def test_a_folder_that_is_no_home_is_told_in_one_line(pal_command: Pal, tmp_path: Path) -> None:
    ended = pal_command("migrate", "openclaw", str(tmp_path / "nowhere"))
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "no folder" in ended.err


@pytest.mark.parametrize("options", [("--dry-run", "--apply"), ("--keys",)])
def test_options_that_contradict_each_other_are_refused(
    pal_command: Pal, theirs: Path, options: tuple[str, ...]
) -> None:
    assert pal_command("migrate", "openclaw", str(theirs), *options).code == 2


def test_a_hard_link_to_something_outside_is_left_there_and_told(
    pal_command: Pal, theirs: Path, tmp_path: Path, workspace: Path
) -> None:
    (tmp_path / "key.txt").write_text("not yours\n")
    os.link(tmp_path / "key.txt", theirs / "workspace" / "plan.md")
    told = json.loads(pal_command("migrate", "openclaw", str(theirs), "--apply", "--json").out)
    (why,) = (line["reason"] for line in told["skipped"] if line["file"] == "workspace/plan.md")
    assert why.startswith("it has another name outside the workspace (a hard link)")
    assert "not yours" not in "".join(path.read_text() for path in tmp_path.glob("home/**/*.md"))
