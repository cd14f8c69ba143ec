"""`pal ingest`: make a wiki of a home."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import click

from palinurus.cli.command import Bar, open_home
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.config.home import expand_user
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import NotFound
from palinurus.extensions.migrate.copies import Copies, Copy, is_home
from palinurus.extensions.migrate.foreign import ForeignHome
from palinurus.extensions.migrate.ingest.ingest import Ingest, IngestOrder, IngestProgress, IngestReport
from palinurus.extensions.migrate.ingest.prose import ask_for_wiki
from palinurus.extensions.migrate.ingest.sources import open_source
from palinurus.operations.single_request import SingleReply
from palinurus.runtime.redaction import redactor_of

STAGES = {"reading": "reading", "asking": "asking the model"}
OWN_MODEL = "own"
MOST_LISTED = 20
MOST_SKIPPED = 5


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--into", required=True, type=click.Path(path_type=Path), metavar="WIKI", help="The folder of the wiki.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@click.option("--agent", default="", metavar="ID", help="Only what this agent of the home knows.")
@click.option(
    "--model",
    is_flag=False,
    flag_value=OWN_MODEL,
    default="",
    metavar="[NAME]",
    help="Let a model write the text of pages from the facts; without NAME the default model.",
)
@with_json
@click.pass_obj
def ingest(shell: Shell, folder: Path, into: Path, dry_run: bool, agent: str, model: str) -> None:
    """Make a wiki of a home: linked markdown pages of people, projects, decisions, preferences, patterns.

    DIR is a Palinurus home, an OpenClaw home, or a workspace; it is only read. Every fact names its source. Secrets are
    removed before anything is written. A second run writes only what has changed; what you write on a page stays. Only
    one run at a time can write a wiki. The home remembers the wiki, so that `pal forget` finds it.

    \b
    Examples:
      pal ingest ~/.openclaw --into ~/wiki --dry-run
      pal ingest ~/.palinurus --into ~/wiki
      pal ingest ~/.palinurus --into ~/wiki --agent main --model anthropic/claude-sonnet-4-5
    """
    user_home = shell.home.user_home
    source, wiki = (expand_user(str(each), user_home).absolute() for each in (folder, into))
    with open_source(source, os.environ, user_home) as home:
        ids = [known.id for known in home.agents]
        if agent and agent not in ids:
            raise NotFound(f"there is no agent {agent!r} in {source}", hint=f"there are: {', '.join(ids)}")
        clock = SystemClock()
        order = IngestOrder(wiki, clock.now_ms(), clock.zone, agent, apply=not dry_run)
        report = run_async(_run(shell, home, order, model if not dry_run else ""))
    shell.show(report, lambda: report_text(report))


async def _run(shell: Shell, source: ForeignHome, order: IngestOrder, model: str) -> IngestReport:
    """The user's home is opened only for a model: its keys and its ledger are needed then."""

    def on_begin() -> None:
        copy = Copy("wiki", str(order.wiki), str(source.root), order.now_ms)
        Copies(source.root if is_home(source.root) else shell.home.root).add(copy)

    secrets = redactor_of(shell.home, os.environ)
    with closing(Bar()) as bar:

        def tell(progress: IngestProgress) -> None:
            bar.show(STAGES[progress.stage], progress.done, progress.total)

        if not model:
            return await Ingest(source, order, secrets, tell, on_begin=on_begin).run()
        async with open_home(shell) as home:

            async def ask(system: str, question: str) -> SingleReply:
                params = ask_for_wiki.params(system, question, "" if model == OWN_MODEL else model)
                return await home.call(ask_for_wiki, params)

            return await Ingest(source, order, secrets, tell, ask, on_begin=on_begin).run()


def report_text(report: IngestReport) -> str:
    """The report as text."""
    sources = Counter(str(each.outcome) for each in report.sources)
    pages = Counter(str(page.outcome) for page in report.pages)
    would = "" if report.applied else "would be "
    lines = [f"{report.source} to {report.wiki}", ""]
    lines.append(f"{len(report.sources):,} sources: {_counts(sources)}")
    lines.append(f"{len(report.pages):,} pages with {report.facts:,} facts: {_counts(pages, would)}")
    changed = [page for page in report.pages if page.outcome not in ("same", "away")]
    lines += [f"  {page.outcome:<8} {page.path}{_facts(page.facts)}" for page in changed[:MOST_LISTED]]
    lines += [f"  … {len(changed) - MOST_LISTED:,} more"] if len(changed) > MOST_LISTED else []
    lines += [f"kept of yours on {page.path}: {page.kept_lines} lines" for page in report.pages if page.kept_lines]
    if report.redacted:
        lines.append(f"{report.redacted:,} secrets were removed")
    lines += [f"left out: {count:,} {what}" for what, count in sorted(report.left_out.items())]
    if report.requests:
        texts = Counter(str(page.prose) for page in report.pages)
        lines.append(f"{report.model or 'the model'} wrote {texts['model']:,} texts; {texts['refused']:,} were refused")
    if report.model_error:
        lines.append(f"no more requests to the model: {report.model_error}")
    lines += [f"skipped: {each.file}:{each.line}: {each.reason}" for each in report.skipped[:MOST_SKIPPED]]
    if report.skipped_total > MOST_SKIPPED:
        lines.append(f"skipped: {report.skipped_total - MOST_SKIPPED:,} more; --json lists them")
    return "\n".join(lines)


def _facts(count: int) -> str:
    return f"  ({count:,} {'fact' if count == 1 else 'facts'})" if count else ""


def _counts(counts: Counter[str], would: str = "") -> str:
    words = {"new": "new", "changed": "changed", "same": "as before", "gone": "gone", "removed": "removed"}
    words = {name: f"{would}{word}" for name, word in words.items()}
    words |= {"same": "as before", "away": "deleted by you, and not written again"}
    return ", ".join(f"{counts[name]:,} {word}" for name, word in words.items() if counts[name]) or "none"
