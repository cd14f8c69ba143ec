"""`pal forget`: show where words stand, and take them out everywhere."""

from __future__ import annotations

import click

from palinurus.cli.progress import follow_to_report
from palinurus.cli.shell import Shell, with_json
from palinurus.migrate.forgetting.report import ForgetReport, Spot
from palinurus.operations.forget import forget_words
from palinurus.operations.forgetting import Forget

MOST = 40
MOST_QUOTES = 3


@click.command()
@click.option("--session", metavar="KEY", help="All of a conversation, with its earlier ones; or one by its id.")
@click.option("--query", metavar="TEXT", help="Every line that holds these words, in any case and form.")
@click.option("--agent", metavar="ID", help="With --query: only in what is this agent's.")
@click.option("--files", is_flag=True, help="Also rewrite files of workspaces that are no memory.")
@click.option("--apply", is_flag=True, help="Do it. Without this only the plan is shown.")
@with_json
@click.pass_obj
def forget(shell: Shell, session: str | None, query: str | None, agent: str | None, files: bool, apply: bool) -> None:
    """Take words, or a whole conversation, out of everything that holds them.

    Without --apply it shows what would be done, with the words as they stand in each place. With it, the words go from
    conversations, notes, indexes, queues, logs, kept results, and from wikis and exports that were made of the home;
    entries keep their place with a tombstone. Then it looks for them again, byte by byte, and says what remains and
    why: backups, packed exports and the git history of a workspace are never changed, only named.

    Case, white space and the ways in which Unicode writes a letter make no difference. What merely means the same, in
    other words, is not found.

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
    again = "do it again: it goes on where it was"
    report: ForgetReport = follow_to_report(shell, forget_words, wanted, lambda at: str(at.stage), hint=again)
    shell.show(report, lambda: report_text(report))


def report_text(report: ForgetReport) -> str:
    away = [f"passed over, because it is not there any more: {each}" for each in report.away]
    if not report.spots and not report.remains:
        return "\n".join(["Nothing of it is here.", *away])
    lines = [*map(_line, report.spots[:MOST])]
    if len(report.spots) > MOST:
        lines.append(f"  and {len(report.spots) - MOST} more places; --json names them")
    lines += away
    if not report.applied:
        return "\n".join([*lines, "", "Nothing was changed. --apply does it."])
    lines += ["", *(f"looked again: {probe.name}: {probe.found or 'nothing'}" for probe in report.probes)]
    if report.remains:
        lines += ["", "What remains:", *map(_line, report.remains[:MOST])]
    return "\n".join(lines)


def _line(spot: Spot) -> str:
    count = f" ({spot.count})" if spot.count > 1 else ""
    why = f": {spot.why}" if spot.why else ""
    return f"  {spot.action:<10} {spot.where}{count}{why}{_quoted(spot.quotes)}"


def _quoted(quotes: tuple[str, ...]) -> str:
    """The words as they stand there; what is around them is nobody's business, not even on this screen."""
    shown = [f"… {quote.replace(chr(10), '⏎')} …" for quote in quotes[:MOST_QUOTES]]
    more = [f"{len(quotes) - MOST_QUOTES} other ways"] if len(quotes) > MOST_QUOTES else []
    return f"\n{'':<13}{', '.join([*shown, *more])}" if shown else ""
