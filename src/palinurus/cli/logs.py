"""`pal logs`: what pal did, as it is written in the home."""

from __future__ import annotations

import time
from datetime import datetime

import click
import msgspec

from palinurus.cli.shell import Shell, echo, with_json
from palinurus.operations.logs import LEVELS, LogLine, follow_logs, log_filter, read_logs

LOOK_SECONDS = 0.2
COLORS = {"warning": "yellow", "error": "red"}


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines until Ctrl-C.")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True, help="This level and above.")
@click.option("--run", default="", metavar="ID", help="Only this run: its id or the beginning of it.")
@click.option(
    "--lines", "-n", type=click.IntRange(0, 100_000), default=100, show_default=True, help="Number of last lines."
)
@with_json
@click.pass_obj
def logs(shell: Shell, follow: bool, level: str, run: str, lines: int) -> None:
    """Show the log: runs, failovers, config reloads, who holds the home.

    With --json each line is one JSON object, as in the file. Tracebacks are shown below the line they belong to.

    \b
    Examples:
      pal logs -f
      pal logs --level warning -n 20
      pal logs --run 3f9a --json
    """
    wanted = log_filter(level, run)
    for line in read_logs(shell.home.root, wanted, lines) if lines else ():
        echo(_shown(shell, line))
    if follow:
        try:
            for line in follow_logs(shell.home.root, wanted, lambda: time.sleep(LOOK_SECONDS)):
                echo(_shown(shell, line))
        except KeyboardInterrupt:
            return


def _shown(shell: Shell, line: LogLine) -> str:
    if shell.as_json:
        return msgspec.json.encode(line).decode()
    when = datetime.fromisoformat(line.at).astimezone()
    level = f"{line.level:<7}"
    if shell.color and line.level in COLORS:
        level = click.style(level, fg=COLORS[line.level])
    about = " ".join(part for part in (line.session, line.run[:8]) if part)
    shown = f"{shell.dim(f'{when:%m-%d %H:%M:%S}')} {level} {line.text}" + (shell.dim(f"  {about}") if about else "")
    return shown + "".join(f"\n    {row}" for row in line.trace.splitlines())
