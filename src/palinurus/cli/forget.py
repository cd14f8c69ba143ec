"""`pal forget`: show where words stand, and take them out everywhere."""

from __future__ import annotations

import click

from palinurus.cli.entrance import open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.migrate.forgetting.report import ForgetReport, Spot
from palinurus.operations.forget import FORGET, Forget

MOST = 40


@click.command()
@click.option("--session", metavar="KEY", help="All of a conversation, with its earlier ones; or one by its id.")
@click.option("--query", metavar="TEXT", help="Every line that holds these words, in any case.")
@click.option("--agent", metavar="ID", help="With --query: only in what is this agent's.")
@click.option("--files", is_flag=True, help="Also rewrite files of workspaces that are no memory.")
@click.option("--apply", is_flag=True, help="Do it. Without this only the plan is shown.")
@with_json
@click.pass_obj
def forget(shell: Shell, session: str | None, query: str | None, agent: str | None, files: bool, apply: bool) -> None:
    """Take words, or a whole conversation, out of everything that holds them.

    Without --apply it shows what would be done. With it, the words go from conversations, notes, indexes, queues, logs
    and kept results; entries keep their place with a tombstone. Then it looks for them again, byte by byte, and says
    what remains and why: backups and the git history of a workspace are never changed, only named.

    \b
    Examples:
      pal forget --query "Villa Ada"             the plan
      pal forget --query "Villa Ada" --apply
      pal forget --session agent:main:main --apply --json
    """
    if bool(session) == bool(query):
        raise click.UsageError("Either --session or --query.")
    if agent and session:
        raise click.UsageError("--agent goes with --query.")
    wanted = Forget(session or "", query or "", agent or "", files, apply)
    report = run_async(_ask(shell, wanted))
    shell.show(report, lambda: report_text(report))


async def _ask(shell: Shell, wanted: Forget) -> ForgetReport:
    async with open_door(shell) as door:
        return await door.call(FORGET, wanted)


def report_text(report: ForgetReport) -> str:
    if not report.spots and not report.remains:
        return "Nothing of it is here."
    lines = [*map(_line, report.spots[:MOST])]
    if len(report.spots) > MOST:
        lines.append(f"  and {len(report.spots) - MOST} more places; --json names them")
    if not report.applied:
        return "\n".join([*lines, "", "Nothing was changed. --apply does it."])
    lines += ["", *(f"looked again: {probe.name}: {probe.found or 'nothing'}" for probe in report.probes)]
    if report.remains:
        lines += ["", "What remains:", *map(_line, report.remains[:MOST])]
    return "\n".join(lines)


def _line(spot: Spot) -> str:
    count = f" ({spot.count})" if spot.count > 1 else ""
    why = f": {spot.why}" if spot.why else ""
    return f"  {spot.action:<10} {spot.where}{count}{why}"
