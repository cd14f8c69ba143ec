"""From a config to servers: secrets resolved, what is disabled left out, what did not change kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palinurus.config.agents import AgentSettings
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, load_config
from palinurus.extensions.mcp.servers import McpSource
from palinurus.extensions.mcp.settings import server_settings
from palinurus.runtime.tool_sources import SourceContext
from palinurus.testing.fakes import FakeClock

ENV = {"TOKEN": "s3cret-token"}


def load(home: Home, servers: dict[str, Any]) -> LoadedConfig:
    home.config_path.write_text(json.dumps({"mcp": {"servers": servers}}))
    return load_config(home, ENV)


def test_servers_get_their_secrets_and_the_workspace_of_the_agent(home: Home, workspace: Path) -> None:
    far = {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "${TOKEN}"}, "timeoutSeconds": 5}
    near = {"command": "near", "args": ["-x"], "env": {"KEY": "${TOKEN}", "GONE": "${NO_SUCH}"}}
    loaded = load(home, {"far": far, "near": near, "off": {"command": "off", "enabled": False}})
    (one, two), told = server_settings(loaded, home, AgentSettings("main", workspace))
    assert (one.name, one.url, one.headers, one.timeout_seconds) == (
        "far", "http://127.0.0.1:1/mcp", {"Authorization": "s3cret-token"}, 5,
    )  # fmt: skip
    assert (two.command, two.args, two.env, two.cwd) == ("near", ("-x",), {"KEY": "s3cret-token"}, str(workspace))
    assert told == ()


def test_a_secret_that_cannot_be_read_costs_its_server_only(home: Home, workspace: Path) -> None:
    vault = {"source": "exec", "provider": "vault", "id": "x"}
    loaded = load(home, {"bad": {"command": "bad", "env": {"KEY": vault}}, "good": {"command": "good"}})
    found, (line,) = server_settings(loaded, home, AgentSettings("main", workspace))
    assert [server.name for server in found] == ["good"]
    assert line.startswith("mcp: bad is left out:")


async def test_servers_outlive_a_config_that_leaves_them_as_they_are(
    home: Home, workspace: Path, clock: FakeClock
) -> None:
    loaded = load(home, {"a": {"command": "a"}})
    source = McpSource(SourceContext(home, clock, lambda text: text, lambda: loaded))
    first = source.of("main")
    assert source.of("main") is first
    loaded = load(home, {"a": {"command": "a"}})
    assert source.of("main") is first
    loaded = load(home, {"a": {"command": "b"}})
    assert source.of("main") is not first
    await source.close()
