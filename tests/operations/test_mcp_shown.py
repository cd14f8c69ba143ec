"""What a door is told about MCP servers, and what it can have tried."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.domain.errors import NotFound
from palinurus.extensions.mcp.servers import McpServers, check_mcp_server, list_mcp_servers
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.operations.table import LocalCaller
from palinurus.testing.harness import Harness

PLAIN = Path(__file__).parent.parent / "tools" / "mcp" / "plain_server.py"


class Source(Struct, frozen=True):
    """In place of McpSource, which makes servers of the config."""

    servers: McpServers

    def of(self, agent_id: str) -> McpServers:
        return self.servers


async def test_servers_are_shown_before_and_after_they_were_tried(pal: Harness, home: Home, tmp_path: Path) -> None:
    settings = ServerSettings("plain", sys.executable, (str(PLAIN),), cwd=str(tmp_path))
    servers = McpServers((settings,), tmp_path / "listings", pal.clock)
    caller = LocalCaller(pal.services(home).replace(get=lambda _: Source(servers)))
    (before,) = (await caller.call(list_mcp_servers, list_mcp_servers.params())).servers
    assert (before.state, before.tools, before.listed_at) == ("unknown", (), 0)
    tested = await caller.call(check_mcp_server, check_mcp_server.params("plain"))
    assert (tested.server.state, tested.server.tools) == ("connected", ("plain__echo",))
    (after,) = (await caller.call(list_mcp_servers, list_mcp_servers.params())).servers
    assert (after.state, after.listed_at) == ("connected", pal.clock.now_ms())
    with pytest.raises(NotFound, match="there is no MCP server 'other'"):
        await caller.call(check_mcp_server, check_mcp_server.params("other"))
    await servers.close()


async def test_a_house_without_servers_says_so(pal: Harness, home: Home, tmp_path: Path) -> None:
    caller = LocalCaller(pal.services(home).replace(get=lambda _: Source(McpServers((), tmp_path, pal.clock))))
    report = await caller.call(list_mcp_servers, list_mcp_servers.params())
    assert (report.servers, report.warnings) == ((), ())
