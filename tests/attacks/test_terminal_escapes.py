"""On a terminal, words of models, servers and others are text: none sets the clipboard, a title or another line."""

from __future__ import annotations

import asyncio
import os
import pty
from pathlib import Path

import pytest
from hostile_model import PAL, PATIENCE, HostileHome

from palinurus.cli.shell import harmless
from support.wire import Answers, Says, WireServer

pytestmark = pytest.mark.slow

EVIL = "\x1b]52;c;ZXZpbA==\x07 \x1b[2J \x9b2J \u202etxt.exe"
OBEYED = ("\x1b]52", "\x07", "\x1b[2J", "\x9b", "\u202e")


async def on_a_terminal(home: HostileHome, *arguments: str) -> str:
    """What one command writes to the terminal that it is started in."""
    outer, inner = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        PAL, *arguments, env=home.env | {"TERM": "xterm-256color"}, cwd=home.root.parent, stdin=inner, stdout=inner,
        stderr=inner, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    reading = asyncio.create_task(asyncio.to_thread(_all_of, outer))
    try:
        await asyncio.wait_for(process.wait(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return (await asyncio.wait_for(reading, PATIENCE)).decode(errors="replace")


def _all_of(terminal: int) -> bytes:
    said = b""
    try:
        while piece := os.read(terminal, 65536):
            said += piece
    except OSError:  # nobody has the other end any more
        pass
    os.close(terminal)
    return said


async def test_what_others_said_moves_nothing_on_a_terminal(tmp_path: Path) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        await home.pal("setup")
        server.script.extend([Says(f"reply {EVIL}"), *[Answers(400, {"error": {"message": f"boom {EVIL}"}})] * 3])
        shown = {"reply": await on_a_terminal(home, "agent", "-m", f"hi {EVIL}", "--session-key", "trip")}
        shown["error"] = await on_a_terminal(home, "agent", "-m", "again", "--session-key", "trip")
        for command in (
            ("sessions", "show", "trip"),
            ("sessions", "search", "reply"),
            ("sessions", "export", "agent:main:explicit:trip", "--format", "markdown"),
            ("logs",),
        ):
            shown[" ".join(command)] = await on_a_terminal(home, *command)
        piped = await home.pal("sessions", "export", "agent:main:explicit:trip", "--format", "markdown")
    assert "reply \\x1b]52;c;ZXZpbA==\\x07" in shown["reply"]
    assert "boom" in shown["error"]
    assert not {what: said for what, said in shown.items() if any(sign in said for sign in OBEYED)}
    assert EVIL in piped.stdout, "a file or another program gets the words as they are"


def test_our_own_styles_and_every_script_stay() -> None:
    plain = "\x1b[2mdim\x1b[0m \x1b[1;31mred\x1b[0m\tשלום 👨‍👩‍👧 नमस्ते\n"
    assert harmless(plain) == plain
    assert harmless("\x1b[8mhidden") == "\\x1b[8mhidden"


async def test_bytes_that_are_no_text_and_a_closed_output_are_no_traceback(tmp_path: Path) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        for arguments in (("agent", "-m", os.fsdecode(b"\xff")), ("sessions", "show", os.fsdecode(b"\xff"))):
            done = await home.pal(*arguments)
            assert "Traceback" not in done.stderr, done
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", f"{PAL} status >&-", env=home.env, stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(shell.communicate(), PATIENCE)
    assert b"Traceback" not in said
