"""`pal mcp serve`: other agents at the door, by the protocol MCP on standard input and output."""

from __future__ import annotations

import signal

import click

from palinurus.cli.entrance import make_on_first_run, open_door
from palinurus.cli.shell import Shell, run_async
from palinurus.gateway.mcp_server.server import serve_stdio
from palinurus.gateway.mcp_server.visit import Options


@click.command()
@click.option("--read-only", is_flag=True, help="Others may look, and neither speak nor stop anything.")
@click.option("--allow-approvals", is_flag=True, help="Others may answer what an agent asks its owner.")
@click.option("--guest", is_flag=True, help="What others say counts as text from outside, not as yours.")
@click.pass_obj
def serve(shell: Shell, read_only: bool, allow_approvals: bool, guest: bool) -> None:
    """Serve conversations as MCP tools for other agents, on standard input and output.

    Another program starts this and speaks MCP with it; it ends when that program hangs up. What it has to tell people
    goes to standard error and to the log.

    \b
    Examples:
      pal mcp serve
      pal mcp serve --read-only
      claude mcp add pal -- pal mcp serve
    """
    if read_only and allow_approvals:
        raise click.UsageError("--read-only and --allow-approvals exclude each other: an answer changes something.")
    # A thread of the package sits in a read of standard input, and an interrupt could not wake it. What was accepted
    # is on the disk, so ending at once loses nothing.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    make_on_first_run(shell)
    run_async(_serve(shell, Options(read_only, allow_approvals, guest)))


async def _serve(shell: Shell, options: Options) -> None:
    async with open_door(shell) as door:
        await serve_stdio(door, options)
