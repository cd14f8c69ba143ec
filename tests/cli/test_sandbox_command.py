"""`pal sandbox`: where commands run is said with its reasons, and walls that do not hold are an exit code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@needs_bwrap
def test_without_a_config_commands_run_in_a_sandbox_with_the_workspace(pal_command: Pal, workspace: Path) -> None:
    told = pal_command("sandbox", "explain")
    assert told.code == 0
    assert told.out.startswith("agent:main:main: Commands run in a sandbox (bubblewrap).")
    lines = [" ".join(line.split()) for line in told.out.splitlines()]
    assert f"{workspace} read-write the agent's workspace, which it may change" in lines
    assert {"network: none", "a command in all: at most 2,048 MiB of memory, 128 processes, 20,480 MiB written"} <= set(
        lines
    )
    assert any(line.startswith("no mode is set") for line in lines)


def test_a_session_that_is_not_sandboxed_is_told_why(pal_command: Pal) -> None:
    pal_command("config", "set", "agents.defaults.sandbox.mode", "non-main")
    told = pal_command("sandbox", "explain").out
    assert "on the host, without a sandbox" in told
    assert "this is the main session" in told


def test_a_sandbox_that_cannot_be_had_is_said_to_be_a_refusal(pal_command: Pal) -> None:
    pal_command("config", "set", "agents.defaults.sandbox.mode", "all")
    pal_command("config", "set", "agents.defaults.sandbox.backend", "docker")
    pal_command("config", "set", "agents.defaults.sandbox.docker.network", "host")
    told = pal_command("sandbox", "explain", "--session-key", "agent:main:telegram:group:-1", "--json").json
    assert (told["runs"], told["walls"]["works"]) == ("nowhere", False)
    assert any("no command runs" in reason for reason in told["why"])


def test_only_the_names_of_variables_are_shown(pal_command: Pal) -> None:
    pal_command("config", "set", "agents.defaults.sandbox.env.TOKEN", "not-to-be-seen")
    told = pal_command("sandbox", "explain", "--json")
    assert told.json["env"] == ["TOKEN"]
    assert "not-to-be-seen" not in told.out


@needs_bwrap
@pytest.mark.slow
def test_the_walls_are_tried_and_hold(pal_command: Pal, home: Home) -> None:
    told = pal_command("sandbox", "test")
    assert (told.code, told.out.count("✓"), "✗" in told.out) == (0, 11, False)
    assert "All sandbox tests passed." in told.out
    assert not {path.name for path in home.root.iterdir() if "probe" in path.name or "trial" in path.name}


def test_walls_that_cannot_be_made_are_an_exit_code(pal_command: Pal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    told = pal_command("sandbox", "test")
    assert told.code == 1
    assert "✗ bubblewrap does not work here: bwrap is not installed; install it: apt install bubblewrap" in told.out
    assert pal_command("sandbox", "test", "--json").json["ok"] is False


def test_doctor_says_what_lacks_and_when_that_is_wrong(pal_command: Pal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    def found() -> tuple[str, str]:
        checks = pal_command("doctor", "--no-model", "--json").json["checks"]
        (check,) = [check for check in checks if check["name"] == "sandbox"]
        return check["state"], check["what"]

    assert found()[0] == "warning"
    assert "commands need approval: bwrap is not installed" in found()[1]
    pal_command("config", "set", "agents.defaults.sandbox.mode", "all")
    assert found()[0] == "bad"
    pal_command("config", "set", "agents.defaults.sandbox.mode", "off")
    assert found()[0] == "ok"


@needs_bwrap
def test_what_a_sandboxed_session_notes_is_found_by_its_next_question(
    pal_command: Pal, home: Home, workspace: Path
) -> None:
    pal_command("config", "set", "agents.defaults.sandbox.mode", "all")
    noted = pal_command("agent", "-m", "remember that my bicycle is green")
    assert noted.out.startswith("Noted in memory/")
    asked = pal_command("agent", "-m", "what colour is my bicycle?")
    assert "my bicycle is green (memory/" in asked.out
    (note,) = (workspace / "memory").glob("*.md")
    assert "my bicycle is green" in note.read_text()
    assert str(home.root / "sandboxes") in pal_command("context").out


def test_notes_that_an_older_version_left_in_a_sandbox_are_worth_a_look(pal_command: Pal, home: Home) -> None:
    folder = home.root / "sandboxes" / "agent-main-1"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "2026-11-15.md").write_text("- figs\n")
    assert str(folder) in pal_command("doctor").out
