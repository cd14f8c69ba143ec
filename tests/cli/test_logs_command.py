"""`pal logs`: runs, failovers and changes of the config can be read afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from called import Pal

from palinurus.config.home import Home


def test_a_run_leaves_its_start_and_end_under_its_id_and_session(pal_command: Pal) -> None:
    run = pal_command("agent", "-m", "hi", "--json").json["runId"]
    lines = [json.loads(line) for line in pal_command("logs", "--run", run[:6], "--json").out.splitlines()]
    assert [line["text"].split(" after")[0] for line in lines] == ["run start", "run end"]
    assert {(line["run"], line["session"]) for line in lines} == {(run, "agent:main:main")}
    everything = pal_command("logs").out
    assert "holds the home: pal agent" in everything
    assert re.search(r"\d\d:\d\d:\d\d info    run start  agent:main:main", everything)


def test_a_failed_run_is_an_error_in_the_log_and_one_line_on_the_screen(pal_command: Pal) -> None:
    pal_command("config", "set", "agents.defaults.model", "nowhere/model")
    ended = pal_command("agent", "-m", "are you there?")
    assert ended.err.count("\n") == 1
    assert "nowhere" in pal_command("logs", "--level", "error").out


def test_the_last_lines_are_shown_and_a_level_that_is_none_is_refused(pal_command: Pal) -> None:
    assert pal_command("logs").out == ""
    for _ in range(3):
        pal_command("agent", "-m", "hi")
    assert len(pal_command("logs", "-n", "2").out.splitlines()) == 2
    assert pal_command("logs", "--level", "loud").code == 2


def test_a_config_that_is_changed_meanwhile_is_told_in_the_log(pal_command: Pal, home: Home) -> None:
    chat = subprocess.Popen(
        [sys.executable, "-m", "palinurus", "chat"],
        env=os.environ | {"PALINURUS_HOME": str(home.root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert chat.stdin
    assert chat.stdout
    chat.stdin.write("/status\n")
    chat.stdin.flush()
    assert chat.stdout.readline()
    pal_command("config", "set", "agents.defaults.maxConcurrent", "3")
    chat.communicate("hello\n", timeout=60)
    assert "read again" in pal_command("logs").out


@pytest.mark.slow
def test_following_ends_with_ctrl_c_and_without_a_complaint(pal_command: Pal, home: Home) -> None:
    pal_command("agent", "-m", "hi")
    follower = subprocess.Popen(
        [sys.executable, "-m", "palinurus", "logs", "-f", "-n", "1"],
        env=os.environ | {"PALINURUS_HOME": str(home.root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout
    assert "releases the home" in follower.stdout.readline()
    pal_command("agent", "-m", "again")
    assert "holds the home" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, complaint = follower.communicate(timeout=60)
    assert (follower.returncode, complaint) == (0, "")
