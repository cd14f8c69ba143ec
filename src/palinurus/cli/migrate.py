"""`pal migrate`: look at the home of another system, and carry it over."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click
from msgspec.structs import replace

from palinurus.cli.entrance import make_on_first_run
from palinurus.cli.output import echo
from palinurus.cli.progress import follow_to_report
from palinurus.cli.shell import Shell, with_json
from palinurus.migrate.openclaw.places import find_openclaw, is_packed
from palinurus.migrate.others.home import Program, find_other
from palinurus.migrate.report import FoundSession, MigrationReport
from palinurus.operations.migrate import MigrateHome, migrate_home

STAGES = {"sessions": "reading conversations", "files": "looking at files"}
INCOMPLETE = 4  # exit code: something could not be read and is missing
MOST_SKIPPED = 20
MOST_SETTINGS = 40
SETTINGS = {
    "taken": "taken",
    "kept-yours": "kept as you have them",
    "secret": "secrets not copied",
    "held": "not allowed yet",
    "left": "left there",
    "refused": "refused",
}
OTHERS = """Bring conversations of {program} over, to the default agent.

{what} Without DIR they are looked for in {where}. Each line is kept word for word; doing it twice changes nothing.

\b
Examples:
  pal migrate {program}
  pal migrate {program} --apply
  pal migrate {program} DIR --dry-run --json
"""


@click.group()
def migrate() -> None:
    """Bring another home over."""


@migrate.command("openclaw")
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR|FILE.pal]")
@click.option("--dry-run", is_flag=True, help="Only show what would come over. This is also what happens without it.")
@click.option("--apply", is_flag=True, help="Carry it over. The other home is left as it is.")
@click.option("--keys", is_flag=True, help="With --apply: also stored keys and secrets of the config.")
@click.option(
    "--allow", metavar="KEY", multiple=True, help="Take a setting that can do harm, or all below a key. Repeatable."
)
@with_json
@click.pass_obj
def openclaw(shell: Shell, folder: Path | None, dry_run: bool, apply: bool, keys: bool, allow: tuple[str, ...]) -> None:
    """Bring an OpenClaw home over: agents, conversations, workspaces, skills, and what its config says.

    Without DIR it is looked for where OpenClaw keeps it; homes of clawdbot and moltbot work too. Nothing here is
    replaced and nothing there is changed. Doing it twice changes nothing; what was said there since comes along.
    What `pal export` wrote is brought over in the same way.

    Settings that can run a program, move a secret or loosen a rule are shown and stay behind: each is asked for at a
    terminal, and named by --allow in a script.

    \b
    Examples:
      pal migrate openclaw                      what would come over
      pal migrate openclaw --apply
      pal migrate openclaw --apply --keys       with keys and secrets
      pal migrate openclaw --apply --allow mcp.servers.notes
      pal migrate openclaw ~/old/.openclaw --dry-run --json
    """
    if dry_run and apply:
        raise click.UsageError("Either --dry-run or --apply.")
    if keys and not apply:
        raise click.UsageError("--keys goes with --apply.")
    given = folder.absolute() if folder else None
    packed = given is not None and is_packed(given)
    root = given if given is not None and packed else find_openclaw(os.environ, shell.home.user_home, given)
    if apply:
        make_on_first_run(shell)
    params = MigrateHome(str(root), apply, keys, allow=allow)
    if apply and not shell.as_json and sys.stdin.isatty() and sys.stderr.isatty():
        params = replace(params, allow=(*allow, *_choose(_migrated(shell, replace(params, settings=True)))))
    report = _migrated(shell, params)
    shell.show(report, lambda: report_text(report))
    _fail_if_incomplete(report)


def _migrated(shell: Shell, params: MigrateHome) -> MigrationReport:
    again = "try again; it goes on where it was"
    report: MigrationReport = follow_to_report(shell, migrate_home, params, lambda at: STAGES[at.stage], hint=again)
    return report


def _choose(report: MigrationReport) -> list[str]:
    """The settings among those that can do harm that a person at the terminal wants."""
    held = [each for each in report.config if each.outcome == "held"]
    allowed = []
    for each in held[:MOST_SETTINGS]:
        echo(f"{each.path} = {each.value}\n  {each.reason}", err=True)
        if click.confirm("  Take it?", default=False, err=True):
            allowed.append(each.path)
    return allowed


def _fail_if_incomplete(report: MigrationReport) -> None:
    """A script must notice that something stayed behind because it could not be read."""
    if report.applied and report.skipped_total:
        raise click.exceptions.Exit(INCOMPLETE)


def _other(program: Program, where: str, what: str) -> click.Command:
    """The command for one of the programs whose transcripts are plain lines."""

    @click.command(program, help=OTHERS.format(program=program, where=where, what=what))
    @click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
    @click.option(
        "--dry-run", is_flag=True, help="Only show what would come over. This is also what happens without it."
    )
    @click.option("--apply", is_flag=True, help="Carry it over. The other home is left as it is.")
    @with_json
    @click.pass_obj
    def command(shell: Shell, folder: Path | None, dry_run: bool, apply: bool) -> None:
        if dry_run and apply:
            raise click.UsageError("Either --dry-run or --apply.")
        root = find_other(program, os.environ, shell.home.user_home, folder)
        if apply:
            make_on_first_run(shell)
        report = _migrated(shell, MigrateHome(str(root), apply, program=program))
        shell.show(report, lambda: report_text(report, program))
        _fail_if_incomplete(report)

    return command


for _command in (
    _other("claude-code", "~/.claude", "Transcripts come over, and can be read and searched."),
    _other("codex", "~/.codex", "Transcripts come over, and can be read and searched."),
    _other("nanobot", "~/.nanobot", "Transcripts and the files of its workspace come over."),
    _other("hermes", "~/.hermes", "Transcripts in JSONL, SOUL.md and memories/ come over; its database does not."),
):
    migrate.add_command(_command)


def report_text(report: MigrationReport, program: str = "openclaw") -> str:
    """The report for a person: what there is, what was done, and what was not."""
    done = report.applied
    lines = [f"{report.source}{f', last used by OpenClaw {report.version}' if report.version else ''}", ""]
    lines += [_agent_line(report, agent.id, agent.name or agent.id) for agent in report.agents]
    entries = sum(sum(session.entries.values()) for session in report.sessions if not session.same_as)
    lines += ["", f"{len(report.sessions)} conversations with {entries:,} entries: {_outcomes(report.sessions, done)}"]
    files = Counter(str(file.outcome) for file in report.workspace_files)
    lines.append(f"{len(report.workspace_files)} files of workspaces: {_told(files, done)}")
    kept = "kept" if done else "to keep"
    lines.append(
        f"{len(report.skills)} skills, {len(report.cron_jobs)} cron jobs ({kept} word for word), "
        f"{len(report.approvals)} allowed commands, {len(report.auth_profiles)} stored keys"
    )
    lines += _settings(report)
    if report.secrets_total:
        lines.append(f"{report.secrets_total} places look like secrets, the first in {_place(report.secrets[0])}")
    lines += ["", *(f"note: {note}" for note in report.notes)] if report.notes else []
    lines += [f"note: {session.key}: {session.note}" for session in report.sessions if session.note]
    lines += _skipped(report)
    if not done:
        lines += ["", f"Nothing was changed. `pal migrate {program} --apply` carries it over."]
    return "\n".join(lines)


def _agent_line(report: MigrationReport, agent: str, name: str) -> str:
    sessions = sum(session.agent == agent for session in report.sessions)
    files = sum(file.agent == agent for file in report.workspace_files)
    into = next(found.into for found in report.agents if found.id == agent)
    return f"  {agent:<16} {name:<20} {sessions:>5} conversations  {files:>5} files  to {into}"


def _outcomes(sessions: Iterable[FoundSession], done: bool) -> str:
    found = list(sessions)
    told = _told(Counter(str(session.outcome) for session in found if not session.same_as), done)
    again = sum(bool(session.same_as) for session in found)
    return f"{told}, {again:,} by a second key" if again else told


def _told(counts: Counter[str], done: bool) -> str:
    words = {
        "new": "brought over" if done else "to bring over",
        "grown": "grown here" if done else "to grow here",
        "same": "here already",
        "left": "left there",
    }
    return ", ".join(f"{counts[name]:,} {word}" for name, word in words.items() if counts[name]) or "none"


def _settings(report: MigrationReport) -> list[str]:
    """How many of each kind, and each that is not simply taken, with the reason."""
    if not report.config:
        return []
    counts = Counter(str(each.outcome) for each in report.config)
    told = ", ".join(f"{counts[name]} {word}" for name, word in SETTINGS.items() if counts[name])
    others = [each for each in report.config if each.outcome != "taken"]
    lines = [f"{len(report.config)} settings of the config: {told}"]
    lines += [
        f"  {each.path}{f' = {each.value}' if each.value else ''} ({each.outcome}): {each.reason}"
        for each in sorted(others, key=lambda each: each.outcome != "held")[:MOST_SETTINGS]
    ]
    return [*lines, "  … (--json lists more)"] if len(others) > MOST_SETTINGS else lines


def _skipped(report: MigrationReport) -> list[str]:
    if not report.skipped_total:
        return []
    lines = ["", f"{report.skipped_total:,} things were skipped:"]
    lines += [f"  {_place(skipped)}: {skipped.reason}" for skipped in report.skipped[:MOST_SKIPPED]]
    if report.skipped_total > MOST_SKIPPED:
        lines.append("  … (--json lists more)")
    return lines


def _place(found: object) -> str:
    file, line = getattr(found, "file", ""), getattr(found, "line", 0)
    return f"{file}:{line}" if line else str(file)
