"""Into the home from a command: make it on the very first run, then open the door."""

from __future__ import annotations

import os
import sys

from palinurus.cli.shell import Shell
from palinurus.operations.config import Ground, is_new, setup
from palinurus.wiring.door import Door


def ground_of(shell: Shell) -> Ground:
    return Ground(shell.home, os.environ)


def make_on_first_run(shell: Shell) -> None:
    """A newcomer needs no command before the first one. A home with a past is never touched."""
    ground = ground_of(shell)
    if shell.home.ours and shell.home.workspace_override is None and is_new(ground):
        report = setup(ground)
        shell.warn(f"made a new home in {report.home}")


def open_door(shell: Shell) -> Door:
    return Door(shell.home, os.environ, " ".join(["pal", *sys.argv[1:2]]), warn=shell.warn)
