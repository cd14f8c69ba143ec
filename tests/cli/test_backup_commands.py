"""`pal backup` and `pal forget` as a person types them."""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.extensions.backup import backups as checking


def test_a_backup_is_made_listed_verified_restored_and_lived_in(
    pal_command: Pal, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pal_command("agent", "-m", "remember that the bicycle is green")
    made = pal_command("backup", "create", "--json").json
    assert Path(made["path"]).stat().st_mode & 0o777 == 0o600
    listed = pal_command("backup", "list", "--json").json
    assert [(each["id"], each["path"]) for each in listed] == [(made["id"], made["path"])]
    assert pal_command("backup", "verify", made["id"][:6]).out.startswith("whole: ")
    fresh = tmp_path / "fresh"
    assert pal_command("backup", "restore", made["id"][:6], "--to", str(fresh)).code == 0
    monkeypatch.setenv("PALINURUS_HOME", str(fresh))
    assert "bicycle is green" in pal_command("sessions", "show", "agent:main:main").out
    assert pal_command("agent", "-m", "hello").code == 0
    assert not list((home.root / "derived").glob("backup-*"))


def test_a_home_is_never_restored_over(pal_command: Pal, home: Home) -> None:
    pal_command("agent", "-m", "hello")
    made = pal_command("backup", "create", "--json").json
    refused = pal_command("backup", "restore", made["path"])
    assert (refused.code, "is not empty" in refused.err) == (2, True)


def test_a_sealed_backup_asks_for_its_passphrase(
    pal_command: Pal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pal_command("agent", "-m", "hello")
    unasked = pal_command("backup", "create", "--seal", "--to", str(tmp_path))
    assert (unasked.code, "the passphrase is missing (set PALINURUS_PASSPHRASE" in unasked.err) == (2, True)
    monkeypatch.setenv("PALINURUS_PASSPHRASE", "open sesame")
    made = pal_command("backup", "create", "--seal", "--to", str(tmp_path), "--json").json
    assert (made["sealed"], made["path"].endswith(".tar.gz.sealed")) == (True, True)
    assert pal_command("backup", "verify", made["path"]).code == 0
    monkeypatch.setenv("PALINURUS_PASSPHRASE", "open barley")
    wrong = pal_command("backup", "verify", made["path"])
    assert (wrong.code != 0, "does not open" in wrong.err) == (True, True)


def test_prune_keeps_the_newest(pal_command: Pal) -> None:
    pal_command("agent", "-m", "hello")
    made = [pal_command("backup", "create", "--json").json["path"] for _ in range(3)]
    assert len(pal_command("backup", "prune", "--keep", "1", "--dry-run", "--json").json) == 2
    assert len(pal_command("backup", "prune", "--keep", "1", "--json").json) == 2
    assert [Path(path).exists() for path in made] == [False, False, True]


def test_doctor_warns_when_there_is_something_to_lose_and_no_backup(
    pal_command: Pal, monkeypatch: pytest.MonkeyPatch
) -> None:
    pal_command("agent", "-m", "hello")
    monkeypatch.setattr(checking, "FEW_ENTRIES", 0)

    def state() -> str:
        checks = pal_command("doctor", "--json", "--no-model").json["checks"]
        return next(str(check["state"]) for check in checks if check["name"] == "backup")

    assert state() == "warning"
    pal_command("backup", "create")
    assert state() == "ok"


def test_forget_shows_the_plan_first_and_then_does_it(pal_command: Pal, home: Home, workspace: Path) -> None:
    pal_command("agent", "-m", "remember that the safe opens with 55-12-90")
    plan = pal_command("forget", "--query", "55-12-90")
    assert "Nothing was changed" in plan.out
    assert "55-12-90" in pal_command("sessions", "show", "agent:main:main").out
    done = pal_command("forget", "--query", "55-12-90", "--apply", "--json").json
    assert (done["applied"], done["remains"]) == (True, [])
    assert "55-12-90" not in pal_command("sessions", "show", "agent:main:main").out
    files = [path for root in (home.root, workspace) for path in root.rglob("*") if path.is_file()]
    assert [path for path in files if b"55-12-90" in path.read_bytes()] == []
    assert pal_command("forget", "--query", "55-12-90").out.startswith("Nothing was found")


@pytest.mark.parametrize("arguments", [[], ["--query", "abc", "--session", "x"], ["--session", "x", "--agent", "main"]])
def test_forget_wants_to_know_what(pal_command: Pal, arguments: list[str]) -> None:
    assert pal_command("forget", *arguments).code == 2
