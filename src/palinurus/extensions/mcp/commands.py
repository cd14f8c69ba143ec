"""`pal mcp`: list and test the servers that bring more tools, and serve sessions to other agents."""

from __future__ import annotations

import signal
import webbrowser
from datetime import UTC, datetime

import click

from palinurus.cli.command import command_of, make_on_first_run, open_home, services_of
from palinurus.cli.shell import CommandGroup, Shell, run_async, with_shell
from palinurus.config.agents import agent_settings, default_agent
from palinurus.config.load import LoadedConfig, load_config
from palinurus.domain.errors import NotFound
from palinurus.extensions.mcp.server import ServerStatus
from palinurus.extensions.mcp.servers import McpServerList, McpTestResult, check_mcp_server, list_mcp_servers, logins_of
from palinurus.extensions.mcp.settings import ServerSettings, server_settings

NONE = """No MCP servers are configured: name them under mcp.servers, for example
  pal config set mcp.servers.files.command my-mcp-server"""


@click.command()
@click.option("--read-only", is_flag=True, help="Allow reading only: no sending, no stopping.")
@click.option("--allow-approvals", is_flag=True, help="Let other agents answer approvals.")
@click.option("--guest", is_flag=True, help="Treat messages of other agents as untrusted, not as yours.")
@click.pass_obj
def serve(shell: Shell, read_only: bool, allow_approvals: bool, guest: bool) -> None:
    """Serve sessions as MCP tools for other agents, on standard input and output.

    Another program starts this command and uses it over MCP; it ends when that program closes the connection. Messages
    for people go to standard error and to the log.

    \b
    Examples:
      pal mcp serve
      pal mcp serve --read-only
      claude mcp add pal -- pal mcp serve
    """
    if read_only and allow_approvals:
        raise click.UsageError("--read-only and --allow-approvals exclude each other: an answer changes something.")
    # A thread of the package waits in a read of standard input, and an interrupt could not wake it. Accepted messages
    # are on the disk, so ending at once loses nothing.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    make_on_first_run(shell)
    run_async(_serve(shell, read_only, allow_approvals, guest))


async def _serve(shell: Shell, *allowed: bool) -> None:
    from palinurus.extensions.mcp.send import ServeOptions
    from palinurus.extensions.mcp.serve import serve_stdio

    async with open_home(shell) as home:
        await serve_stdio(home, ServeOptions(*allowed))


@click.group(cls=CommandGroup)
def mcp() -> None:
    """List and test the MCP servers that provide tools; serve sessions to other agents over MCP."""


def _list_text(shell: Shell, report: McpServerList) -> str:
    lines = [line for server in report.servers for line in _server_lines(shell, server)]
    return "\n".join([*lines, *report.warnings]) if report.servers else NONE


def _server_lines(shell: Shell, server: ServerStatus) -> list[str]:
    at = datetime.fromtimestamp(server.listed_at / 1000, UTC).astimezone()
    since = f", listed {at:%Y-%m-%d %H:%M}" if server.listed_at else ""
    state = {"unknown": "never reached", "idle": "starts at the first call"}.get(server.state, server.state)
    head = f"{server.name}  {state}{since}  {shell.dim(f'{server.transport} {server.where}')}"
    prompts = (f"  /prompt {server.name}:{prompt}" for prompt in server.prompts)
    more = ["  resources, read by mcp__read_resource"] if server.has_resources else []
    return [head, *(f"  {tool}" for tool in server.tools), *prompts, *more]


def _test_text(shell: Shell, tested: McpTestResult) -> str:
    server = tested.server
    count = f"{len(server.tools)} tool{'' if len(server.tools) == 1 else 's'}"
    about = f"{server.about} " if server.about else ""
    lines = [f"{server.name}: {about}answers with {count} after {tested.seconds:.1f} s"]
    return "\n".join([*lines, *(f"  {tool}" for tool in server.tools)])


@click.command()
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Only show the address; open it yourself, on this machine.")
@with_shell
def login(shell: Shell, name: str, no_browser: bool) -> None:
    """Log in at the server NAME with a browser. The login is renewed while it is used.

    For servers with a url that want OAuth. Only this command starts a login; `pal mcp logout` forgets it.

    \b
    Examples:
      pal mcp login far
    """
    from palinurus.domain.clock import SystemClock
    from palinurus.extensions.mcp.logins import log_in

    def show(where: str, _: str) -> None:
        click.echo(f"To log in at {name}, open\n  {where}", err=True)
        if not no_browser:
            webbrowser.open(where)

    clock = SystemClock()
    loaded, settings = _configured(shell, name)
    run_async(log_in(settings, logins_of(services_of(shell).home, clock, lambda: loaded), clock, show))
    shell.show({"server": name}, lambda: f"Logged in at {name}. `pal mcp test {name}` lists its tools.")


@click.command()
@click.argument("name")
@with_shell
def logout(shell: Shell, name: str) -> None:
    """Forget the login at the server NAME.

    \b
    Examples:
      pal mcp logout far
    """
    from palinurus.domain.clock import SystemClock

    services = services_of(shell)
    loaded = load_config(services.home, services.env)
    logins_of(services.home, SystemClock(), lambda: loaded).remove(name)
    shell.show({"server": name}, lambda: f"The login at {name} is forgotten here; the server may still know it.")


def _configured(shell: Shell, name: str) -> tuple[LoadedConfig, ServerSettings]:
    services = services_of(shell)
    loaded = load_config(services.home, services.env)
    agent = agent_settings(loaded.config, services.home, default_agent(loaded.config))
    found, _ = server_settings(loaded, services.home, agent)
    settings = next((each for each in found if each.name == name), None)
    if settings is None:
        raise NotFound(f"there is no MCP server {name!r}", hint="`pal mcp list` shows them")
    return loaded, settings


mcp.add_command(serve)
mcp.add_command(login)
mcp.add_command(logout)
mcp.add_command(command_of(list_mcp_servers, _list_text))
mcp.add_command(command_of(check_mcp_server, _test_text))
