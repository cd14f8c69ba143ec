"""`pal cron`: cron jobs and reminders, when they are due and how they went."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, get_args

import click
import msgspec

from palinurus.cli.command import add_operation, call_operation, complete_agents
from palinurus.cli.shell import CommandGroup, Shell, columns, confirm, count_of, echo, moment, shorten, with_shell
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import visible
from palinurus.extensions.schedule import operations
from palinurus.extensions.schedule.calendar import Calendar, CalendarEntry, CronRun
from palinurus.extensions.schedule.cron_job import CatchUp, DeliveryMode
from palinurus.extensions.schedule.drafts import NOT_APPROVED, CronDraft, CronJobInfo
from palinurus.extensions.schedule.operations import CronJobList, CronRunList, CronStatus
from palinurus.extensions.schedule.when import parse_duration, parse_every

MOST_NAME = 40
KINDS = {"message": "agentTurn", "system_event": "systemEvent", "reminder": "reminder", "command": "command"}


@click.group(cls=CommandGroup)
def cron() -> None:
    """Reminders and cron jobs: run the agent at set times.

    Cron jobs need a process that stays: `pal gateway run`, `pal up` or `pal chat`.
    """


FIELDS = (
    click.option("--name", default="", help="What it is called. Default: the beginning of its text."),
    click.option("--at", default="", metavar="WHEN", help='Once: "in 20 minutes", "tomorrow at 9", 2026-12-01T09:00.'),
    click.option("--every", default="", metavar="DUR", help='Again and again: 30m, "2 hours", "weekday at 8".'),
    click.option("--cron", "expr", default="", metavar="EXPR", help='"0 8 * * 1-5": 5 fields, or 6 with seconds.'),
    click.option("--tz", default="", metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin."),
    click.option("--exact", is_flag=True, help="Not up to 5 minutes later at full hours."),
    click.option("--stagger", default="", metavar="DUR", help="Up to so much later, always the same."),
    click.option("--message", default="", help="Run the agent with this message."),
    click.option("--system-event", default="", metavar="TEXT", help="Send this message to the main session."),
    click.option("--reminder", default="", metavar="TEXT", help="Tell you this; no model is called."),
    click.option("--command", default="", help="Run this command; you approve exactly it."),
    click.option("--session", default="", metavar="TARGET", help="main, isolated (new each time) or session:KEY."),
    click.option("--agent", default="", metavar="ID", shell_complete=complete_agents, help="Whose it is."),
    click.option("--description", default="", help="What it is for."),
    click.option("--model", default="", metavar="PROVIDER/MODEL", help="For its runs, with --message."),
    click.option("--thinking", default="", metavar="LEVEL", help="For its runs, with --message."),
    click.option("--timeout", type=click.FloatRange(1, 3600), metavar="SECONDS", help="For its runs or its command."),
    click.option("--light-context", is_flag=True, help="Without the files of the workspace, with --message."),
    click.option("--tools", default="", metavar="NAMES", help="Only these tools, separated by commas; with --message."),
    click.option("--cwd", default="", metavar="DIR", help="Where the command runs. Default: the workspace."),
    click.option("--deliver", type=click.Choice(get_args(DeliveryMode)), help="What happens to a result."),
    click.option("--channel", default="", help="Where it is announced. Default: where you wrote from last."),
    click.option("--to", default="", help="To whom it is announced, or the URL of the webhook."),
    click.option("--account", default="", help="By which account of the channel."),
    click.option("--thread", default="", help="In which thread."),
    click.option("--catch-up", type=click.Choice(get_args(CatchUp)), help="After a sleep: run one, none or all."),
    click.option("--keep/--delete-after-run", default=None, help="Whether a one-shot stays in the list."),
    click.option("--yes", is_flag=True, help="Approve a command without being asked."),
)  # fmt: skip


def with_fields(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(FIELDS):
        function = option(function)
    return function


@cron.command("add")
@with_fields
@click.option("--disabled", is_flag=True, help="Add it without running it.")
@with_shell
def add(shell: Shell, /, **given: Any) -> None:
    """Add a cron job or a reminder.

    \b
    Examples:
      pal cron add --at "in 20 minutes" --reminder "stretch"
      pal cron add --name briefing --cron "0 8 * * 1-5" --message "What is on today?"
      pal cron add --every "weekday at 17:30" --session main --message "Ask me how the day went."
      pal cron add --every 1h --command "git -C notes pull" --deliver none
    """
    fields = read_fields(given)
    if "schedule" not in fields or "kind" not in fields.get("payload", {}):
        raise BadRequest(
            "the time or the action is missing",
            hint="--at, --every or --cron, and --message, --system-event, --reminder or --command",
        )
    text = next(given[name] for name in KINDS if given[name])
    fields = {"name": shorten(" ".join(text.split()), MOST_NAME), "enabled": not given["disabled"], **fields}
    try:
        draft = msgspec.convert(fields, CronDraft)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from None
    made = call_operation(shell, operations.add_cron_job, draft)
    if given["command"]:
        made = _approve(shell, made.id, yes=given["yes"], is_new=True)
    shell.show(made, lambda: f"Added {line_of(made)}{_waits(shell)}")


@cron.command("edit")
@click.argument("id", metavar="ID|NAME")
@with_fields
@with_shell
def edit(shell: Shell, /, **given: Any) -> None:
    """Change a cron job. What is not named stays.

    \b
    Examples:
      pal cron edit briefing --cron "30 7 * * 1-5"
      pal cron edit briefing --deliver announce --channel telegram --to 42
    """
    fields = read_fields(given)
    if not fields:
        raise BadRequest("nothing is to be changed", hint="`pal cron edit --help` lists what can be")
    changed = call_operation(shell, operations.update_cron_job, id=given["id"], patch=fields)
    if changed.disabled_why == NOT_APPROVED:
        changed = _approve(shell, changed.id, yes=given["yes"])
    shell.show(changed, lambda: f"Changed {line_of(changed)}")


@cron.command("approve")
@click.argument("id", metavar="ID|NAME")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_shell
def approve(shell: Shell, id: str, yes: bool) -> None:  # noqa: A002  as the operation calls it
    """Approve exactly the command of a cron job, after it was shown; or trust a text from outside as your own.

    \b
    Example:
      pal cron approve backup
    """
    approved = _approve(shell, id, yes=yes)
    shell.show(approved, lambda: f"Approved {line_of(approved)}")


def _approve(shell: Shell, job: str, *, yes: bool, is_new: bool = False) -> CronJobInfo:
    """A new one that is not approved is not added."""
    try:
        plan = call_operation(shell, operations.show_command_plan, id=job)
        for line in plan.lines:
            echo(f"  {line}", err=True)
        if not yes:
            confirm("pal cron", plan.question)
        return call_operation(shell, operations.approve_cron_job, id=job, digest=plan.digest)
    except (BadRequest, click.Abort):
        if is_new:
            call_operation(shell, operations.remove_cron_job, id=job)
        raise


def read_fields(given: dict[str, Any]) -> dict[str, Any]:
    """The fields that were named, as `cron.add` and `cron.update` take them. Raises BadRequest."""
    plain = {"name": "name", "description": "description", "agent": "agentId", "session": "sessionTarget"}
    plain |= {"catch_up": "catchUp"}
    fields: dict[str, Any] = {wire: given[name] for name, wire in plain.items() if given[name]}
    if given["keep"] is not None:
        fields["deleteAfterRun"] = not given["keep"]
    delivery = {"deliver": "mode", "channel": "channel", "to": "to", "account": "accountId", "thread": "threadId"}
    parts = {
        "schedule": read_schedule(given),
        "payload": read_payload(given),
        "delivery": {wire: given[name] for name, wire in delivery.items() if given[name]},
    }
    return fields | {name: part for name, part in parts.items() if part}


def read_schedule(given: dict[str, Any]) -> dict[str, Any]:
    if sum(map(bool, (given["at"], given["every"], given["expr"]))) > 1:
        raise BadRequest("give only one of --at, --every and --cron")
    if (given["tz"] or given["exact"] or given["stagger"]) and (given["at"] or given["every"]):
        raise BadRequest("--tz, --exact and --stagger go with --cron")
    if given["at"]:
        return {"kind": "at", "at": given["at"]}
    if given["every"]:
        from datetime import UTC

        every: dict[str, Any] = msgspec.to_builtins(parse_every(given["every"], 0, UTC))  # counted from now by the home
        return every
    stagger = 0 if given["exact"] else parse_duration(given["stagger"]) if given["stagger"] else None
    named = {"expr": given["expr"], "tz": given["tz"], "staggerMs": stagger}
    found = {name: value for name, value in named.items() if value not in ("", None)}
    return {"kind": "cron", **found} if found else {}


def read_payload(given: dict[str, Any]) -> dict[str, Any]:
    kinds = [name for name in KINDS if given[name]]
    if len(kinds) > 1:
        raise BadRequest("give only one of --message, --system-event, --reminder and --command")
    kind = kinds[0] if kinds else ""
    of_turns = {"model": given["model"], "thinking": given["thinking"], "lightContext": given["light_context"]}
    of_turns |= {"toolsAllow": [each.strip() for each in given["tools"].split(",") if each.strip()]}
    more = {name: value for name, value in of_turns.items() if value}
    more |= {"timeoutSeconds": given["timeout"]} if given["timeout"] else {}
    more |= {"cwd": given["cwd"]} if given["cwd"] else {}
    if kind in ("system_event", "reminder") and more:
        raise BadRequest(f"--{kind.replace('_', '-')} has no {next(iter(more))}", hint="use --message")
    if kind == "command":
        try:
            return {"kind": "command", "argv": shlex.split(given["command"]), **more}
        except ValueError as error:
            raise BadRequest(f"--command cannot be read: {error}") from None
    named = {"message": given["message"]} if kind == "message" else {"text": given[kind]} if kind else {}
    return {**({"kind": KINDS[kind]} if kind else {}), **named, **more}


@cron.command("run")
@click.argument("id", metavar="ID|NAME")
@click.option("--mode", type=click.Choice(["force", "due"]), default="force", help="due: only if it is overdue.")
@click.option("--wait", type=float, default=600.0, show_default=True, help="Seconds to wait for its end.")
@with_shell
def run(shell: Shell, /, **given: Any) -> None:
    """Run a cron job now, besides its due times, and wait for its end.

    \b
    Examples:
      pal cron run briefing
      pal cron run briefing --wait 0
    """
    started = call_operation(shell, operations.run_cron_job, **given)
    shell.show(started, lambda: "\n".join(_run_lines(shell, started.run)) if started.run else "It is not overdue.")


def line_of(job: CronJobInfo) -> str:
    """`briefing (3f2a…): Mon 2026-11-23 08:02, at 08:00 on Monday through Friday`."""
    when = job.when if job.when != "once" or not job.next_run else ""
    state = "" if job.enabled else f"disabled{f': it {job.disabled_why}' if job.disabled_why else ''}"
    return f"{visible(job.name)} ({job.id}): {', '.join(filter(None, (job.next_run, when, state)))}"


def _waits(shell: Shell) -> str:
    running = call_operation(shell, operations.show_cron_status).running
    return "" if running else "\nIt waits for a process that stays: `pal gateway run`, `pal up` or `pal chat`."


def list_text(shell: Shell, listed: CronJobList) -> str:
    if not listed.jobs:
        return 'There are no cron jobs. For example: pal cron add --at "in 20 minutes" --reminder "stretch"'
    rows = [
        (
            job.id[:8],
            job.next_run or ("disabled" if not job.enabled else "—"),
            visible(shorten(job.name, MOST_NAME)),
            job.last_status or "",
            f"${job.cost:.4f}" if job.cost else "",
            shell.dim(visible(shorten(f"{job.when}: {job.text}", 80))),
        )
        for job in listed.jobs
    ]
    lines = [line.rstrip() for line in columns(rows)]
    lines += [
        f"  {visible(job.name)}: {visible(why)}" for job in listed.jobs if (why := job.last_error or job.disabled_why)
    ]
    more = [f"And {listed.total - len(listed.jobs):,} more."] if listed.total > len(listed.jobs) else []
    paused = ["Everything is paused: `pal cron resume`."] if listed.paused else []
    return "\n".join([*lines, *more, *paused])


def show_text(_: Shell, job: CronJobInfo) -> str:
    rows = [
        ("name", visible(job.name)),
        ("id", job.id),
        ("agent", job.agent_id),
        ("when", job.when),
        ("next", job.next_run or ("disabled" if not job.enabled else "—")),
        ("does", f"{msgspec.to_builtins(job.payload)['kind']}: {visible(job.text)}"),
        ("session", visible(job.session_target)),
        ("result", " ".join(filter(None, (job.delivery.mode, job.delivery.channel, visible(job.delivery.to))))),
        ("catch-up", job.catch_up),
        ("last", f"{job.last_status} {job.last_run_at}" if job.last_status else "—"),
        ("error", visible(job.last_error or job.disabled_why)),
        ("cost", _cost(job)),
        ("sources", visible(", ".join(job.sources))),
        ("trust", f"text from outside; `pal cron approve {job.id}` trusts it" if job.outside else ""),
    ]
    return "\n".join(columns([row for row in rows if row[1]]))


def _cost(job: CronJobInfo) -> str:
    so_far = f"{count_of(job.runs, 'run')}, {'unknown' if job.cost is None else f'${job.cost:.4f}'}"
    return f"{so_far}, about ${job.forecast:.4f} a run" if job.forecast else so_far


def runs_text(shell: Shell, found: CronRunList) -> str:
    if not found.runs:
        return "Nothing was due yet."
    return "\n".join(line for run in reversed(found.runs) for line in _run_lines(shell, run))


def _run_lines(shell: Shell, run: CronRun) -> list[str]:
    facts = (
        f"{run.duration_ms / 1000:.0f} s" if run.duration_ms >= 1000 else "",
        f"{run.tokens:,} tokens" if run.tokens else "",
        f"${run.cost:.4f}" if run.cost else "",
        "by hand" if run.by_hand else "imported" if run.imported else "",
        run.run_id,
    )
    head = f"{moment(run.at_ms)}  {run.status:<7}  {visible(run.name)}  {shell.dim(', '.join(filter(None, facts)))}"
    return [head.rstrip(), *(f"  {shell.dim(visible(text))}" for text in (run.reason, run.text) if text)]


def calendar_text(shell: Shell, found: Calendar) -> str:
    lines, day = [], ""
    for entry in found.entries:
        if entry.at[:10] != day:
            day = entry.at[:10]
            lines.append(f"{moment(entry.at_ms, '%a')} {day}")
        lines.append(_entry_line(shell, entry))
    cut = ["… and more: use --until or --limit."] if found.cut else []
    unknown = f", {count_of(found.unknown, 'time')} unknown" if found.unknown else ""
    sums = f"Cost so far ${found.cost:.4f}, forecast ${found.forecast:.4f}{unknown}."
    paused = ["Everything is paused: `pal cron resume`."] if found.paused else []
    return "\n".join([*(lines or ["Nothing is due."]), *cut, sums, *paused])


def _entry_line(shell: Shell, entry: CalendarEntry) -> str:
    cost = entry.forecast if entry.status == "planned" else entry.cost
    about = "~" if entry.status == "planned" else ""
    shown = f"{about}${cost:.4f}" if cost else ""
    why = shell.dim(visible(shorten(entry.reason, 80))) if entry.reason else ""
    return "  ".join(("", entry.at[11:16], f"{entry.status:<7}", visible(entry.name), shown, why)).rstrip()


def status_text(_: Shell, status: CronStatus) -> str:
    if status.paused:
        state = "paused"
    elif not status.enabled:
        state = "off (cron.enabled is false)"
    else:
        state = (
            "on" if status.running else "waiting for a process that stays: `pal gateway run`, `pal up` or `pal chat`"
        )
    following = f", next {status.next_run} {visible(status.next_name)}" if status.next_run else ""
    failing = [f"Failing: {visible(', '.join(status.failing))}."] if status.failing else []
    jobs = f"{count_of(status.jobs, 'cron job')}, {status.enabled_jobs} enabled{following}."
    return "\n".join([f"The clock is {state}.", jobs, *failing])


add_operation(cron, operations.list_cron_jobs, list_text)
add_operation(cron, operations.show_cron_job, show_text)
add_operation(cron, operations.remove_cron_job, lambda _, gone: f"Removed {visible(gone.name)} ({gone.id}).", name="rm")
add_operation(cron, operations.enable_cron_job, lambda _, job: f"Enabled {line_of(job)}")
add_operation(cron, operations.disable_cron_job, lambda _, job: f"Disabled {line_of(job)}")
add_operation(cron, operations.list_cron_runs, runs_text)
add_operation(cron, operations.list_next_times, lambda _, times: "\n".join(times) or "It is not due any more.")
add_operation(cron, operations.show_calendar, calendar_text)
add_operation(cron, operations.pause_cron, lambda _, __: "Everything is paused: `pal cron resume` goes on.")
add_operation(cron, operations.resume_cron, lambda _, __: "The clock goes on.")
add_operation(cron, operations.show_cron_status, status_text)
