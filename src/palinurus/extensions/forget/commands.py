"""`pal forget`: show where words are, and remove them everywhere."""

from __future__ import annotations

import click

from palinurus.cli.command import follow_to_report
from palinurus.cli.shell import Shell, with_json
from palinurus.domain.text_places import Spot
from palinurus.extensions.forget.operations import Forget, ForgetReport, forget_words

MOST = 40
MOST_QUOTES = 3


@click.command()
@click.option("--session", metavar="KEY", help="A whole session with its earlier ones, or one by its id.")
@click.option("--query", metavar="TEXT", help="Every line that holds these words, in any case and form.")
@click.option("--agent", metavar="ID", help="With --query: only what belongs to this agent.")
@click.option("--files", is_flag=True, help="Also change files of workspaces that are no memory.")
@click.option("--apply", is_flag=True, help="Do it. Without this only the plan is shown.")
@with_json
@click.pass_obj
def forget(shell: Shell, session: str | None, query: str | None, agent: str | None, files: bool, apply: bool) -> None:
    """Remove words, or a whole session, from everything that holds them.

    Without --apply it shows what would be done, and the words as each place has them. With --apply the words are
    removed from sessions, notes, indexes, queues, logs, stored results, and from wikis and exports that were made
    of the home; entries keep their position with a tombstone. Then it searches again, byte by byte, and reports what
    remains and why: backups, packed exports and the git history of a workspace are never changed, only named.

    Case, white space and different Unicode forms of a letter make no difference. Other words with the same meaning are
    not found.

    \b
    Examples:
      pal forget --query "Villa Ada"             the plan
      pal forget --query "Villa Ada" --apply
      pal forget --session agent:main:main --apply --json
    """
    if bool(session) == bool(query):
        raise click.UsageError("Give either --session or --query.")
    if agent and session:
        raise click.UsageError("--agent goes with --query.")
    wanted = Forget(session or "", query or "", agent or "", files, apply)
    again = "run it again: it continues"
    report: ForgetReport = follow_to_report(shell, forget_words, wanted, lambda at: str(at.stage), hint=again)
    shell.show(report, lambda: report_text(report))


def report_text(report: ForgetReport) -> str:
    away = [f"skipped, because it is missing: {each}" for each in report.away]
    if not report.spots and not report.remains:
        return "\n".join(["Nothing was found.", *away])
    lines = [*map(_line, report.spots[:MOST])]
    if len(report.spots) > MOST:
        lines.append(f"  and {len(report.spots) - MOST} more places; --json names them")
    lines += away
    if not report.applied:
        return "\n".join([*lines, "", "Nothing was changed. --apply does it."])
    lines += ["", *(f"searched again: {probe.name}: {probe.found or 'nothing'}" for probe in report.probes)]
    if report.remains:
        lines += ["", "What remains:", *map(_line, report.remains[:MOST])]
    return "\n".join(lines)


def _line(spot: Spot) -> str:
    count = f" ({spot.count})" if spot.count > 1 else ""
    why = f": {spot.why}" if spot.why else ""
    return f"  {spot.action:<10} {spot.where}{count}{why}{_quoted(spot.quotes)}"


def _quoted(quotes: tuple[str, ...]) -> str:
    """The words as the place has them, without the text around them, which is private."""
    shown = [f"… {quote.replace(chr(10), '⏎')} …" for quote in quotes[:MOST_QUOTES]]
    more = [f"{len(quotes) - MOST_QUOTES} other ways"] if len(quotes) > MOST_QUOTES else []
    return f"\n{'':<13}{', '.join([*shown, *more])}" if shown else ""
