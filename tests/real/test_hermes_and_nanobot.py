"""Hermes and nanobot, the real ones: what was said to them comes here, and what is said later follows."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.behaviours import Behaviour, Json, Says
from support.compatibility import PEERS, require
from support.wire import WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))
from homes import PalHome, parrot

PLACE = PEERS / "agents"
SECONDS = 240.0  # Hermes takes ten; the machine may be busy

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class OtherAgent:
    """The command of another agent, whose home is below `home`."""

    home: Path
    command: tuple[str, ...]
    env: dict[str, str]

    async def says(self, words: str, *more: str) -> str:
        env = {"HOME": str(self.home), "PATH": os.defpath, "TERM": "dumb", **self.env}
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self.command,
            words,
            *more,
            cwd=self.home,
            env=env,
            stdin=null,
            stdout=pipe,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, out.decode()
        return out.decode()


@pytest.fixture(autouse=True)
def _installed() -> None:
    require("agents")


def answer(body: Json) -> Behaviour:
    """Hermes asks other things of a model's server too."""
    return parrot(body) if body.get("messages") else Says("{}")


def program(package: str, name: str) -> str:
    return str(PLACE / package / "bin" / name)


def hermes(home: Path, url: str) -> OtherAgent:
    folder = home / ".hermes"
    (folder / "memories").mkdir(parents=True)
    model = {"default": "test", "provider": "custom", "base_url": url, "api_key": "none"}
    (folder / "config.yaml").write_text(json.dumps({"model": model, "security": {"tirith_enabled": False}}))
    (folder / "memories" / "MEMORY.md").write_text("The boat is green.\n")
    (folder / "memories" / "MEMORY.md.lock").touch()
    return OtherAgent(home, (program("hermes-agent", "hermes"), "chat", "-q"), {"HERMES_HOME": str(folder)})


def nanobot(home: Path, url: str) -> OtherAgent:
    folder = home / ".nanobot"
    (folder / "workspace" / "memory").mkdir(parents=True)
    config = {
        "agents": {"defaults": {"model": "test", "provider": "custom"}},
        "providers": {"custom": {"apiKey": "none", "apiBase": url}},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "workspace" / "memory" / "MEMORY.md").write_text("The boat is green.\n")
    return OtherAgent(home, (program("nanobot-ai", "nanobot"), "agent", "-m"), {})


async def migrated(home: PalHome, kind: str, folder: Path) -> tuple[str, str, list[tuple[str, str]]]:
    """Outcome and key of the one session, and what was said in it."""
    report = json.loads((await home.pal("migrate", kind, str(folder), "--apply", "--json")).out)
    (session,) = report["sessions"]
    lines = map(json.loads, (await home.pal("sessions", "export", session["into"])).out.splitlines())
    texts = [(line["role"], text_of(line["content"])) for line in lines if line.get("role") in ("user", "assistant")]
    return session["outcome"], session["key"], texts


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


@pytest.mark.shows("Hermes", "its sessions in state.db and its memory come here, and what is said there later follows")
@pytest.mark.shows("nanobot", "its sessions and its memory come here, and what is said there later follows")
@pytest.mark.parametrize("kind", ["hermes", "nanobot"])
async def test_a_conversation_comes_here_and_what_follows_there_too(tmp_path: Path, kind: str) -> None:
    async with WireServer(otherwise=answer) as wire:
        (tmp_path / "theirs").mkdir()
        make = {"hermes": hermes, "nanobot": nanobot}[kind]
        agent = make(tmp_path / "theirs", wire.base_url)
        assert "the harbour is Aster" in await agent.says("the harbour is Aster")
        home = PalHome(tmp_path / "home")
        home.set_up(wire.base_url)
        outcome, key, first = await migrated(home, kind, agent.home / f".{kind}")
        assert (outcome, [role for role, _ in first]) == ("new", ["user", "assistant"])
        assert "the harbour is Aster" in first[0][1]
        assert "The boat is green." in (home.workspace / "MEMORY.md").read_text()
        assert list(home.root.rglob("*.lock")) == []
        if kind == "nanobot":
            assert key.endswith("nanobot-cli-direct")
        await agent.says("and we sail at ten", *(("--continue",) if kind == "hermes" else ()))
        outcome, _, grown = await migrated(home, kind, agent.home / f".{kind}")
        assert (outcome, grown[: len(first)]) == ("grown", first)
        assert "and we sail at ten" in grown[len(first)][1]
