"""Whether the sandbox that the config requires works on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from palinurus.config.agents import agent_ids
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.runtime.checks.check import Check, bad, ok, warning
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.docker import DockerSandbox
from palinurus.sandbox.folders import find_misplaced_notes
from palinurus.sandbox.settings import SandboxSettings
from palinurus.tools.settings import tool_settings


async def check_sandbox(home: Home, loaded: LoadedConfig) -> AsyncIterator[Check]:
    """One line for each backend that some agent uses."""
    wanted: dict[str, list[SandboxSettings]] = {}
    roots: dict[Path, None] = {}
    for agent_id in agent_ids(loaded.config):
        settings = tool_settings(loaded.config, home, agent_id).sandbox
        roots[settings.root] = None
        if settings.mode != "off":
            wanted.setdefault(settings.backend, []).append(settings)
    if not wanted:
        yield ok("sandbox", "switched off: commands run on the host, as tools.exec allows")
    for backend, those in wanted.items():
        places = home.root, home.user_home
        docker = backend == "docker"
        checked = await (DockerSandbox(those[0].docker, *places) if docker else BubblewrapSandbox(*places)).check()
        if checked.works:
            yield ok("sandbox", f"{backend} works; `pal sandbox test` checks the isolation")
        elif any(each.mode != "auto" for each in those):
            yield bad("sandbox", f"{backend} is required, so no command runs there: {checked.why}")
        else:
            yield warning("sandbox", f"none, so commands need approval: {checked.why}")
    for folder in (folder for root in roots for folder in find_misplaced_notes(root)):
        what = "notes that an older version wrote into a sandbox, where no search finds them"
        yield warning("sandbox", what, folder, "move what should be remembered to memory/ of the agent's workspace")
