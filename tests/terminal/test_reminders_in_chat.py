"""A reminder that was asked for in `pal chat` arrives there, also when the process was killed in between; once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from pseudo_terminal import CTRL_D, ENTER, Terminal

pytestmark = pytest.mark.slow
WAIT = 60.0


@pytest.fixture
def env(tmp_path: Path, workspace: Path) -> dict[str, str]:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    config = {"agents": {"defaults": {"model": "embedded/scout", "workspace": str(workspace)}}}
    (root / "palinurus.json").write_text(json.dumps(config))
    return {"PALINURUS_HOME": str(root), "HOME": str(tmp_path)}


async def test_a_reminder_arrives_once_after_the_chat_was_killed_and_started_again(env: dict[str, str]) -> None:
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("/help", "›")
        terminal.type("Remind me in 3 seconds to stretch" + ENTER)
        await terminal.sees("Added 'stretch'")
        os.kill(terminal.pid, signal.SIGKILL)
        await terminal.ends()
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("⏰ stretch")
        terminal.type("/remind list" + ENTER)
        shown = await terminal.sees("There are no cron jobs or reminders.")
        assert "⏰" not in shown
        assert terminal.shown.count("⏰ stretch") == 1
        terminal.type(CTRL_D)
        assert await terminal.ends() == 0
    listed = await run(env, "cron", "runs", "--json")
    assert [each["status"] for each in json.loads(listed)["runs"]] == ["ran"]


async def test_a_message_that_arrives_while_nobody_types_is_shown_and_another_session_is_spared(
    env: dict[str, str],
) -> None:
    async with Terminal(env, "chat") as terminal, Terminal(env, "chat", "--session-key", "holiday") as other:
        await terminal.sees("/help", "›")
        await other.sees("/help", "›")
        await run(env, "cron", "add", "--at", "in 1 second", "--reminder", "look up")
        await terminal.sees("⏰ look up")
        other.type("/remind list" + ENTER)
        assert "⏰" not in await other.sees("There are no cron jobs or reminders.")


async def test_a_piped_chat_prints_a_reminder_too(env: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "palinurus", "chat",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, **env},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"/remind me in 1 second to stretch\n")
    async with asyncio.timeout(WAIT):
        while b"\xe2\x8f\xb0 stretch" not in await process.stdout.readline():
            pass
        process.stdin.close()
        assert await process.wait() == 0


async def run(env: dict[str, str], *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "palinurus", *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ, **env}
    )
    async with asyncio.timeout(WAIT):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()
