"""`pal skills search|install|update|verify|publish` and `pal registry`, as a shell calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosted import Hosted, Pal, skill_text

from palinurus.config.home import Home


@pytest.fixture
def own_skill(tmp_path: Path) -> Path:
    folder = tmp_path / "tide-table"
    folder.mkdir()
    (folder / "SKILL.md").write_text(skill_text("tide-table", "version: 1.0.0\n"))
    (folder / "run.py").write_text("print(1)\n")
    return folder


def test_a_skill_is_published_found_installed_updated_and_verified(
    pal_skills: Pal, hosted: Hosted, own_skill: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWHUB_TOKEN", hosted.token("ada"))
    assert pal_skills("skills", "publish", str(own_skill), "--yes", "--json").json["version"] == "1.0.0"
    found = pal_skills("skills", "search", "tide")
    assert found.out.startswith("tide-table 1.0.0  @ada")
    looked = pal_skills("skills", "install", "tide-table")
    assert looked.code == 1
    assert "commands only in the sandbox" in looked.out
    assert "needs a terminal to confirm; use --yes" in looked.err
    assert not (home.root / "skills" / "tide-table").exists()
    done = pal_skills("skills", "install", "tide-table", "--yes")
    assert done.code == 0
    assert "pinned as sha256:" in done.out
    (own_skill / "more.md").write_text("more\n")
    assert pal_skills("skills", "publish", str(own_skill), "--version", "1.1.0", "--yes").code == 0
    dry = pal_skills("skills", "update", "--all", "--dry-run")
    assert (dry.code, "1.0.0 -> 1.1.0" in dry.out, "added    more.md" in dry.out) == (0, True, True)
    updated = pal_skills("skills", "update", "tide-table", "--yes", "--json").json["skills"]
    assert [(each["slug"], each["updated"]) for each in updated] == [("tide-table", True)]
    assert pal_skills("skills", "verify").code == 0
    (home.root / "skills" / "tide-table" / "run.py").write_text("print(2)\n")
    drifted = pal_skills("skills", "verify", "--json")
    assert (drifted.code, drifted.json[0]["state"]) == (1, "drifted")
    assert "tide-table" not in pal_skills("skills", "list").out


def test_a_secret_is_not_published(
    pal_skills: Pal, hosted: Hosted, own_skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWHUB_TOKEN", hosted.token("ada"))
    (own_skill / "notes.md").write_text("ghp_" + "a1" * 20)
    refused = pal_skills("skills", "publish", str(own_skill), "--yes")
    assert refused.code == 2
    assert "notes.md:1 looks like a secret" in refused.err
    assert pal_skills("skills", "search", "tide").out.startswith("Nothing was found")


def test_without_a_token_publishing_says_what_is_missing(pal_skills: Pal, own_skill: Path) -> None:
    refused = pal_skills("skills", "publish", str(own_skill), "--yes")
    assert refused.code == 2
    assert "CLAWHUB_TOKEN" in refused.err


def test_a_name_that_is_taken_is_told_before_anybody_says_yes(pal_skills: Pal, hosted: Hosted) -> None:
    hosted.publish("helper", SKILL_md=skill_text("git-helper"))
    assert "a skill of that name already exists" in pal_skills("skills", "install", "helper").out


def test_update_wants_names_or_all(pal_skills: Pal) -> None:
    assert "name some skills, or say --all" in pal_skills("skills", "update").err
    assert "No skill was installed" in pal_skills("skills", "update", "--all").out
    assert "no skill 'tide'" in pal_skills("skills", "update", "tide").err


def test_tokens_are_made_listed_and_revoked(pal_skills: Pal, tmp_path: Path) -> None:
    folder = str(tmp_path / "other")
    made = pal_skills("registry", "token", "create", folder, "--owner", "Ada", "--json").json
    assert made["secret"].startswith("clh_")
    listed = pal_skills("registry", "token", "list", folder)
    assert made["id"] in listed.out
    assert made["secret"] not in listed.out
    assert "is revoked" in pal_skills("registry", "token", "revoke", folder, made["id"]).out
    assert "no valid token" in pal_skills("registry", "token", "revoke", folder, made["id"]).err
    assert "not a valid owner name" in pal_skills("registry", "token", "create", folder, "--owner", "../x").err


def test_a_skill_is_blocked_and_freed_while_the_registry_runs(pal_skills: Pal, hosted: Hosted) -> None:
    hosted.publish("tide")
    assert pal_skills("registry", "block", str(hosted.folder), "tide", "--reason", "reads keys").code == 0
    assert "as malware: reads keys" in pal_skills("skills", "install", "tide", "--yes").err
    assert pal_skills("registry", "block", str(hosted.folder), "tide", "--undo").code == 0
    assert pal_skills("skills", "install", "tide", "--yes").code == 0


def test_a_port_that_is_taken_is_told_in_one_line(pal_skills: Pal, hosted: Hosted, tmp_path: Path) -> None:
    port = hosted.url.rpartition(":")[2]
    refused = pal_skills("registry", "serve", str(tmp_path / "other"), "--port", port)
    assert refused.code == 2
    assert refused.err.startswith("pal: the registry cannot listen at 127.0.0.1")
    assert len(refused.err.splitlines()) == 1
