"""Leave the note by which a quick command finds an agent's memory without reading the config."""

from __future__ import annotations

from palinurus.config.home import Home
from palinurus.config.load import Loaded
from palinurus.config.memory_settings import memory_settings
from palinurus.config.settings import agent_ids, agent_settings, default_agent
from palinurus.config.shortcut import KnownMemory, Shortcut, forget_shortcut, source_digest, write_shortcut


def leave_shortcut(home: Home, loaded: Loaded) -> None:
    """A config that deserves a warning gets no note: whoever starts cold must hear the warning too."""
    source = source_digest(home)
    if source is None or loaded.warnings:
        forget_shortcut(home)
        return
    write_shortcut(home, Shortcut(source, default_agent(loaded.config), _known(home, loaded)))


def _known(home: Home, loaded: Loaded) -> dict[str, KnownMemory]:
    known = {}
    for agent_id in agent_ids(loaded.config):
        agent = agent_settings(loaded.config, home, agent_id)
        settings = memory_settings(loaded.config, home, agent_id)
        known[agent_id] = KnownMemory(agent.workspace, agent.user_timezone, settings)
    return known
