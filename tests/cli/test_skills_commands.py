"""`pal skills` on a real home: what it shows to people and to programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home

VIDEO = """---
name: video
description: Cuts videos.
metadata: {"openclaw": {"requires": {"bins": ["no-such-program"], "env": ["VIDEO_KEY"]}, "primaryEnv": "VIDEO_KEY",
  "install": [{"kind": "uv", "package": "no-such-program", "bins": ["no-such-program"]}]}}
---
Cut.
"""


@pytest.fixture
def skills(workspace: Path) -> Path:
    folder = workspace / "skills"
    for name, text in {"video": VIDEO, "broken": "nothing", "translate": "---\ndescription: Mine.\n---\n"}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(text)
    return folder


def test_skills_are_listed_with_their_places_and_troubles(
    pal_command: Pal, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = pal_command("skills", "list")
    assert (shown.code, shown.err) == (0, "")
    rows = {line.split()[1]: line for line in shown.out.splitlines() if line[:3] in ("yes", "no ")}
    assert rows["git-helper"].split()[:3] == ["yes", "git-helper", "bundled"]
    assert "missing programs: no-such-program; variables" in rows["video"]
    assert rows["translate"].split()[2:] == ["workspace", "Mine."]
    assert "1 left out, 1 shadowed: `pal skills check` says why." in shown.out
    listed = pal_command("skills", "list", "--eligible", "--json").json
    assert "video" not in {skill["name"] for skill in listed["skills"]}
    assert listed["leftOut"][0]["reason"].startswith("it has no front matter")
    assert listed["prompt"]["form"] == "full"


def test_the_second_list_says_the_same_and_follows_the_config(pal_command: Pal, skills: Path) -> None:
    first = pal_command("skills", "list", "--json")
    assert pal_command("skills", "list", "--json").out == first.out
    pal_command("config", "set", "skills.entries.video.enabled", "false")
    listed = {each["name"]: each for each in pal_command("skills", "list", "--json").json["skills"]}
    assert listed["video"]["reasons"][0] == "switched off (skills.entries.video.enabled)"


def test_no_secret_of_the_config_is_kept_beside_it(pal_command: Pal, skills: Path, home: Home) -> None:
    pal_command("config", "set", "skills.entries.video.apiKey", "very-secret-value")
    pal_command("config", "set", "skills.entries.video.env.OTHER", "other-secret-value")
    listed = {each["name"]: each for each in pal_command("skills", "list", "--json").json["skills"]}
    assert listed["video"]["missing"] == {"bins": ["no-such-program"]}
    for path in (home.root / "derived").rglob("*"):
        assert b"secret-value" not in path.read_bytes()


def test_all_about_one_skill_is_shown(pal_command: Pal, skills: Path) -> None:
    shown = pal_command("skills", "info", "VIDEO")
    assert shown.code == 0
    assert "may use    the agent's policy" in shown.out
    assert "install    uv no-such-program" in shown.out
    assert pal_command("skills", "info", "video", "--json").json["about"]["primaryEnv"] == "VIDEO_KEY"
    missing = pal_command("skills", "info", "broken")
    assert (missing.code, missing.out) == (1, "")
    assert "the skill broken was left out: it has no front matter" in missing.err


def test_check_says_what_is_wrong_and_fails_for_what_cannot_be_read(pal_command: Pal, skills: Path) -> None:
    shown = pal_command("skills", "check")
    assert shown.code == 1
    assert "(`pal skills install-deps video`)" in shown.out
    assert "Shadowed by another of the same name:" in shown.out
    (skills / "broken" / "SKILL.md").unlink()
    again = pal_command("skills", "check", "--json")
    assert (again.code, again.json["waiting"][0]["name"]) == (0, "video")


def test_nothing_is_installed_without_a_yes(
    pal_command: Pal, skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    uv = programs / "uv"
    uv.write_text(f"#!/bin/sh\necho '#!/bin/sh' > {programs}/no-such-program\nchmod +x {programs}/no-such-program\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("VIDEO_KEY", "x")
    shown = pal_command("skills", "install-deps", "video", "--dry-run")
    assert (shown.code, shown.out.splitlines()[-1].strip()) == (0, "$ uv tool install no-such-program")
    refused = pal_command("skills", "install-deps", "video", "--json")
    assert (refused.code, refused.json["steps"][0]["argv"]) == (1, ["uv", "tool", "install", "no-such-program"])
    assert "needs a terminal; use --yes" in refused.err
    assert [path.name for path in programs.iterdir()] == ["uv"]
    done = pal_command("skills", "install-deps", "video", "--yes")
    assert (done.code, done.err) == (0, "")
    assert pal_command("skills", "install-deps", "video").out == "video has all the programs it needs.\n"


def test_an_agent_that_there_is_not_is_one_clear_line(pal_command: Pal, skills: Path) -> None:
    pal_command("skills", "list")
    ended = pal_command("skills", "list", "--agent", "nobody")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "pal: there is no agent 'nobody' (the config has main)\n"
