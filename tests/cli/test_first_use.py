"""A home that somebody has begun with the config: every command finds a workspace, or says what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home

SCOUT = ("config", "set", "agents.defaults.model", "embedded/scout")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


@pytest.fixture
def newcomer(pal_command: Pal, new: Path, monkeypatch: pytest.MonkeyPatch) -> Pal:
    """A home of which nothing is there but what `pal config set` makes."""
    monkeypatch.setenv("PALINURUS_HOME", str(new))
    pal_command(*SCOUT)
    assert not (new / "workspace").exists()
    return pal_command


@pytest.mark.parametrize(
    "words",
    [
        ("agent", "-m", "hi"),
        ("status",),
        ("context",),
        ("models", "status"),
        ("models", "test"),
        ("onboard", "--yes"),
        ("onboard", "--model", "embedded/scout"),
        ("workspace", "log"),
    ],
    ids=" ".join,
)
def test_after_config_set_any_command_may_come_first(newcomer: Pal, new: Path, words: tuple[str, ...]) -> None:
    assert newcomer(*words).code == 0
    assert "green" in _remembers_green(newcomer)
    assert (new / "workspace" / "AGENTS.md").exists()


def test_after_config_set_a_chat_is_answered(newcomer: Pal) -> None:
    ended = newcomer("chat", stdin="remember that my bicycle is green\nwhat colour is my bicycle?\n")
    assert (ended.code, "my bicycle is green" in ended.out) == (0, True)


def test_a_workspace_that_is_missing_before_the_first_word_is_made_and_said_to_be(newcomer: Pal, new: Path) -> None:
    newcomer("status")
    (new / "workspace").rename(new / "elsewhere")
    ended = newcomer("agent", "-m", "hi")
    assert ended.code == 0
    assert f"one was created in {new / 'workspace'}" in ended.err
    assert "made" not in newcomer("agent", "-m", "hi").err


def test_a_workspace_that_was_lived_in_and_is_gone_is_not_replaced_unasked(newcomer: Pal, new: Path) -> None:
    newcomer("agent", "-m", "hi")
    (new / "workspace").rename(new / "elsewhere")
    ended = newcomer("agent", "-m", "hi")
    assert ended.code == 1
    assert "`pal setup` makes it" in ended.err
    assert not (new / "workspace").exists()
    assert newcomer("status").code == 1
    assert newcomer("setup").code == 0
    assert newcomer("agent", "-m", "hi").code == 0


def test_a_workspace_that_the_config_names_is_made_on_the_first_run(newcomer: Pal, tmp_path: Path) -> None:
    newcomer("config", "set", "agents.defaults.workspace", str(tmp_path / "mine"))
    assert newcomer("status").code == 0
    assert (tmp_path / "mine" / "AGENTS.md").exists()


def test_files_of_a_workspace_that_is_there_are_not_added_to(newcomer: Pal, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    newcomer("config", "set", "agents.defaults.workspace", str(tmp_path / "mine"))
    assert newcomer("status").code == 0
    assert list((tmp_path / "mine").iterdir()) == []


def test_one_that_was_named_and_has_vanished_later_is_not_replaced_in_silence(newcomer: Pal, tmp_path: Path) -> None:
    newcomer("config", "set", "agents.defaults.workspace", str(tmp_path / "mine"))
    newcomer("status")
    (tmp_path / "mine").rename(tmp_path / "unmounted")
    ended = newcomer("agent", "-m", "hi")
    assert (ended.code, (tmp_path / "mine").exists()) == (1, False)
    assert "mine does not exist (`pal setup` makes it" in ended.err


def test_a_mistyped_workspace_is_not_made_and_the_error_says_how_to_make_it(newcomer: Pal, tmp_path: Path) -> None:
    typo = tmp_path / "typo"
    ended = newcomer("--workspace", str(typo), "agent", "-m", "hi")
    assert (ended.code, typo.exists()) == (1, False)
    assert f"`pal --workspace {typo} setup` makes it" in ended.err
    assert newcomer("--workspace", str(typo), "setup").code == 0
    assert newcomer("--workspace", str(typo), "agent", "-m", "hi").code == 0


def test_an_agent_that_was_added_later_gets_its_workspace(newcomer: Pal, new: Path) -> None:
    newcomer("agent", "-m", "hi")
    newcomer("config", "set", "agents.entries", '{"main": {}, "work": {}}')
    assert newcomer("agent", "--agent", "work", "-m", "hi").code == 0
    assert (new / "workspace-work" / "AGENTS.md").exists()


def test_the_doctor_of_a_home_without_a_workspace_sees_nothing_wrong_and_makes_none(newcomer: Pal, new: Path) -> None:
    ended = newcomer("doctor", "--json")
    (found,) = [check for check in ended.json["checks"] if check["name"] == "workspace"]
    assert (ended.code, found["state"]) == (0, "warning")
    assert not (new / "workspace").exists()


def test_setup_with_a_workspace_makes_it_and_stays_with_it(newcomer: Pal, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    assert f"{mine} (main)" in newcomer("setup", "--workspace", str(mine)).out
    assert (mine / "AGENTS.md").exists()
    assert newcomer("config", "get", "agents.defaults.workspace").out == f"{mine}\n"
    assert newcomer("status", "--json").json["workspace"] == str(mine)
    assert newcomer("setup", "--workspace", " ").code == 2
    (tmp_path / "file").write_text("")
    assert newcomer("setup", "--workspace", str(tmp_path / "file" / "x")).code == 1
    assert newcomer("config", "get", "agents.defaults.workspace").out == f"{mine}\n"


def test_configure_is_onboard_by_another_name(newcomer: Pal) -> None:
    ended = newcomer("configure", "--model", "embedded/scout")
    assert (ended.code, "embedded/scout answers" in ended.out) == (0, True)


def test_the_doctor_tells_of_workspaces_that_nobody_reads(
    newcomer: Pal, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    newcomer("setup")
    newcomer("config", "set", "agents.entries", '{"main": {}, "work": {}}')
    newcomer("setup")
    others = [tmp_path / "openclaw", tmp_path / ".openclaw" / "workspace", new / "workspace-old"]
    for place in others:
        place.mkdir(parents=True)
        (place / "AGENTS.md").write_text("# Rules\n")
    (new / "workspace-empty").mkdir()
    found = newcomer("doctor", "--no-model", "--json").json["checks"]
    told = [check for check in found if check["name"] == "workspace" and check["state"] == "warning"]
    assert sorted(check["where"] for check in told) == sorted(map(str, others))
    assert all("nothing in it is read" in check["what"] and check["todo"] for check in told)
    monkeypatch.setenv("PALINURUS_HOME", str(tmp_path / "second"))
    newcomer("setup", "--workspace", str(others[0]))
    found = newcomer("doctor", "--no-model", "--json").json["checks"]
    assert str(others[0]) not in [check["where"] for check in found if check["state"] == "warning"]


def _break_config(home: Home) -> None:
    home.config_path.write_text('{\n  "agents": {\n')


def _damage(home: Home) -> None:
    (home.root / "home.sqlite").write_bytes(b"no database" * 100)


def _fill(home: Home) -> None:
    (home.root / "workspace").write_text("a file where a folder should be")
    home.config_path.write_text('{"agents": {"defaults": {"model": "embedded/scout"}}}')


@pytest.mark.parametrize(
    ("spoil", "told"),
    [(_break_config, "palinurus.json:2"), (_damage, "is damaged"), (_fill, "is not a folder")],
)
def test_status_and_doctor_tell_what_is_wrong_and_all_else(
    pal_command: Pal, home: Home, spoil: Callable[[Home], None], told: str
) -> None:
    spoil(home)
    status = pal_command("status")
    assert status.code in (1, 2)
    assert str(home.root) in status.out
    assert any(line.startswith("problem") and told in line for line in status.out.splitlines())
    assert any(told in trouble for trouble in pal_command("status", "--json").json["troubles"])
    found = pal_command("doctor", "--no-model", "--json")
    assert found.code == 1
    assert any(told in check["what"] for check in found.json["checks"] if check["state"] == "bad")
    assert {"lock", "disk", "git"} <= {check["name"] for check in found.json["checks"]}


@pytest.mark.parametrize("closed", ["logs", "lock", "derived", "."])
def test_a_part_that_may_not_be_read_is_a_finding_of_the_doctor(pal_command: Pal, home: Home, closed: str) -> None:
    pal_command("agent", "-m", "hi")
    pal_command("doctor", "--no-model")
    pal_command("status")
    (home.root / closed).chmod(0)
    with _nobody(home.root.parent):
        found = pal_command("doctor", "--no-model", "--json")
        status = pal_command("status")
    assert found.code == 1
    assert any("permission denied" in check["what"] for check in found.json["checks"] if check["state"] == "bad")
    assert str(home.root) in status.out


def test_a_home_that_cannot_be_written_is_a_finding_of_the_doctor(pal_command: Pal, home: Home) -> None:
    pal_command("agent", "-m", "hi")
    pal_command("doctor", "--no-model")
    home.root.chmod(0o500)
    with _nobody(home.root.parent):
        found = pal_command("doctor", "--no-model", "--json")
    assert any("cannot be written" in check["what"] for check in found.json["checks"] if check["state"] == "bad")


def test_a_damaged_index_of_notes_is_a_finding_and_mended_by_the_next_search(pal_command: Pal, home: Home) -> None:
    pal_command("agent", "-m", "remember that my bicycle is green")
    pal_command("memory", "search", "bicycle", "--keyword")
    (home.root / "derived" / "memory" / "main.sqlite").write_bytes(b"no database" * 100)
    found = pal_command("doctor", "--no-model", "--json").json["checks"]
    assert any(check["name"] == "memory" and "damaged" in check["what"] for check in found)
    assert "green" in pal_command("memory", "search", "bicycle", "--keyword").out


def _remembers_green(pal: Pal) -> str:
    pal("agent", "-m", "remember that my bicycle is green")
    return pal("agent", "-m", "what colour is my bicycle?").out


@contextmanager
def _nobody(root: Path) -> Iterator[None]:
    """As a user without rights: root reads everything."""
    user = os.geteuid()
    if user == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, 65534, 65534)
        for folder in root.parents:
            if folder.stat().st_uid == 0 and folder != Path("/"):
                folder.chmod(folder.stat().st_mode | 0o011)
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        (root / "home").chmod(0o700)
