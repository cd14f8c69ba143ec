"""`pal completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell_name", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell_name: str) -> None:
    """Print the completion script for a shell.

    \b
    Example:
      pal completion bash > ~/.local/share/bash-completion/completions/pal
    """
    script = get_completion_class(shell_name)
    if script is not None:
        click.echo(script(context.find_root().command, {}, "pal", "_PAL_COMPLETE").source())
