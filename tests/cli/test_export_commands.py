"""`pal export`, `pal sessions export` and `import`: away and back by the commands alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from called import Pal

LINES = [
    {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-11-15T09:00:00.000Z", "cwd": "/"},
    {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "where is the boat?"}},
]


@pytest.fixture
def talked(pal_command: Pal, tmp_path: Path) -> Pal:
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, LINES)) + "\n")
    assert pal_command("sessions", "import", str(file), "--key", "agent:main:explicit:boat").code == 0
    return pal_command


def test_a_conversation_goes_into_a_file_and_is_known_when_it_comes_back(talked: Pal, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert talked("sessions", "export", "agent:main:explicit:boat", "--out", str(out)).code == 0
    assert out.read_text().splitlines()[:2] == [json.dumps(line) for line in LINES]
    assert "here already" in talked("sessions", "import", str(out)).out
    assert talked("sessions", "export", "agent:main:explicit:boat", "--out", str(out)).code != 0
    other = talked("sessions", "import", str(out), "--agent", "nobody")
    assert other.code != 0
    assert "no agent" in other.err


def test_who_the_agent_is_goes_along_in_the_fields_that_openclaw_has(talked: Pal, tmp_path: Path) -> None:
    for field in ("name", "theme", "avatar", "vibe"):
        assert talked("config", "set", f"agents.entries.main.identity.{field}", f"my-{field}").code == 0
    assert talked("export", str(tmp_path / "tree")).code == 0
    (main,) = json.loads((tmp_path / "tree" / "openclaw.json").read_text())["agents"]["list"]
    assert main["identity"] == {"name": "my-name", "theme": "my-theme", "avatar": "my-avatar"}


def test_what_is_no_conversation_is_refused_in_one_line(pal_command: Pal, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("hello\n")
    ended = pal_command("sessions", "import", str(tmp_path / "x.jsonl"))
    assert ended.code != 0
    assert "no line" in ended.err
    assert pal_command("sessions", "export", "agent:main:nowhere").code != 0


def test_a_home_goes_into_one_file_and_comes_back(talked: Pal, tmp_path: Path) -> None:
    done = talked("export", str(tmp_path / "home.pal"), "--json")
    assert done.code == 0
    assert (done.json["sessions"], done.json["entries"]) == (1, 2)
    plan = talked("migrate", "openclaw", str(tmp_path / "home.pal"), "--dry-run", "--json")
    assert [session["outcome"] for session in plan.json["sessions"]] == ["same"]
    assert talked("export", str(tmp_path / "tree")).code == 0
    assert (tmp_path / "tree" / "agents" / "main" / "sessions" / "s1.jsonl").exists()
    assert (tmp_path / "tree" / "workspace" / "AGENTS.md").exists()
