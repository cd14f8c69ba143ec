"""What goes wrong is one line for people, an envelope for programs, and an exit code that says what kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home

MISTAKES = {
    "no such session": (("sessions", "show", "agent:main:direct:ghost"), 1, "NotFound", "there is no session"),
    "no session key": (("sessions", "show", "agent:main:subagent:"), 2, "BadRequest", "without a peer"),
    "no such agent": (("agent", "-m", "hi", "--agent", "ghost"), 1, "NotFound", "there is no agent 'ghost'"),
    "an empty message": (("agent", "-m", "  "), 2, "BadRequest", "the message is empty"),
    "no such value": (("config", "get", "agents.defaults.nothing"), 1, "NotFound", "agents.defaults.nothing"),
    "a bad profile": (("--profile", "../x", "status"), 2, "BadRequest", "profile"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_an_exit_code(pal_command: Pal, mistake: str) -> None:
    words, code, _, why = MISTAKES[mistake]
    ended = pal_command(*words)
    assert (ended.code, ended.out) == (code, "")
    assert why in ended.err
    assert ended.err.startswith("pal: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("before", [True, False], ids=["--json before", "--json behind"])
def test_a_program_gets_an_envelope_with_the_type_of_the_error(pal_command: Pal, mistake: str, before: bool) -> None:
    words, code, kind, why = MISTAKES[mistake]
    ended = pal_command("--json", *words) if before else pal_command(*words, "--json")
    assert ended.code == code
    body = ended.json
    assert (body["ok"], body["error"]["type"]) == (False, kind)
    assert why in body["error"]["message"]
    assert body["error"]["hint"]


@pytest.mark.parametrize(
    "words", [("dance",), ("agent",), ("status", "--colour"), ("sessions", "list", "--limit", "0")]
)
def test_a_wrong_use_of_the_command_is_exit_code_two(pal_command: Pal, words: tuple[str, ...]) -> None:
    plain = pal_command(*words)
    assert (plain.code, plain.out) == (2, "")
    assert "Traceback" not in plain.err
    told = pal_command("--json", *words)
    assert told.code == 2
    assert told.json["ok"] is False
    assert told.json["error"]["message"]


def test_a_mistyped_command_is_refused_with_the_one_that_was_meant(pal_command: Pal) -> None:
    assert "Did you mean 'chat'?" in pal_command("chta").err
    assert "Did you mean 'sessions'?" in pal_command("sesions", "list").err
    assert "Did you mean" not in pal_command("xyzzy").err


def test_a_broken_config_names_file_and_line(pal_command: Pal, home: Home) -> None:
    home.config_path.write_text('{\n  "agents": {\n    "defaults": {"maxConcurrent": "many"}\n  }\n}\n')
    for words in (("config", "validate"), ("agent", "-m", "hi"), ("chat",)):
        ended = pal_command(*words)
        assert ended.code == 2
        assert "palinurus.json:3" in ended.err
        assert "Traceback" not in ended.err
    report = pal_command("status")
    assert (report.code, "palinurus.json:3" in report.out) == (2, True)


def test_a_missing_workspace_is_one_line_that_says_how_to_make_it(pal_command: Pal, home: Home, tmp_path: Path) -> None:
    ended = pal_command("--workspace", str(tmp_path / "gone"), "context")
    assert ended.code == 1
    assert "gone does not exist" in ended.err
    assert "setup` makes it" in ended.err


def test_a_damaged_home_is_one_line_and_stays_as_it_is(pal_command: Pal, home: Home) -> None:
    (home.root / "home.sqlite").write_bytes(b"no database" * 100)
    ended = pal_command("agent", "-m", "hi")
    assert ended.code == 1
    assert "is damaged" in ended.err
    assert ended.err.count("\n") == 1
    assert (home.root / "home.sqlite").read_bytes() == b"no database" * 100


def test_a_model_that_cannot_be_used_is_an_error_and_the_message_is_kept(pal_command: Pal) -> None:
    pal_command("config", "set", "agents.defaults.model", "nowhere/model")
    ended = pal_command("agent", "-m", "are you there?")
    assert ended.code == 1
    assert "nowhere" in ended.err
    assert "are you there?" in pal_command("sessions", "show").out
    assert pal_command("chat", stdin="hello\n").code == 1


@pytest.mark.parametrize("words", [("agent", "-m", "-"), ("chat",)])
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # of different locales
def test_a_stray_byte_in_the_input_costs_one_character(home: Home, words: tuple[str, ...], errors: str) -> None:
    env = os.environ | {"PALINURUS_HOME": str(home.root), "PYTHONIOENCODING": f"utf-8:{errors}"}
    command = [sys.executable, "-m", "palinurus"]
    said = subprocess.run(
        [*command, *words], env=env, input=b"the caf\xe9\nis open\n", capture_output=True, timeout=60, check=False
    )
    assert (said.returncode, said.stderr) == (0, b"")
    shown = subprocess.run([*command, "sessions", "show"], env=env, capture_output=True, timeout=60, check=True)
    assert "you: the caf\ufffd" in shown.stdout.decode()
    assert "is open" in shown.stdout.decode()
