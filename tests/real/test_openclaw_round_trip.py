"""A home of OpenClaw comes here, goes on, goes back to a real OpenClaw of each era, goes on there, and comes again."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.wire import WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
from homes import PalHome, parrot

PEERS = Path(__file__).parents[2] / ".peers"
NODE = PEERS / "openclaw" / "node" / "bin" / "node"
NEWEST = "2026.9.6"
SECONDS = 240.0  # a command takes ten; the machine may be busy
T = "2026-11-15T09:00:00.000Z"
MAIN, BORN = "agent:main:main", "agent:main:born"
APPROVALS = {"version": 1, "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/wc", "id": "one"}]}}}

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class OpenClaw:
    """One release of the command, in a state directory."""

    version: str
    folder: Path

    @property
    def place(self) -> Path:
        return PEERS / ("openclaw" if self.version == NEWEST else f"openclaw-{self.version}")

    async def __call__(self, *words: str) -> str:
        env = {"HOME": str(self.folder.parent), "OPENCLAW_STATE_DIR": str(self.folder), "PATH": os.defpath}
        command = (str(NODE), str(self.place / "node_modules" / "openclaw" / "openclaw.mjs"), *words)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
        try:
            out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, out.decode()
        return out.decode()

    def approved(self) -> list[str]:
        """The patterns of commands that may always run, wherever this release keeps them."""
        file = self.folder / "exec-approvals.json"
        text = file.read_text() if file.exists() else ""
        if self.version == NEWEST:
            with closing(sqlite3.connect(self.folder / "state" / "openclaw.sqlite")) as database:
                text = database.execute("SELECT raw_json FROM exec_approvals_config").fetchone()[0]
        return [each["pattern"] for each in json.loads(text)["agents"]["main"]["allowlist"]]


def write_home(root: Path) -> None:
    """What OpenClaw had before: one session that began there, and a command that is always allowed."""

    def message(entry_id: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
        said = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1_794_733_200_000}
        more = {"api": "x", "provider": "x", "model": "x", "stopReason": "stop"} if role == "assistant" else {}
        return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": T, "message": said | more}

    lines = [
        {"type": "session", "version": 3, "id": "first", "timestamp": T, "cwd": "/home/sam/.openclaw/workspace"},
        message("aaaaaaaa", None, "user", "the harbour is Aster"),
        message("bbbbbbbb", "aaaaaaaa", "assistant", "Aster, I see."),
    ]
    folder = root / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    (folder / "first.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = {"sessionId": "first", "updatedAt": 1_794_733_200_000, "status": "done", "endedAt": 1_794_733_200_000}
    (folder / "sessions.json").write_text(json.dumps({MAIN: row}))
    (root / "openclaw.json").write_text('{"agents": {"list": [{"id": "main", "default": true}]}}')
    (root / "exec-approvals.json").write_text(json.dumps(APPROVALS))


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """What was said in a request or a transcript, without the time and the notes that a program adds to it."""
    found = []
    for each in messages:
        content = each["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        text = " ".join(block["text"] for block in blocks if block["type"] == "text")
        role = {"toolResult": "tool"}.get(each["role"], each["role"])
        found.append(f"{role}: {text.splitlines()[0].rpartition('] ')[2] if text else ''}")
    return found


async def transcript(home: PalHome, key: str) -> list[str]:
    lines = map(json.loads, (await home.pal("sessions", "export", key)).out.splitlines())
    return texts([line["message"] for line in lines if line["type"] == "message"])


async def migrate(home: PalHome, root: Path) -> dict[str, tuple[str, bool, str]]:
    """Outcome, whether it is archived, and the note of each session by its key."""
    ended = await home.pal("migrate", "openclaw", str(root), "--apply", "--json")
    sessions = json.loads(ended.out)["sessions"]
    found = {each["key"]: (each["outcome"], each["archived"], each["note"]) for each in sessions}
    assert len(found) == len(sessions), sessions
    return found


@pytest.mark.shows("OpenClaw", "a home comes, goes back and comes again, with a run in each")
@pytest.mark.parametrize("version", ["2026.2.26", "2026.6.11", NEWEST])
async def test_a_run_in_each_home_is_in_both_and_nothing_is_doubled(
    tmp_path: Path, version: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("version", version)
    there = OpenClaw(version, tmp_path / "there" / ".openclaw")
    if not (there.place / ".installed").exists():
        missing = f"OpenClaw {version} is not installed: `make test-real` does it where npm can be reached"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    there.folder.parent.mkdir()
    write_home(tmp_path / "theirs")
    async with WireServer(otherwise=parrot) as wire:
        home = PalHome(tmp_path / "home")
        home.set_up(wire.base_url)
        assert await migrate(home, tmp_path / "theirs") == {MAIN: ("new", False, "")}
        for words in (("look around",), ("born here", "--session-key", BORN)):
            assert (await home.pal("agent", "-m", *words)).code == 0
        before = {key: await transcript(home, key) for key in (MAIN, BORN)}
        assert (await home.pal("export", str(there.folder))).code == 0
        await there("doctor", "--fix", "--non-interactive")
        assert there.approved() == ["/usr/bin/wc"]
        asked = len(wire.requests)
        sessions = {MAIN: "first"}
        if version != "2026.2.26":  # which takes no key on the command line
            sessions[BORN] = BORN
        for key in sessions:
            which = ("--agent", "main") if key == MAIN else ("--session-key", key)
            await there("agent", "--local", *which, "--message", "and there")
        runs = [texts(request["messages"]) for request in wire.requests[asked:]]
        for key, run in zip(sessions, runs, strict=True):
            # Its model reads all that was said here, except results of a tool that it does not have: `ls`.
            assert [said for said in before[key] if said not in run] == ["tool: .git/"][
                : version != NEWEST and key == MAIN
            ]
        expected = {key: ("grown" if key in sessions else "same", False, "") for key in before}
        assert await migrate(home, there.folder) == expected
        for key, said in before.items():
            now = await transcript(home, key)
            assert now[: len(said)] == said
            assert [each.partition(":")[0] for each in now[len(said) :]] == ["user", "assistant"] * (key in sessions)
        assert await migrate(home, there.folder) == dict.fromkeys(before, ("same", False, ""))
        assert (await home.pal("agent", "-m", "and here again")).code == 0
        assert "and there" in str(wire.requests[-1]["messages"])
        assert await migrate(home, there.folder) == dict.fromkeys(before, ("same", False, ""))
