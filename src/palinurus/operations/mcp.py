"""The MCP servers of an agent: how they stand, and whether one can be reached."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.tools.mcp.server import ServerStanding

OfAgent = Annotated[str, "Of this agent."]


class McpReport(Struct, frozen=True):
    servers: tuple[ServerStanding, ...]
    warnings: tuple[str, ...] = ()


class McpTested(Struct, frozen=True):
    server: ServerStanding
    seconds: float


@operation("mcp.list", scope="read")
async def list_mcp_servers(house: House, agent: OfAgent = "") -> McpReport:
    """List the servers with what is known of them; none is started.

    Examples:
      pal mcp list
      pal mcp list --json
    """
    servers = house.mcp(agent or house.agents.default)
    return McpReport(await servers.standings(), servers.warnings())


@operation("mcp.test", scope="write")  # it starts a program
async def try_mcp_server(house: House, name: str, agent: OfAgent = "") -> McpTested:
    """Reach a server now and ask for its tools.

    Examples:
      pal mcp test files
    """
    began = house.clock.now_ms()
    standing = await house.mcp(agent or house.agents.default).test(name)
    return McpTested(standing, (house.clock.now_ms() - began) / 1000)


OPERATIONS = (list_mcp_servers, try_mcp_server)
