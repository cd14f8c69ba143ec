"""`pal setup`: make a home and a workspace."""

from __future__ import annotations

from pathlib import Path

import click

from palinurus.cli.entrance import ground_of
from palinurus.cli.shell import Shell, with_json
from palinurus.domain.errors import BadRequest
from palinurus.operations.config import config_set
from palinurus.operations.config import setup as make


@click.command()
@click.option(
    "--workspace",
    "folder",
    metavar="DIR",
    help="Have the agent live there: it is written to agents.defaults.workspace.",
)
@with_json
@click.pass_obj
def setup(shell: Shell, folder: str | None) -> None:
    """Make the home, its config and the agent's workspace. What exists is never overwritten.

    \b
    Examples:
      pal setup
      pal setup --workspace ~/my-agent        from now on
      pal --workspace ~/my-agent setup        makes it, for whoever names it
    """
    if folder is not None:
        if not folder.strip():
            raise BadRequest("the workspace has no name", hint="pal setup --workspace ~/my-agent")
        kept = folder if folder.startswith("~") else str(Path(folder).absolute())
        config_set(ground_of(shell), "agents.defaults.workspace", kept)
    report = make(ground_of(shell))
    lines = [f"home       {report.home}", f"config     {report.config}"]
    lines += [f"workspace  {folder} ({agent})" for agent, folder in report.workspaces.items()]
    lines += [f"{len(report.created)} files and folders made, {len(report.kept)} were there. Next: pal chat"]
    shell.show(report, lambda: "\n".join(lines))
