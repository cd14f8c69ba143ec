"""`pal export`: carry the home away."""

from __future__ import annotations

from pathlib import Path

import click

from palinurus.cli.bar import Bar
from palinurus.cli.entrance import open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.errors import BadRequest, HolderLost
from palinurus.operations.export import EXPORT_HOME, PACKED, ExportHome, ExportReport


@click.command("export")
@click.argument("into", type=click.Path(path_type=Path), metavar="DIR|FILE.pal")
@with_json
@click.pass_obj
def export(shell: Shell, into: Path) -> None:
    """Write the home out as OpenClaw lays one out, into a new folder, or into one file that ends in .pal.

    Conversations, workspaces and skills of all agents are in it; keys, models and channels are not. `pal migrate
    openclaw` brings either form into another home, and what comes back is what it was.

    \b
    Examples:
      pal export ~/for-openclaw
      pal export ~/home.pal              then: pal migrate openclaw ~/home.pal --apply
    """
    if not (shell.home.root / "home.sqlite").exists():
        raise BadRequest(f"there is no home in {shell.home.root} yet", hint="`pal chat` makes one")
    report = run_async(_follow(shell, ExportHome(str(into.absolute()))))
    shell.show(report, lambda: _text(report))


async def _follow(shell: Shell, params: ExportHome) -> ExportReport:
    bar = Bar()
    try:
        async with open_door(shell) as door:
            async for told in door.follow(EXPORT_HOME, params):
                if told.progress is not None:
                    bar.show("writing conversations", told.progress.done, told.progress.total)
                if told.report is not None:
                    return told.report
    finally:
        bar.close()
    raise HolderLost("whoever holds the home went away in the middle", hint="try again")


def _text(report: ExportReport) -> str:
    counts = f"{report.sessions} conversations with {report.entries:,} entries and {report.files:,} files"
    lines = [
        f"{counts} of {len(report.agents)} agents are in {report.into}.",
        *(f"left out: {skipped.file}: {skipped.reason}" for skipped in report.skipped),
    ]
    if report.into.endswith(PACKED):
        lines.append(f"`pal migrate openclaw {report.into} --apply` brings them into another home.")
    return "\n".join(lines)
