"""What we compose, as reviewed text: the system prompt in its modes, and the body of a whole request.

`UPDATE_GOLDEN=1 pytest tests/golden` rewrites the files beside this one; the change is reviewed in the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from palinurus.context.prompt import ContextSettings, Mode, PromptSettings
from palinurus.providers.wires.openai import OpenAIProvider
from palinurus.testing.fakes import FakeClock
from palinurus.testing.harness import Harness
from palinurus.workspace.seed import seed_workspace
from support.wire import Calls, Says, WireServer

HERE = Path(__file__).parent


def agrees(name: str, text: str) -> None:
    """Compare with the reviewed file, or rewrite it when asked to."""
    file = HERE / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"{name} is missing: UPDATE_GOLDEN=1 pytest tests/golden"
    assert text == file.read_text(encoding="utf-8"), "if this is meant: UPDATE_GOLDEN=1 pytest tests/golden"


@pytest.fixture
def seeded(tmp_path: Path) -> Path:
    """A brand-new workspace, as `pal setup` makes it."""
    root = tmp_path / "workspace"
    seed_workspace(root, git=False)
    return root


def settings(mode: Mode) -> ContextSettings:
    return ContextSettings(PromptSettings(mode=mode, agent_name="Pilot", workspace="/home/alice/workspace"))


def settled(pal: Harness) -> None:
    """As the wiring makes an agent: it knows on what it runs."""
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, runtime="agent=main | os=Linux (x86_64)")


@pytest.mark.parametrize("mode", ["full", "minimal", "none"])
async def test_the_system_prompt_of_a_new_workspace_reads_as_reviewed(seeded: Path, mode: Mode) -> None:
    async with Harness(seeded, context=settings(mode)) as pal:
        settled(pal)
        await pal.hears("hello")
    agrees(f"system-{mode}.txt", pal.model.requests[0].head.system + "\n")


async def test_the_prompt_of_a_subagent_and_of_a_group_read_as_reviewed(seeded: Path) -> None:
    async with Harness(seeded, context=settings("full")) as pal:
        settled(pal)
        await pal.hears("hello", key="agent:main:subagent:1")
        await pal.hears("hello", key="agent:main:telegram:group:1")
    agrees("system-subagent.txt", pal.model.requests[0].head.system + "\n")
    agrees("system-group.txt", pal.model.requests[1].head.system + "\n")


async def test_the_first_prompt_of_a_new_home_is_small(seeded: Path) -> None:
    async with Harness(seeded, context=settings("full")) as pal:
        await pal.hears("hello")
    assert len(pal.model.requests[0].head.system) <= 6_000


async def test_a_whole_request_reads_as_reviewed(workspace: Path) -> None:
    clock = FakeClock()
    async with WireServer(Calls(("ls", {})), Says("Seven files."), Says("Bold.")) as server:
        model = OpenAIProvider("test", server.base_url, None, windows={"*": 32_000}, clock=clock)
        async with Harness(workspace, model=model, context=settings("minimal")) as pal:
            await pal.hears("what is there?")
            (workspace / "SOUL.md").write_text("# Soul\nBold now.\n")
            pal.clock.advance(minutes=5)
            await pal.hears("and how are you?")
        await model.close()
    body = json.loads(server.raw[-1])
    agrees("request.json", json.dumps(body, indent=2, ensure_ascii=False) + "\n")
