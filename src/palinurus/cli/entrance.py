"""Into the home from a command: make it on the very first run, then open the door."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from palinurus.cli.shell import Shell
from palinurus.operations.config import Ground, is_new, setup
from palinurus.wiring.door import Door
from palinurus.wiring.logs import Logs


def ground_of(shell: Shell) -> Ground:
    return Ground(shell.home, os.environ)


def make_on_first_run(shell: Shell) -> bool:
    """A newcomer needs no command before the first one. A home with a past is never touched. Whether one was made."""
    ground = ground_of(shell)
    if not shell.home.ours or shell.home.workspace_override is not None or not is_new(ground):
        return False
    report = setup(ground, complete=False)
    if report.created:
        shell.warn(f"made a new home in {report.home}")
    return bool(report.created)


def open_door(shell: Shell, tell: Callable[[str], None] | None = None, *, verbose: bool = False) -> Door:
    """`tell` shows one line to the person, where standard error is not the place for it."""
    tell = tell or shell.warn
    logs = Logs(shell.home, os.environ, tell, verbose=verbose)
    return Door(shell.home, os.environ, _command(), warn=tell, logs=logs)


def _command() -> str:
    """What others are told that this process does: pal and its command, without options."""
    context = click.get_current_context(silent=True)
    return " ".join(context.command_path.split()[:2]) if context else "pal"
