"""`pal mcp`: the servers that bring more tools, how they stand, and whether one answers."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from palinurus.cli.entrance import open_door
from palinurus.cli.mcp_serve import serve
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.operations.mcp import LIST, TEST, AskMcp, McpReport, McpTested, TryMcp
from palinurus.operations.table import Operation, P, R
from palinurus.tools.mcp.server import ServerStanding

NONE = """No MCP servers are configured: name them under mcp.servers, for example
  pal config set mcp.servers.files.command my-mcp-server"""


@click.group()
def mcp() -> None:
    """Show and test the MCP servers that bring more tools; be one for other agents."""


mcp.add_command(serve)


@mcp.command("list")
@click.option("--agent", default="", help="Of this agent.")
@with_json
@click.pass_obj
def list_servers(shell: Shell, agent: str) -> None:
    """List the servers with what is known of them; none is started.

    \b
    Examples:
      pal mcp list
      pal mcp list --json
    """
    report = _ask(shell, LIST, AskMcp(agent))
    shell.show(report, lambda: _list_text(shell, report))


@mcp.command("test")
@click.argument("name")
@click.option("--agent", default="", help="Of this agent.")
@with_json
@click.pass_obj
def test_server(shell: Shell, name: str, agent: str) -> None:
    """Reach a server now and ask for its tools.

    \b
    Examples:
      pal mcp test files
    """
    tested = _ask(shell, TEST, TryMcp(name, agent))
    shell.show(tested, lambda: _test_text(shell, tested))


def _ask(shell: Shell, operation: Operation[P, R], params: P) -> R:
    async def ask() -> R:
        async with open_door(shell) as door:
            return await door.call(operation, params)

    return run_async(ask())


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
