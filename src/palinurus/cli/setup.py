"""`pal setup`: make a home and a workspace."""

from __future__ import annotations

import click

from palinurus.cli.entrance import ground_of
from palinurus.cli.shell import Shell, with_json
from palinurus.operations.config import setup as make


@click.command()
@with_json
@click.pass_obj
def setup(shell: Shell) -> None:
    """Make the home, its config and the agent's workspace. What exists is never overwritten.

    \b
    Examples:
      pal setup
      pal --workspace ~/my-agent setup
    """
    report = make(ground_of(shell))
    lines = [f"home       {report.home}", f"config     {report.config}"]
    lines += [f"workspace  {folder} ({agent})" for agent, folder in report.workspaces.items()]
    lines += [f"{len(report.created)} files and folders made, {len(report.kept)} were there. Next: pal chat"]
    shell.show(report, lambda: "\n".join(lines))
