"""What a door is told about MCP servers, and what it can have tried."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import NotFound
from palinurus.operations.mcp import list_mcp_servers, try_mcp_server
from palinurus.operations.table import LocalCaller
from palinurus.testing.harness import Harness
from palinurus.tools.mcp.servers import McpServers
from palinurus.tools.mcp.settings import ServerSettings

PLAIN = Path(__file__).parent.parent / "tools" / "mcp" / "plain_server.py"


async def test_servers_are_shown_before_and_after_they_were_tried(pal: Harness, home: Home, tmp_path: Path) -> None:
    settings = ServerSettings("plain", sys.executable, (str(PLAIN),), cwd=str(tmp_path))
    servers = McpServers((settings,), tmp_path / "listings", pal.clock)
    caller = LocalCaller(msgspec.structs.replace(pal.house(home), mcp=lambda _: servers))
    (before,) = (await caller.call(list_mcp_servers, list_mcp_servers.params())).servers
    assert (before.state, before.tools, before.listed_at) == ("unknown", (), 0)
    tested = await caller.call(try_mcp_server, try_mcp_server.params("plain"))
    assert (tested.server.state, tested.server.tools) == ("connected", ("plain__echo",))
    (after,) = (await caller.call(list_mcp_servers, list_mcp_servers.params())).servers
    assert (after.state, after.listed_at) == ("connected", pal.clock.now_ms())
    with pytest.raises(NotFound, match="there is no MCP server 'other'"):
        await caller.call(try_mcp_server, try_mcp_server.params("other"))
    await servers.close()


async def test_a_house_without_servers_says_so(pal: Harness, home: Home) -> None:
    report = await LocalCaller(pal.house(home)).call(list_mcp_servers, list_mcp_servers.params())
    assert (report.servers, report.warnings) == ((), ())
