"""`pal migrate` imports the home of another program; `pal export` writes this home to files; `pal sessions export` and
`pal sessions import` do the same with one session.
"""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import click
from msgspec.structs import replace

from palinurus.cli.command import call_operation, follow_to_report, make_on_first_run, open_home
from palinurus.cli.shell import LazyGroup, Shell, echo, run_async, with_json
from palinurus.domain.errors import BadRequest, StorageError
from palinurus.domain.events import visible
from palinurus.extensions.migrate.export_tree import ENDING, ExportReport
from palinurus.extensions.migrate.files import find_openclaw, is_export_file, new_file
from palinurus.extensions.migrate.operations import (
    ImportedSession,
    MigrateHome,
    export_home,
    import_session,
    migrate_home,
    write_lines,
)
from palinurus.extensions.migrate.others import Program, find_other
from palinurus.extensions.migrate.report import (
    Finding,
    FoundAgent,
    FoundFile,
    FoundJob,
    FoundSession,
    FoundSetting,
    MigrationReport,
    SkippedItem,
)
from palinurus.operations.sessions import Format, export_session

STAGES = {"sessions": "reading sessions", "files": "checking files"}
INCOMPLETE = 4  # exit code: something could not be read and is missing
MOST_SKIPPED = 20
MOST_SETTINGS = 40

SETTINGS = {
    "taken": "taken",
    "kept-yours": "kept as yours",
    "secret": "secrets not copied",
    "held": "not allowed yet",
    "left": "left there",
    "refused": "refused",
}

OTHERS = """Import the sessions of {program} for the default agent.

{what} Without DIR they are read from {where}. Each line is stored unchanged; doing it twice changes nothing.

\b
Examples:
  pal migrate {program}
  pal migrate {program} --apply
  pal migrate {program} DIR --dry-run --json
"""


@click.group(cls=LazyGroup)
def migrate() -> None:
    """Import the home of another program, or move this one to another database."""


_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show what would be imported. This is the default.")
_APPLY = click.option("--apply", is_flag=True, help="Import it. The other home is not changed.")


@migrate.command("openclaw")
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR|FILE.pal]")
@_DRY_RUN
@_APPLY
@click.option("--keys", is_flag=True, help="With --apply: also stored keys and secrets of the config.")
@click.option("--allow", metavar="KEY", multiple=True, help="Take a risky setting, or all below a key. Repeatable.")
@with_json
@click.pass_obj
def openclaw(shell: Shell, folder: Path | None, dry_run: bool, apply: bool, keys: bool, allow: tuple[str, ...]) -> None:
    """Import an OpenClaw home: agents, sessions, workspaces, skills and settings.

    Without DIR the usual folder of OpenClaw is used; homes of clawdbot and moltbot work too. Nothing here is replaced,
    and nothing there is changed. A second import adds only what is new there. The files of `pal export` are imported
    in the same way.

    Settings that can run a program, move a secret or loosen a rule are shown and not taken: at a terminal you are asked
    about each one; in a script name them with --allow.

    \b
    Examples:
      pal migrate openclaw                      what would be imported
      pal migrate openclaw --apply
      pal migrate openclaw --apply --keys       with keys and secrets
      pal migrate openclaw --apply --allow mcp.servers.notes
      pal migrate openclaw ~/old/.openclaw --dry-run --json
    """
    if keys and not apply:
        raise click.UsageError("--keys goes with --apply.")
    given = folder.absolute() if folder else None
    packed = given is not None and is_export_file(given)
    root = given if given is not None and packed else find_openclaw(os.environ, shell.home.user_home, given)
    _migrate(shell, MigrateHome(str(root), apply, keys, allow=allow), dry_run)


def _migrate(shell: Shell, params: MigrateHome, dry_run: bool) -> None:
    """Exits with an error code if something could not be read."""
    if dry_run and params.apply:
        raise click.UsageError("Either --dry-run or --apply.")
    if params.apply:
        make_on_first_run(shell)
    is_asked = params.program == "openclaw" and not shell.as_json and sys.stdin.isatty() and sys.stderr.isatty()
    if params.apply and is_asked:
        held = [each for each in _follow(shell, replace(params, settings=True)).config if each.outcome == "held"]
        params = replace(params, allow=(*params.allow, *filter(None, map(_allowed, held[:MOST_SETTINGS]))))
    report = _follow(shell, params)
    shell.show(report, lambda: report_text(report, params.program))
    if report.applied and report.skipped_total:
        raise click.exceptions.Exit(INCOMPLETE)


def _follow(shell: Shell, params: MigrateHome) -> MigrationReport:
    again = "try again; it continues"
    report: MigrationReport = follow_to_report(shell, migrate_home, params, lambda at: STAGES[at.stage], hint=again)
    return report


def _allowed(setting: FoundSetting) -> str:
    """The path of a risky setting that the person at the terminal allows; empty: it is not allowed."""
    echo(f"{setting.path} = {setting.value}\n  {setting.reason}", err=True)
    return setting.path if click.confirm("  Take it?", default=False, err=True) else ""


def _other(program: Program, where: str, what: str) -> None:
    """Add the command for one of the other programs."""

    @migrate.command(program, help=OTHERS.format(program=program, where=where, what=what))
    @click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
    @_DRY_RUN
    @_APPLY
    @with_json
    @click.pass_obj
    def command(shell: Shell, folder: Path | None, dry_run: bool, apply: bool) -> None:
        root = find_other(program, os.environ, shell.home.user_home, folder)
        _migrate(shell, MigrateHome(str(root), apply, program=program), dry_run)


_other("claude-code", "~/.claude", "Transcripts are imported, and can be read and searched.")
_other("codex", "~/.codex", "Transcripts are imported, and can be read and searched.")
_other("nanobot", "~/.nanobot", "Transcripts and the files of its workspace are imported.")
_other("hermes", "~/.hermes", "Transcripts in JSONL, SOUL.md and memories/ are imported; its database is not.")


def report_text(report: MigrationReport, program: str = "openclaw") -> str:
    """The report as text."""
    done = report.applied
    lines = [f"{report.source}{f', last used by OpenClaw {report.version}' if report.version else ''}", ""]
    lines += [_agent_line(report, agent) for agent in report.agents]
    sessions = [session for session in report.sessions if not session.same_as]
    entries = sum(sum(session.entries.values()) for session in sessions)
    again = len(report.sessions) - len(sessions)
    told = _outcomes(sessions, done) + (f", {again:,} by a second key" if again else "")
    lines += ["", f"{len(report.sessions)} sessions with {entries:,} entries: {told}"]
    lines.append(f"{len(report.workspace_files)} files of workspaces: {_outcomes(report.workspace_files, done)}")
    lines += _jobs(report)
    keys = f"{len(report.approvals)} allowed commands, {len(report.auth_profiles)} stored keys"
    lines.append(f"{len(report.skills)} skills, {keys}")
    lines += _settings(report)
    if report.secrets_total:
        lines.append(f"{report.secrets_total} places look like secrets, the first in {_place(report.secrets[0])}")
    lines += ["", *(f"note: {note}" for note in report.notes)] if report.notes else []
    lines += [f"note: {session.key}: {session.note}" for session in report.sessions if session.note]
    lines += [
        f"note: cron job {visible(job.name or job.id)!r}: {visible(job.note)}" for job in report.cron_jobs if job.note
    ]
    lines += _skipped(report)
    if not done:
        lines += ["", f"Nothing was changed. `pal migrate {program} --apply` imports it."]
    return "\n".join(lines)


def _agent_line(report: MigrationReport, agent: FoundAgent) -> str:
    sessions = sum(session.agent == agent.id for session in report.sessions)
    files = sum(file.agent == agent.id for file in report.workspace_files)
    name = agent.name or agent.id
    return f"  {agent.id:<16} {name:<20} {sessions:>5} sessions  {files:>5} files  to {agent.into}"


def _outcomes(found: Iterable[FoundSession | FoundFile | FoundJob], done: bool) -> str:
    counts = Counter(str(each.outcome) for each in found)
    words = {
        "new": "brought over" if done else "to bring over",
        "grown": "grown here" if done else "to grow here",
        "changed": "changed here" if done else "to change here",
        "same": "here already",
        "left": "left there",
    }
    return ", ".join(f"{counts[name]:,} {word}" for name, word in words.items() if counts[name]) or "none"


def _jobs(report: MigrationReport) -> list[str]:
    """The number of each outcome, and when each job is due that will run."""
    own = sum(job.managed for job in report.cron_jobs)
    managed = f"; {own} are OpenClaw's own and stay there" if own else ""
    due = [job for job in report.cron_jobs if job.next_run_at]
    jobs = [job for job in report.cron_jobs if not job.managed]
    lines = [f"{len(report.cron_jobs)} cron jobs: {_outcomes(jobs, report.applied)}{managed}"]
    lines += [f"  {visible(job.name or job.id)}: next at {job.next_run_at}" for job in due[:MOST_SKIPPED]]
    return [*lines, "  … (--json lists more)"] if len(due) > MOST_SKIPPED else lines


def _settings(report: MigrationReport) -> list[str]:
    """The number of each outcome, and each setting that was not taken, with the reason."""
    if not report.config:
        return []
    counts = Counter(str(each.outcome) for each in report.config)
    told = ", ".join(f"{counts[name]} {word}" for name, word in SETTINGS.items() if counts[name])
    others = [each for each in report.config if each.outcome != "taken"]
    lines = [f"{len(report.config)} settings of the config: {told}"]
    for each in sorted(others, key=lambda each: each.outcome != "held")[:MOST_SETTINGS]:
        value = f" = {each.value}" if each.value else ""
        lines.append(f"  {each.path}{value} ({each.outcome}): {each.reason}")
    return [*lines, "  … (--json lists more)"] if len(others) > MOST_SETTINGS else lines


def _skipped(report: MigrationReport) -> list[str]:
    if not report.skipped_total:
        return []
    lines = [f"  {_place(skipped)}: {skipped.reason}" for skipped in report.skipped[:MOST_SKIPPED]]
    more = ["  … (--json lists more)"] if report.skipped_total > MOST_SKIPPED else []
    return ["", f"{report.skipped_total:,} things were skipped:", *lines, *more]


def _place(found: SkippedItem | Finding) -> str:
    return f"{found.file}:{found.line}" if found.line else found.file


@click.command("export")
@click.argument("key", metavar="KEY|ID")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="A new file.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "json", "markdown"]),
    default="jsonl",
    show_default=True,
    help="jsonl is what `import` and OpenClaw read.",
)
@click.pass_obj
def export_command(shell: Shell, key: str, out: Path | None, form: Format) -> None:
    """Write a session to standard output or a file.

    \b
    Examples:
      pal sessions export agent:main:main --out main.jsonl
      pal sessions export agent:main:main --format markdown | less
    """
    if out is not None and os.path.lexists(out):
        raise BadRequest(f"{out} already exists", hint="name another file, or move it away")
    if out is None and not sys.stdout.isatty():
        run_async(_write(shell, key, form, sys.stdout.buffer))
    elif out is None:
        shown = io.BytesIO()
        run_async(_write(shell, key, form, shown))
        echo(shown.getvalue().decode(errors="replace"), nl=False)
    else:
        try:
            with new_file(out, replace=True) as file:
                run_async(_write(shell, key, form, file))
        except OSError as error:
            raise StorageError(f"{out} cannot be written: {error.strerror or error}") from None


async def _write(shell: Shell, key: str, form: Format, file: BinaryIO) -> None:
    async with open_home(shell) as home:
        if form == "jsonl":
            async for lines in home.follow(write_lines, write_lines.params(key)):
                file.write(lines.text.encode())
        else:
            file.write((await home.call(export_session, export_session.params(key, form))).content.encode())
    file.flush()


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", default="", help="The key here. Default: the key it had.")
@click.option("--agent", default="", help="The agent here. Default: the agent it had.")
@with_json
@click.pass_obj
def import_command(shell: Shell, file: Path, key: str, agent: str) -> None:
    """Import an exported session or a transcript of OpenClaw. Importing twice changes nothing.

    \b
    Examples:
      pal sessions import main.jsonl
      pal sessions import old.jsonl --key agent:main:explicit:old
    """
    make_on_first_run(shell)
    done = call_operation(shell, import_session, import_session.params(str(file.absolute()), key, agent))
    shell.show(done, lambda: _text(done))


def _text(done: ImportedSession) -> str:
    found = done.session
    what = {"new": "is here now", "grown": "has grown here", "same": "is here already", "left": "was left"}
    lines = [f"{found.key} {what[found.outcome]}: {sum(found.entries.values()):,} entries."]
    lines += [f"note: {found.note}"] if found.note else []
    lines += [f"skipped: line {each.line}: {each.reason}" for each in done.skipped[:20]]
    return "\n".join(lines)


@click.command("export")
@click.argument("into", type=click.Path(path_type=Path), metavar="DIR|FILE.pal")
@with_json
@click.pass_obj
def export(shell: Shell, into: Path) -> None:
    """Write the home in OpenClaw's layout to a new folder, or to one file that ends in .pal.

    It has the sessions, workspaces and skills of all agents; keys, models and channels are left out. `pal migrate
    openclaw` imports either form into another home without a difference.

    \b
    Examples:
      pal export ~/for-openclaw
      pal export ~/home.pal              then: pal migrate openclaw ~/home.pal --apply
    """
    if not shell.home.is_used:
        raise BadRequest(f"there is no home in {shell.home.root} yet", hint="`pal chat` makes one")
    params = export_home.params(str(into.absolute()))
    report: ExportReport = follow_to_report(shell, export_home, params, lambda _: "writing sessions")
    shell.show(report, lambda: _export_text(report))


def _export_text(report: ExportReport) -> str:
    jobs = f", {report.cron_jobs} cron jobs" if report.cron_jobs else ""
    counts = f"{report.sessions} sessions with {report.entries:,} entries{jobs} and {report.files:,} files"
    lines = [f"{counts} of {len(report.agents)} agents are in {report.into}."]
    lines += [f"left out: {skipped.file}: {skipped.reason}" for skipped in report.skipped]
    if report.into.endswith(ENDING):
        lines.append(f"`pal migrate openclaw {report.into} --apply` brings them into another home.")
    return "\n".join(lines)
