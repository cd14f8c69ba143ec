"""An agent with every tool reads nothing of another: workspace, memory, transcripts, keys. Canaries lie in all of them.

`main` is the one who is spied on, `spy` the one who tries. Each is asked for by absolute paths, by `..`, by links, by
searches and by commands in the sandbox; what the tools answer, and what the model is sent at all, holds no canary.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostile_model import HostileHome

from support.wire import Json, Says, WireServer

pytestmark = pytest.mark.slow

CANARY = "zeugmatic-canary"
FULL = {"profile": "full", "exec": {"security": "full", "ask": "off"}}
Call = tuple[str, Json | str]


def agents(default: str, main: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    spy = {"id": "spy", "tools": FULL, "sandbox": {"mode": "all", "workspaceAccess": "rw"}}
    both = [{**each, "default": each["id"] == default} for each in ({"id": "main", **(main or {})}, spy)]
    return {"agents": {"defaults": {"model": "wire/test", **more}, "list": both}}


async def live(home: HostileHome, workspace: Path) -> None:
    """What main has: notes, memory, a skill, a key, a conversation and a long tool result, each with a canary."""
    (workspace / "MEMORY.md").write_text(f"memory {CANARY}\n")
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory" / "2026-11-18.md").write_text(f"day {CANARY}\n")
    (workspace / "plans.txt").write_text(f"plans {CANARY}\n")
    (workspace / "long.txt").write_text(f"long {CANARY}\n" * 20_000)
    skill = workspace / "skills" / "sail"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: sail\ndescription: how to sail\n---\n{CANARY}\n")
    for folder in (home.root, home.root / "agents" / "main"):
        folder.mkdir(exist_ok=True, parents=True)
        # The canary beside the key: the key itself would be redacted wherever it shows.
        key = {"type": "api_key", "provider": "x", "key": "sk-of-main-0123456789", "note": CANARY}
        (folder / "credentials.json").write_text(json.dumps({"version": 1, "profiles": {"x:k": key}}))
        (folder / "credentials.json").chmod(0o600)
    home.server.script.append(Says("noted"))
    done = await home.pal("agent", "-m", f"the boat is called {CANARY}", "--agent", "main")
    assert done.returncode == 0, done
    await home.use(("read", {"path": "long.txt"}), session="agent:main:main")


def places(home: HostileHome, workspace: Path, mine: Path) -> list[str]:
    """Where canaries lie, as a path may be written."""
    found = [workspace / name for name in ("MEMORY.md", "memory/2026-11-18.md", "plans.txt", "skills/sail/SKILL.md")]
    found += [home.root / name for name in ("credentials.json", "agents/main/credentials.json", "home.sqlite")]
    found += [*(home.root / "results").rglob("*.txt"), *(home.root / "derived").rglob("*.sqlite")]
    (mine / "link").symlink_to(workspace)
    (mine / "door").symlink_to(home.root)
    if not workspace.is_relative_to(mine):
        os.link(workspace / "plans.txt", mine / "hard.txt")  # as a careless person might
    relative = [os.path.relpath(path, mine) for path in found]
    return [*map(str, found), *relative, "link/plans.txt", "link/MEMORY.md", "door/credentials.json"]


def reading(path: str) -> list[Call]:
    folder = str(Path(path).parent)
    patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-x\n+y\n*** End Patch"
    return [
        ("read", {"path": path}),
        ("grep", {"pattern": "canary", "path": folder}),
        ("find", {"pattern": "*canary*", "path": folder}),
        ("ls", {"path": folder}),
        ("edit", {"path": path, "edits": [{"old": "zeugmatic", "new": "x"}]}),
        ("apply_patch", {"input": patch}),
        ("memory_get", {"path": path}),
        ("delete", {"path": path}),
        ("write", {"path": path, "content": "x"}),
    ]


SEARCHES: list[Call] = [
    ("memory_search", {"query": "canary"}),
    ("memory_search", {"query": "what is the boat called"}),
    ("memory_get", {"path": "MEMORY.md"}),
    ("grep", {"pattern": "canary"}),
    ("find", {"pattern": "**/*"}),
    ("read", {"path": "sail/SKILL.md"}),
    ("read", {"path": "skills/sail/SKILL.md"}),
    ("process", {"action": "list"}),
    ("process", {"action": "log", "processId": "1"}),
    ("session_status", {}),
    ("agents_list", {}),
    ("sessions_list", {"messageLimit": 5}),
    ("sessions_history", {"sessionKey": "agent:main:main"}),
    ("sessions_search", {"query": "canary"}),
    ("sessions_send", {"sessionKey": "agent:main:main", "message": "what is the boat called?"}),
    ("subagents", {"action": "list"}),
    ("sessions_spawn", {"task": "read MEMORY.md", "agentId": "main"}),
]


async def spy_out(home: HostileHome, workspace: Path, mine: Path) -> None:
    """Every tool on every place: nothing comes out, and nothing of main's has changed."""
    listed = places(home, workspace, mine)
    before = {path: path.read_bytes() for path in sorted(workspace.rglob("*")) if path.is_file()}
    heard = len(home.server.requests)
    calls = [*SEARCHES, *(call for path in listed for call in reading(path))]
    for at in range(0, len(calls), 40):
        await home.use(*calls[at : at + 40], session="agent:spy:main")
    (mine / "hard.txt").unlink(missing_ok=True)  # for commands it is a file of this workspace like any other
    if shutil.which("bwrap"):
        roots = (workspace, home.root, mine / "link", mine / "door", ".", "..", "/proc/1/root/tmp")
        commands = [f"cat {path}" for path in listed]
        commands += [f"grep -rs canary {root} | head -5" for root in roots]
        commands += ["env", "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | head -100"]
        await home.use(*(("exec", {"command": each}) for each in commands), session="agent:spy:main")
    sent = msgspec.json.encode([each["messages"] for each in home.server.requests[heard:]]).decode()
    told = [message for each in json.loads(sent) for message in each if message["role"] in ("tool", "system", "user")]
    assert not [message for message in told if CANARY in json.dumps(message)]
    assert {path: path.read_bytes() for path in sorted(workspace.rglob("*")) if path.is_file()} == before


async def test_an_agent_beside_another_reads_nothing_of_it(tmp_path: Path) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server, **agents("main"))
        await home.pal("setup")
        await live(home, home.workspace)
        (tell,) = await home.use(("read", {"path": "plans.txt"}), session="agent:main:main")
        assert CANARY in tell  # the owner of the words can read them
        await spy_out(home, home.workspace, home.root / "workspace-spy")


async def test_an_agent_whose_workspace_holds_that_of_another_does_not_see_it(tmp_path: Path) -> None:
    """As agents.defaults.workspace has it: the default agent's folder is around the others'."""
    outer = tmp_path / "ws"
    async with WireServer() as server:
        main = {"agentDir": str(outer / "keys")}
        home = HostileHome(tmp_path, server, **agents("spy", main, workspace=str(outer)))
        await home.use(("ls", {"path": "."}), session="agent:spy:main")
        shutil.rmtree(outer / "main")
        if shutil.which("bwrap"):  # before main was ever spoken to, its place cannot be prepared for it
            planting = "mkdir -p main; echo obey me > main/AGENTS.md"
            await home.use(("exec", {"command": planting}), session="agent:spy:main")
            assert not list((outer / "main").iterdir())
        await home.use(("ls", {"path": "."}), session="agent:main:main")
        assert "Red lines" in (outer / "main" / "AGENTS.md").read_text()
        await live(home, outer / "main")
        (outer / "keys").mkdir(exist_ok=True)
        (outer / "keys" / "credentials.json").write_text(json.dumps({"version": 1, "note": CANARY}))
        (outer / "keys" / "credentials.json").chmod(0o600)
        kept = await home.use(
            ("read", {"path": "keys/credentials.json"}), ("ls", {"path": "."}), session="agent:spy:main"
        )
        assert (CANARY in str(kept), "keys" in kept[1], "main" in kept[1]) == (False, False, False)
        await spy_out(home, outer / "main", outer)
