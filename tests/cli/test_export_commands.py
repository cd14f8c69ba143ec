"""`pal export`, `pal sessions export` and `import`: away and back by the commands alone."""

from __future__ import annotations

import json
import os
import re
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


def test_openclaw_gets_no_heartbeat_that_was_not_on_here(talked: Pal, tmp_path: Path) -> None:
    assert talked("export", str(tmp_path / "tree")).code == 0
    written = json.loads((tmp_path / "tree" / "openclaw.json").read_text())["agents"]
    assert written["defaults"] == {"heartbeat": {"every": "0m"}}
    assert "heartbeat" not in written["list"][0]


def test_what_is_no_conversation_is_refused_in_one_line(pal_command: Pal, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("hello\n")
    ended = pal_command("sessions", "import", str(tmp_path / "x.jsonl"))
    assert ended.code != 0
    assert "no line" in ended.err
    assert pal_command("sessions", "export", "agent:main:nowhere").code != 0


def test_a_hard_link_to_something_outside_is_not_exported(talked: Pal, tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "key.txt").write_text("not yours\n")
    os.link(tmp_path / "key.txt", workspace / "plan.md")
    done = talked("export", str(tmp_path / "tree"), "--json")
    assert "workspace/plan.md" in [line["file"] for line in done.json["skipped"]]
    assert not (tmp_path / "tree" / "workspace" / "plan.md").exists()


def test_a_home_goes_into_one_file_and_comes_back(talked: Pal, tmp_path: Path) -> None:
    done = talked("export", str(tmp_path / "home.pal"), "--json")
    assert done.code == 0
    assert (done.json["sessions"], done.json["entries"]) == (1, 2)
    plan = talked("migrate", "openclaw", str(tmp_path / "home.pal"), "--dry-run", "--json")
    assert [session["outcome"] for session in plan.json["sessions"]] == ["same"]
    assert talked("export", str(tmp_path / "tree")).code == 0
    assert (tmp_path / "tree" / "agents" / "main" / "sessions" / "s1.jsonl").exists()
    assert (tmp_path / "tree" / "workspace" / "AGENTS.md").exists()


def test_the_tree_says_what_openclaw_would_have_written(pal_command: Pal, tmp_path: Path, workspace: Path) -> None:
    row = {"sessionId": "s1", "updatedAt": 1794772000000, "memoryFlushAt": 1794771000000, "compactionCount": 3}
    sessions = tmp_path / "theirs" / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "s1.jsonl").write_text("\n".join(map(json.dumps, LINES)) + "\n")
    told = {"agent:main:explicit:boat": {**row, "memoryFlushCompactionCount": 2}}
    (sessions / "sessions.json").write_text(json.dumps(told))
    (sessions / "old.jsonl.reset.2026-11-14T09-00-00.000Z").write_text((sessions / "s1.jsonl").read_text() + "\n")
    (tmp_path / "theirs" / "openclaw.json").write_text("{}")
    assert pal_command("migrate", "openclaw", str(tmp_path / "theirs"), "--apply").code == 0
    gone = pal_command("agent", "--message", "hello", "--json").json["sessionId"]
    assert pal_command("sessions", "delete", "agent:main:main", "--yes").code == 0
    assert pal_command("agent", "--message", "hello again").code == 0
    assert pal_command("export", str(tmp_path / "tree")).code == 0
    folder = tmp_path / "tree" / "agents" / "main" / "sessions"
    rows = json.loads((folder / "sessions.json").read_text())
    imported = rows["agent:main:explicit:boat"]
    assert [imported[name] for name in ("memoryFlushAt", "memoryFlushCompactionCount")] == [1794771000000, 2]
    assert len(list(folder.glob("old.jsonl.reset.*Z"))) == 1
    (deleted,) = folder.glob(f"{gone}.jsonl.deleted.*")
    stamp = deleted.name.rpartition(".deleted.")[2]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z", stamp)
    for file in (deleted, folder / rows["agent:main:main"]["sessionFile"]):
        header = json.loads(file.read_text().partition("\n")[0])
        assert (header["type"], header["cwd"]) == ("session", str(workspace))
    assert json.loads((folder / "s1.jsonl").read_text().partition("\n")[0])["cwd"] == "/"
    out = tmp_path / "one.jsonl"
    assert pal_command("sessions", "export", "agent:main:main", "--out", str(out)).code == 0
    assert json.loads(out.read_text().partition("\n")[0])["cwd"] == str(workspace)
