"""`pal mcp`: the servers that bring more tools, how they stand, and whether one answers."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from palinurus.cli.derived import command_of
from palinurus.cli.mcp_serve import serve
from palinurus.cli.shell import Shell
from palinurus.operations.mcp import McpReport, McpTested, list_mcp_servers, try_mcp_server
from palinurus.tools.mcp.server import ServerStanding

NONE = """No MCP servers are configured: name them under mcp.servers, for example
  pal config set mcp.servers.files.command my-mcp-server"""


@click.group()
def mcp() -> None:
    """Show and test the MCP servers that bring more tools; be one for other agents."""


def _list_text(shell: Shell, report: McpReport) -> str:
    lines = [line for server in report.servers for line in _server_lines(shell, server)]
    return "\n".join([*lines, *report.warnings]) if report.servers else NONE


def _server_lines(shell: Shell, server: ServerStanding) -> list[str]:
    at = datetime.fromtimestamp(server.listed_at / 1000, UTC).astimezone()
    since = f", listed {at:%Y-%m-%d %H:%M}" if server.listed_at else ""
    told = {"unknown": "never reached", "idle": "starts when it is called"}.get(server.state, server.state)
    head = f"{server.name}  {told}{since}  {shell.dim(f'{server.transport} {server.where}')}"
    return [head, *(f"  {tool}" for tool in server.tools)]


def _test_text(shell: Shell, tested: McpTested) -> str:
    server = tested.server
    count = f"{len(server.tools)} tool{'' if len(server.tools) == 1 else 's'}"
    about = f"{server.about} " if server.about else ""
    lines = [f"{server.name}: {about}answers with {count} after {tested.seconds:.1f} s"]
    return "\n".join([*lines, *(f"  {tool}" for tool in server.tools)])


mcp.add_command(serve)
mcp.add_command(command_of(list_mcp_servers, _list_text))
mcp.add_command(command_of(try_mcp_server, _test_text))
