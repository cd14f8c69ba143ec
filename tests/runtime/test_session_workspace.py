"""One workspace per session: what tools write, memory finds and the prompt shows, with real walls around commands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunEvent, ToolFinished
from palinurus.domain.keys import SessionKey
from palinurus.operations.runs import converse
from palinurus.operations.status import session_report, show_context
from palinurus.operations.table import LocalCaller
from palinurus.operations.tools import explain_sandbox
from palinurus.runtime.runtime import Runtime
from palinurus.workspace.seed import seed_workspace
from support.wire import Calls, Says, WireServer

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"


class SandboxedHome:
    """A whole house whose model does what a test says."""

    def __init__(self, runtime: Runtime, server: WireServer, workspace: Path) -> None:
        self.runtime = runtime
        self.server = server
        self.workspace = workspace
        self.caller = LocalCaller(runtime.services)
        self._messages = 0

    async def does(self, *calls: tuple[str, dict[str, Any]], key: str = MAIN) -> list[str]:
        """The model makes the calls, one after the other; gives what each of them said."""
        self.server.script += [*(Calls(call) for call in calls), Says("done")]
        self._messages += 1
        heard: list[RunEvent] = []
        await converse(self.caller, Inbound("go on", f"m{self._messages}", session_key=key), heard.append)
        return [event.text for event in heard if isinstance(event, ToolFinished)]

    async def prompt(self, key: str = MAIN) -> str:
        """The system prompt of a session that begins anew."""
        self._messages += 1
        await converse(self.caller, Inbound("/new", f"m{self._messages}", session_key=key), lambda _: None)
        await self.does(key=key)
        return str(self.server.requests[-1]["messages"][0]["content"])

    def folder(self, key: str = MAIN) -> Path:
        return self.runtime.services.toolsets.environment(SessionKey.parse(key)).workspace


@asynccontextmanager
async def sandboxed(tmp_path: Path, agents: tuple[str, ...] = (), **sandbox: Any) -> AsyncIterator[SandboxedHome]:
    async with WireServer() as server:
        root = tmp_path / "home"
        root.mkdir()
        for name in agents or ("workspace",):
            seed_workspace(root / name)
        provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
        defaults: dict[str, Any] = {"model": "mine/test", "sandbox": {"mode": "all", **sandbox}}
        listed = [{"id": name, "workspace": str(root / name)} for name in agents]
        config = {
            "agents": {"defaults": defaults, **({"list": listed} if listed else {})},
            "models": {"providers": {"mine": provider}},
            "tools": {"profile": "full"},
        }
        (root / "palinurus.json").write_text(json.dumps(config))
        env = {"PALINURUS_HOME": str(root), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        runtime = Runtime(find_home(env), env)
        try:
            yield SandboxedHome(runtime, server, root / (agents or ("workspace",))[0])
        finally:
            await runtime.close()


async def test_a_note_is_written_to_the_real_memory_and_found_again(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as home:
        (noted,) = await home.does(("memory_write", {"text": "the bicycle is green"}))
        (found,) = await home.does(("memory_search", {"query": "what colour is the bicycle"}))
        path = noted.split()[2].partition("#")[0]
        got, read = await home.does(("memory_get", {"path": path}), ("read", {"path": path}))
        assert all("bicycle is green" in text for text in (found, got, read))
        assert "bicycle is green" in (home.workspace / path).read_text()
        assert not (home.folder() / path).exists()


async def test_what_the_agent_makes_of_its_files_is_in_its_next_prompt(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as home:
        real = (home.workspace / "IDENTITY.md").read_text()
        await home.does(
            ("write", {"path": "IDENTITY.md", "content": "Name: Pilot of Aster\n"}),
            ("write", {"path": "USER.md", "content": "Lives by the harbour.\n"}),
            ("write", {"path": "MEMORY.md", "content": "The boat needs paint.\n"}),
            ("exec", {"command": "rm BOOTSTRAP.md"}),
        )
        prompt = await home.prompt()
        for words in ("Pilot of Aster", "Lives by the harbour.", "The boat needs paint."):
            assert words in prompt
        assert "## BOOTSTRAP.md" not in prompt
        assert (home.workspace / "IDENTITY.md").read_text() == real
        assert (home.workspace / "BOOTSTRAP.md").exists()
        assert "harbour" in (home.workspace / "USER.md").read_text()
        assert "paint" in (home.workspace / "MEMORY.md").read_text()
        (backup,) = (home.workspace / ".pal" / "backups" / "USER.md").iterdir()
        assert not (home.folder() / ".pal" / "backups" / "USER.md").exists()
        (old,) = await home.does(("read", {"path": f".pal/backups/USER.md/{backup.name}"}))
        assert "USER.md" in old


async def test_commands_work_in_the_folder_that_the_prompt_names_and_do_not_reach_memory(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as home:
        (home.workspace / "MEMORY.md").write_text("the owner likes figs\n")
        told = await home.does(
            ("exec", {"command": "pwd"}),
            ("exec", {"command": "cat MEMORY.md; ls memory"}),
            ("exec", {"command": "echo lost > memory/2026-11-17.md"}),
            ("exec", {"command": "echo lost >> MEMORY.md || echo lost > USER.md"}),
            ("ls", {}),
        )
        assert told[0].strip().startswith(str(home.folder()))
        assert "figs" not in told[1]
        assert all("Read-only" in text or "Permission denied" in text for text in told[2:4])
        assert {"AGENTS.md", "MEMORY.md", "USER.md", "memory/"} <= set(told[4].splitlines())
        prompt = await home.prompt()
        assert f"## Workspace\n{home.folder()}" in prompt
        assert "Only MEMORY.md, USER.md and memory/ are real" in prompt
        assert "no network" in prompt
        assert str(home.workspace) not in prompt


async def test_a_group_in_the_same_folder_gets_nothing_of_memory(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as home:
        (home.workspace / "MEMORY.md").write_text("the owner likes figs\n")
        await home.does(("memory_write", {"text": "figs are in the cellar"}))
        prompt = await home.prompt(GROUP)
        told = await home.does(
            ("read", {"path": "MEMORY.md"}),
            ("ls", {}),
            ("grep", {"pattern": "figs"}),
            ("exec", {"command": "cat MEMORY.md memory/*"}),
            ("memory_write", {"text": "the owner hates figs"}),
            key=GROUP,
        )
        assert "figs" not in prompt
        assert "## MEMORY.md" not in prompt
        assert "private memory" in told[0]
        assert not {"MEMORY.md", "USER.md", "memory/"} & set(told[1].splitlines())
        assert not any("likes figs" in text or "in the cellar" in text for text in told)
        assert home.folder(GROUP) == home.folder()


async def test_no_link_leads_from_memory_to_what_the_sandbox_may_not_write(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as home:
        soul = (home.workspace / "SOUL.md").read_text()
        (home.workspace / "memory" / "soul.md").symlink_to("../SOUL.md")
        told = await home.does(
            ("read", {"path": "memory/soul.md"}),
            ("write", {"path": "memory/soul.md", "content": "obey the web"}),
            ("exec", {"command": "ln -s memory notes"}),
            ("write", {"path": "memory/../SOUL.md", "content": "my own soul"}),
            ("write", {"path": "notes/fig.md", "content": "by a link inside"}),
        )
        assert all("leads out of the workspace" in text for text in told[:2])
        assert (home.workspace / "SOUL.md").read_text() == soul
        assert (home.folder() / "SOUL.md").read_text() == "my own soul"
        assert (home.workspace / "memory" / "fig.md").read_text() == "by a link inside"


async def test_what_the_owner_edits_reaches_a_copy_that_the_session_has_not_made_its_own(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as home:
        await home.does(("write", {"path": "IDENTITY.md", "content": "Name: Pilot\n"}))
        for name in ("IDENTITY.md", "SOUL.md"):
            (home.workspace / name).write_text(f"the owner's new {name}\n")
        (home.workspace / "BOOTSTRAP.md").unlink()
        prompt = await home.prompt()
        assert "the owner's new SOUL.md" in prompt
        assert "Name: Pilot" in prompt
        assert "the owner's new IDENTITY.md" not in prompt
        assert "## BOOTSTRAP.md" not in prompt


async def test_agents_that_share_a_folder_stay_themselves(tmp_path: Path) -> None:
    async with sandboxed(tmp_path, ("one", "two"), scope="shared") as home:
        for name in ("one", "two"):
            (tmp_path / "home" / name / "SOUL.md").write_text(f"I am number {name}\n")
        keys = [f"agent:{name}:main" for name in ("one", "two")]
        prompts = [await home.prompt(key) for key in keys]
        assert ["I am number one" in each for each in prompts] == [True, False]
        assert ["I am number two" in each for each in prompts] == [False, True]
        await home.does(("write", {"path": "plan.md", "content": "common"}), key=keys[0])
        read, refused = await home.does(
            ("read", {"path": "plan.md"}), ("write", {"path": "SOUL.md", "content": "both"}), key=keys[1]
        )
        assert "common" in read
        assert "may only read" in refused


async def test_where_the_workspace_can_only_be_read_notes_are_written_all_the_same(tmp_path: Path) -> None:
    async with sandboxed(tmp_path, workspaceAccess="ro") as home:
        noted, refused = await home.does(
            ("memory_write", {"text": "the bicycle is green"}), ("write", {"path": "plan.md", "content": "none"})
        )
        assert noted.startswith("noted in memory/")
        assert "may only read" in refused
        prompt = await home.prompt()
        assert f"## Workspace\n{home.workspace}" in prompt
        assert "your real one, read-only" in prompt


@pytest.mark.parametrize(
    ("sandbox", "words"),
    [
        ({}, "a copy of your real one"),
        ({"workspaceAccess": "ro"}, "your real one, read-only"),
        ({"workspaceAccess": "rw", "network": True}, "programs, network. The workspace is your real one, read-write"),
        ({"mode": "off"}, "None: commands run on the machine itself"),
    ],
)
async def test_prompt_status_context_and_explanation_say_the_same(
    tmp_path: Path, sandbox: dict[str, Any], words: str
) -> None:
    async with sandboxed(tmp_path, **sandbox) as home:
        assert words in await home.prompt()
        place = home.runtime.services.toolsets.environment(SessionKey.parse(MAIN))
        context = await home.caller.call(show_context, show_context.params())
        assert context.workspace.startswith(f"{place.workspace}, ")
        explained = await home.caller.call(explain_sandbox, explain_sandbox.params())
        if place.sandboxed == "no":
            assert explained.runs == "host"
            return
        assert explained.seen[0].path == str(place.workspace)
        assert explained.seen[0].writable is place.writable
        status = await session_report(home.runtime.services, SessionKey.parse(MAIN))
        copied = "a copy of the agent's, memory the real one"
        shown = {"none": copied, "ro": "read-only", "rw": "read-write"}[place.access]
        assert f"workspace {shown}, {'with' if place.network else 'no'} network" in status


async def test_a_hard_link_to_something_outside_is_neither_read_nor_written_nor_found(tmp_path: Path) -> None:
    async with sandboxed(tmp_path, mode="off") as home:
        secret = tmp_path / "key.md"
        secret.write_text("the zeppelin's key\n")
        for name in ("plan.md", "memory/plan.md"):
            os.link(secret, home.workspace / name)
        told = await home.does(
            ("read", {"path": "plan.md"}),
            ("edit", {"path": "plan.md", "old": "key", "new": "door"}),
            ("write", {"path": "plan.md", "content": "mine"}),
            ("memory_get", {"path": "memory/plan.md"}),
            ("grep", {"pattern": "zeppelin"}),
            ("memory_search", {"query": "zeppelin"}),
        )
        assert all("has another name outside the workspace (a hard link)" in text for text in told[:4])
        assert not any("the zeppelin's key" in text for text in told)
        assert not list(home.workspace.glob(".pal/**/*.md"))
        assert secret.read_text() == "the zeppelin's key\n"
