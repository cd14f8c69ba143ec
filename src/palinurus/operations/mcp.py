"""The MCP servers of an agent: how they stand, and whether one can be reached."""

from __future__ import annotations

from msgspec import Struct

from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.tools.mcp.server import ServerStanding


class AskMcp(Struct, frozen=True):
    agent: str = ""


class TryMcp(Struct, frozen=True):
    name: str
    agent: str = ""


class McpReport(Struct, frozen=True):
    servers: tuple[ServerStanding, ...]
    warnings: tuple[str, ...] = ()


class McpTested(Struct, frozen=True):
    server: ServerStanding
    seconds: float


async def _list(house: House, params: AskMcp) -> McpReport:
    servers = house.mcp(params.agent or house.agents.default)
    return McpReport(await servers.standings(), servers.warnings())


async def _test(house: House, params: TryMcp) -> McpTested:
    began = house.clock.now_ms()
    standing = await house.mcp(params.agent or house.agents.default).test(params.name)
    return McpTested(standing, (house.clock.now_ms() - began) / 1000)


LIST = Operation("mcp.list", AskMcp, McpReport, "read", _list)
TEST = Operation("mcp.test", TryMcp, McpTested, "write", _test)  # it starts a program
OPERATIONS = (LIST, TEST)
