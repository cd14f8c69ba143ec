"""What an agent's own entry says holds for that agent and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.config.agents import agent_settings
from palinurus.config.home import Home
from palinurus.config.load import load_text
from palinurus.extensions.schedule.heartbeat_settings import runs_heartbeat
from palinurus.memory.settings import memory_settings
from palinurus.runtime.policy import policy_of
from palinurus.skills.settings import skills_settings
from palinurus.tools.settings import tool_settings

OWN = """
    model: {primary: "openai/one", fallbacks: ["openai/two"]}, thinkingDefault: "high", skills: ["read-pdf"],
    identity: {name: "Ada", emoji: "o", creature: "owl", vibe: "calm", theme: "dry", avatar: "me.png"},
    sandbox: {mode: "all", scope: "session", workspaceAccess: "ro"}, tools: {profile: "minimal", deny: ["exec"]},
    memory: {search: {enabled: false}}, heartbeat: {every: "5m"},
"""


@pytest.mark.parametrize(
    "agents",
    [f"list: [{{id: 'main'}}, {{id: 'work', {OWN}}}]", f"entries: {{main: {{}}, work: {{{OWN}}}}}"],
    ids=["list", "entries"],
)
def test_every_field_of_an_entry_acts_for_its_agent_alone(tmp_path: Path, agents: str) -> None:
    home = Home(tmp_path, tmp_path / "palinurus.json", user_home=tmp_path)
    loaded = load_text(home, {}, f"{{agents: {{{agents}}}}}", thorough=True)
    config = loaded.config
    work, main = (agent_settings(config, home, agent) for agent in ("work", "main"))
    assert (work.model, work.fallbacks, work.thinking_default) == ("openai/one", ("openai/two",), "high")
    assert (main.model, main.fallbacks, main.thinking_default) == ("", (), "")
    assert (work.name, work.identity.vibe, main.identity.name) == ("Ada", "calm", "")
    assert (work.workspace, main.workspace) == (tmp_path / "workspace-work", tmp_path / "workspace")
    walls, open_walls = (tool_settings(config, home, agent).sandbox for agent in ("work", "main"))
    assert (walls.mode, walls.scope, walls.access) == ("all", "session", "ro")
    assert (open_walls.mode, open_walls.access) == ("auto", "rw")
    assert policy_of(config, "work") != policy_of(config, "main")
    assert [skills_settings(loaded, home, agent).allow for agent in ("work", "main")] == [("read-pdf",), None]
    assert [memory_settings(config, home, agent).enabled for agent in ("work", "main")] == [False, True]
    assert [runs_heartbeat(config, agent) for agent in ("work", "main")] == [True, False]
    assert loaded.unused == ()
    assert loaded.warnings == ()
