"""`pal export`: carry the home away."""

from __future__ import annotations

from pathlib import Path

import click

from palinurus.cli.progress import follow_to_report
from palinurus.cli.shell import Shell, with_json
from palinurus.domain.errors import BadRequest
from palinurus.operations.export import PACKED, ExportReport, export_home


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
    params = export_home.params(str(into.absolute()))
    report: ExportReport = follow_to_report(shell, export_home, params, lambda _: "writing conversations")
    shell.show(report, lambda: _text(report))


def _text(report: ExportReport) -> str:
    counts = f"{report.sessions} conversations with {report.entries:,} entries and {report.files:,} files"
    lines = [
        f"{counts} of {len(report.agents)} agents are in {report.into}.",
        *(f"left out: {skipped.file}: {skipped.reason}" for skipped in report.skipped),
    ]
    if report.into.endswith(PACKED):
        lines.append(f"`pal migrate openclaw {report.into} --apply` brings them into another home.")
    return "\n".join(lines)
