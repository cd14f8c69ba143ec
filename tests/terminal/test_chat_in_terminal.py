"""`pal chat` in a real pseudo-terminal, against a model server on loopback."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pseudo_terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_L, ENTER, ESCAPE, TAB, UP, Terminal, pasted

from support.wire import Behaviour, Calls, Hangs, Json, Says, WireServer

pytestmark = pytest.mark.slow
DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
MARKDOWN = "## Tides\n\n| Day | High |\n|---|---:|\n| Wed | 6.4 m |\n\n```py\nkeel = 1.8\n```\n\nThat is **all**."


def words(body: Json) -> str:
    """What the person said, without the line that tells the model the time."""
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    return text.partition("\n")[2].strip()


def model(body: Json) -> Behaviour:
    said = words(body)
    if body["messages"][-1]["role"] == "tool":
        refused = "the owner said no" in str(body["messages"][-1]["content"])
        return Says("I leave it alone." if refused else "It is called Aster.")
    if "clean" in said:
        return Calls(("exec", {"command": "rm -rf build", "elevated": True}))
    if "tool" in said:
        return Calls(("read", {"path": "MEMORY.md"}))
    if "hang" in said:
        return Hangs("I begin and ")
    if "tides" in said:
        return Says(MARKDOWN, chunks=20, delay=0.005)
    return Says(f"I heard: {said.replace(chr(10), ' / ')}")


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=model) as running:
        yield running


@pytest.fixture
def env(tmp_path: Path, workspace: Path, server: WireServer) -> dict[str, str]:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    offered = {"id": "test", "contextWindow": 32000, "cost": {"input": 1000, "output": 0}}
    config = {
        "agents": {"defaults": {"model": "mine/test", "workspace": str(workspace)}},
        "models": {"providers": {"mine": {"baseUrl": server.base_url, "models": [offered]}}},
    }
    (root / "palinurus.json").write_text(json.dumps(config))
    return {"PALINURUS_HOME": str(root), "HOME": str(tmp_path)}


async def test_markdown_is_shown_as_it_arrives_and_finished_lines_are_not_drawn_again(env: dict[str, str]) -> None:
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("mine/test", "/help", "›")
        terminal.type("tell me about tides" + ENTER)
        shown = await terminal.sees("That is all.", "25 of 32k tokens")
        assert "Wed │ 6.4 m" in shown
        assert "##" not in shown
        assert "**" not in shown
        assert shown.count("› tell me about tides") <= 2  # as it was typed, and as it was said
        assert shown.count("keel = 1.8") <= 2  # while it was written, and for good
        terminal.type(CTRL_L)  # draws all again: before, only those signs of the line that had changed may be drawn
        await terminal.sees("25 of 32k tokens · $0.02")
        terminal.type(CTRL_D)
        assert await terminal.ends() == 0


async def test_a_tool_call_is_one_line_and_the_reply_goes_on_below(env: dict[str, str]) -> None:
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("use a tool" + ENTER)
        shown = await terminal.sees("· read MEMORY.md 0.0 s", "It is called Aster.")
        assert shown.index("· read MEMORY.md 0.0 s") < shown.index("It is called Aster.")
        assert "The boat is called" not in shown


async def test_a_command_outside_the_sandbox_shows_its_exact_plan_and_a_no_is_obeyed(
    env: dict[str, str], workspace: Path
) -> None:
    (workspace / "build").mkdir()
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("clean up" + ENTER)
        shown = await terminal.sees("command   rm -rf build", "y allow once", "waits for you")
        assert "outside the sandbox" in shown
        assert "folder" in shown
        terminal.type("n" + ENTER)
        await terminal.sees("denied by owner", "I leave it alone.")
        terminal.type(CTRL_D)
        assert await terminal.ends() == 0
    assert (workspace / "build").is_dir()
    assert verified(env)["ok"] is True
    flip_a_byte_of_the_log(Path(env["PALINURUS_HOME"]) / "home.sqlite")
    assert verified(env)["ok"] is False


def verified(env: dict[str, str]) -> dict[str, Any]:
    verify = [sys.executable, "-m", "palinurus", "audit", "verify", "--json"]
    told = subprocess.run(verify, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False)
    report: dict[str, Any] = json.loads(told.stdout)
    assert told.returncode == (0 if report["ok"] else 1)
    return report


def flip_a_byte_of_the_log(file: Path) -> None:
    """In the file itself, as a careless hand or a bad disk would: one bit of what was decided."""
    data = file.read_bytes()
    at = data.index(b"rm -rf build is not on the allowlist")
    while at >= 0:  # wherever it stands: in the log, and in the table of approvals, which the chain does not cover
        data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        at = data.find(b"rm -rf build is not on the allowlist")
    file.write_bytes(data)


async def test_always_is_given_only_after_the_person_heard_what_stands_out(
    env: dict[str, str], workspace: Path
) -> None:
    (workspace / "build").mkdir()
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("clean up" + ENTER)
        await terminal.sees("y allow once")
        terminal.type("n" + ENTER)
        await terminal.sees("I leave it alone.")
        terminal.type("clean up" + ENTER)
        await terminal.sees("waits for you")
        terminal.type("a" + ENTER)
        await terminal.sees("would have allowed 1 of 1 past commands", "removes files", "say it again")
        assert (workspace / "build").is_dir()
        terminal.type("a" + ENTER)
        await terminal.sees("allowed always by owner", "It is called Aster.")
    assert not (workspace / "build").exists()


async def test_a_yes_runs_exactly_what_was_shown(env: dict[str, str], workspace: Path) -> None:
    (workspace / "build").mkdir()
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("clean up" + ENTER)
        await terminal.sees("y allow once")
        terminal.type("y" + ENTER)
        await terminal.sees("allowed once by owner", "It is called Aster.")
    assert not (workspace / "build").exists()


@pytest.mark.parametrize("keys", [CTRL_C, ESCAPE + ESCAPE, "/stop" + ENTER], ids=["Ctrl-C", "Esc Esc", "/stop"])
async def test_a_run_is_stopped_and_the_program_goes_on(env: dict[str, str], server: WireServer, keys: str) -> None:
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("hang please" + ENTER)
        await terminal.sees("I begin", "running")
        terminal.type(keys)
        await terminal.sees("stopped by the user")
        await server.until(lambda wire: wire.departed == 1)
        terminal.type("hello" + ENTER)
        await terminal.sees("I heard: hello")


async def test_a_message_typed_while_a_run_goes_on_is_taken_at_once(env: dict[str, str], server: WireServer) -> None:
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("hang please" + ENTER)
        await terminal.sees("I begin")
        terminal.type("and this" + ENTER)
        await terminal.sees("› and this", "1 waiting")
        terminal.type(CTRL_C)
        await terminal.sees("stopped by the user")


async def test_several_lines_are_one_message_pasted_or_typed(env: dict[str, str], server: WireServer) -> None:
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type(pasted("one\ntwo\r\nthree"))
        await terminal.sees("three")
        terminal.type(ENTER)
        await terminal.sees("I heard: one / two / three")
        terminal.type("four\\" + ENTER + "five" + ALT_ENTER + "six" + ENTER)
        await terminal.sees("I heard: four / five / six")


async def test_a_picture_is_sent_and_a_file_from_elsewhere_is_not(
    env: dict[str, str], server: WireServer, workspace: Path
) -> None:
    (workspace / "dot.png").write_bytes(DOT)
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("look at @dot.png" + ENTER)
        await terminal.sees("+ dot.png", "I heard: look at dot.png")
        terminal.type("read @/etc/hostname" + ENTER)
        await terminal.sees("outside the workspace", "› read @/etc/hostname")  # given back, to be mended
    (body,) = server.requests
    kinds = [part["type"] for part in body["messages"][-1]["content"]]
    assert kinds.count("image_url") == 1


async def test_another_conversation_is_taken_up_with_what_was_said_there(env: dict[str, str]) -> None:
    said = [sys.executable, "-m", "palinurus", "agent", "-m", "about the holiday", "--session-key", "holiday"]
    async with Terminal(env, *said[3:]) as once:
        assert await once.ends() == 0
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("/resume" + ENTER)
        await terminal.sees("agent:main:explicit:holiday", "/resume NUMBER")
        terminal.type("/resume holi" + TAB + ENTER + ENTER)
        await terminal.sees("── agent:main:explicit:holiday", "› about the holiday", "I heard: about the holiday")
        terminal.type("more of it" + ENTER)
        await terminal.sees("I heard: more of it", "· main:explicit:holiday")
        terminal.type("/resume nowhere" + ENTER)
        await terminal.sees("there is no session 'nowhere'")


async def test_what_was_typed_comes_back_the_next_day(env: dict[str, str]) -> None:
    for typed in ("good morning", UP):
        async with Terminal(env, "chat") as terminal:
            await terminal.sees("of 32k tokens")
            terminal.type(typed + ENTER)
            await terminal.sees("› good morning", "I heard: good morning")
            terminal.type(CTRL_D)
            assert await terminal.ends() == 0
    kept = Path(env["PALINURUS_HOME"]) / "chat-history.jsonl"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text() == '"good morning"\n'


async def test_two_terminals_share_a_home_and_the_second_goes_on_when_the_first_leaves(env: dict[str, str]) -> None:
    async with Terminal(env, "chat") as first, Terminal(env, "chat") as second:
        await first.sees("of 32k tokens")
        await second.sees("of 32k tokens")
        second.type("hello" + ENTER)
        await second.sees("I heard: hello")
        first.type(CTRL_D)
        assert await first.ends() == 0
        second.type("still there?" + ENTER)
        await second.sees("I heard: still there?")


async def test_a_newcomer_is_told_of_onboarding_in_one_line(tmp_path: Path) -> None:
    env = {"PALINURUS_HOME": str(tmp_path / "new"), "HOME": str(tmp_path)}
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("embedded/scout", "`pal onboard` sets up a model")
        terminal.type("/quit" + ENTER)
        assert await terminal.ends() == 0


def test_neither_one_message_nor_line_mode_loads_the_terminal(tmp_path: Path) -> None:
    for words_, stdin in ((["agent", "-m", "hi"], ""), (["chat"], "hi\n")):
        code = (
            f"import sys; sys.argv = ['pal', *{words_!r}]\nfrom palinurus.cli.shell import run\n"
            "try: run()\nexcept SystemExit: pass\n"
            "print([name for name in ('prompt_toolkit', 'rich', 'pygments', 'PIL', 'wcwidth') if name in sys.modules])"
        )
        env = {"PALINURUS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, input=stdin, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"


async def test_slash_agent_lists_the_agents_and_goes_on_with_another_one(env: dict[str, str], workspace: Path) -> None:
    path = Path(env["PALINURUS_HOME"]) / "palinurus.json"
    config = json.loads(path.read_text())
    config["agents"]["list"] = [
        {"id": "main", "default": True},
        {"id": "work", "name": "Ada", "workspace": "workspace-work"},
    ]
    path.write_text(json.dumps(config))
    subprocess.run([sys.executable, "-m", "palinurus", "setup"], env={**os.environ, **env}, check=True, timeout=60)
    (workspace.parent / "home" / "workspace-work" / "logbook.md").write_text("x")
    async with Terminal(env, "chat") as terminal:
        await terminal.sees("of 32k tokens")
        terminal.type("/agent" + ENTER)
        await terminal.sees("main", "the default", "← here", "work", "Ada", "/agent ID changes")
        terminal.type("/agent wrok" + ENTER)
        await terminal.sees("did you mean work?")
        terminal.type(CTRL_C)
        terminal.type("/agent work" + ENTER)
        await terminal.sees("— Ada · agent:work:main")
        terminal.type("hello" + ENTER)
        await terminal.sees("I heard: hello", "· work:main")
        terminal.type("@logb" + TAB)
        await terminal.sees("@logbook.md")
        terminal.type(CTRL_C + CTRL_D)
        assert await terminal.ends() == 0
    listed = subprocess.run(
        [sys.executable, "-m", "palinurus", "sessions", "list", "--agent", "work", "--json"],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert [each["key"] for each in json.loads(listed.stdout)["sessions"]] == ["agent:work:main"]
