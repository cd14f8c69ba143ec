"""`pal heartbeat`: how it stands, on and off, look now, tell it something."""

from __future__ import annotations

import click

from palinurus.cli.command import add_operation, call_operation, complete_agents
from palinurus.cli.shell import CommandGroup, Shell, columns, confirm, count_of, echo, moment, with_shell
from palinurus.domain.events import visible
from palinurus.extensions.schedule.forecast import ForecastRange, HeartbeatForecast
from palinurus.extensions.schedule.heartbeat_operations import (
    HeartbeatChange,
    HeartbeatInfo,
    HeartbeatRun,
    HeartbeatStatus,
    disable_heartbeat,
    enable_heartbeat,
    run_heartbeat,
    show_heartbeats,
    wake_heartbeat,
)


@click.group(cls=CommandGroup)
def heartbeat() -> None:
    """Run the agent at intervals with the list in HEARTBEAT.md."""


@heartbeat.command()
@click.option("--every", metavar="TIME", default="30m", show_default=True, help="Time between two checks.")
@click.option("--agent", metavar="ID", default="", shell_complete=complete_agents, help="Else the default one.")
@click.option("--dry-run", is_flag=True, help="Only show what it will cost.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_shell
def enable(shell: Shell, every: str, agent: str, dry_run: bool, yes: bool) -> None:
    """Turn the heartbeat on, after showing what it will cost in a month.

    \b
    Examples:
      pal heartbeat enable --dry-run
      pal heartbeat enable --every 1h --yes
    """
    values = {"every": every, "agent": agent}
    if not yes:
        seen = call_operation(shell, enable_heartbeat, **values, dry_run=True)
        if dry_run:
            shell.show(seen, lambda: forecast_text(seen))
            return
        echo(forecast_text(seen), err=True)
        confirm("pal heartbeat enable", f"Turn the heartbeat of {seen.agent} on?")
    done = call_operation(shell, enable_heartbeat, **values, dry_run=dry_run)
    shell.show(done, lambda: forecast_text(done) if yes else _enabled_text(done))


def forecast_text(change: HeartbeatChange) -> str:
    made = change.forecast
    head = [_enabled_text(change)] if change.on else []
    return "\n".join((*head, *(_forecast_lines(made) if made else ())))


def _forecast_lines(made: HeartbeatForecast) -> list[str]:
    basis = f"from the last {count_of(made.from_days, 'day')}" if made.from_days else "a rough guess without past runs"
    rows = [
        ("checks", f"{made.looks:,} in 30 days; most call no model"),
        ("model calls", _range(made.calls, "{:,.0f}")),
        ("tokens", _range(made.tokens, "{:,.0f}")),
        ("cost", _range(made.dollars, "${:,.2f}") if made.dollars else "unknown"),
    ]
    return [f"Estimate for a month: {basis}; nine of ten months are in the range.", *columns(rows), *made.remarks]


def _range(found: ForecastRange, form: str) -> str:
    return f"{form.format(found.expected)}  ({form.format(found.low)} – {form.format(found.high)})"


def _enabled_text(change: HeartbeatChange) -> str:
    return f"The heartbeat of {change.agent} is on: every {_time(change.every_ms)}. It needs a running gateway."


def _time(milliseconds: int) -> str:
    minutes = milliseconds // 60_000
    return f"{minutes // 60} h" if minutes and minutes % 60 == 0 else f"{minutes} min"


def status_text(shell: Shell, status: HeartbeatStatus) -> str:
    lines = ["Everything is paused: `pal cron resume`."] if status.paused else []
    for each in status.heartbeats:
        lines += _info_lines(shell, each)
    return "\n".join(lines)


def _info_lines(shell: Shell, each: HeartbeatInfo) -> list[str]:
    if not each.on:
        return [f"{each.agent}: off"]
    due = f", next {moment(each.next_at_ms)}" if each.next_at_ms else ""
    rows = [("session", each.session), ("reports to", each.target), ("active", each.active_hours)]
    if each.last_at_ms:
        why = f": {each.last_reason}" if each.last_reason else ""
        rows.append(("last", f"{moment(each.last_at_ms)} {each.last_status}{why}"))
    rows.append(("30 days", f"{each.looks:,} due, {count_of(each.calls, 'call')} of a model, {each.tokens:,} tokens"))
    rows += [("probe", f"{probe.command}{'' if probe.approved else f'  ({probe.why})'}") for probe in each.probes]
    rows += [("notes", f"{each.notes} for the next check")] if each.notes else []
    lines = [f"  {line}" for line in columns(rows)]
    return [f"{each.agent}: every {_time(each.every_ms)}{due}", *map(visible, lines), *each.remarks]


def run_text(_: Shell, done: HeartbeatRun) -> str:
    lines = (f"{done.status}: {done.reason}".rstrip(": "), *done.text.splitlines())
    return "\n".join(map(visible, lines))


add_operation(heartbeat, show_heartbeats, status_text)
add_operation(heartbeat, run_heartbeat, run_text, exit_code=lambda done: int(done.status == "failed"))
add_operation(
    heartbeat,
    disable_heartbeat,
    lambda _, done: f"The heartbeat of {done.agent} {'is off' if done.written else 'was off already'}.",
)
add_operation(
    heartbeat,
    wake_heartbeat,
    lambda _, done: f"{done.agent} is told {'now' if done.mode == 'now' else 'with its next heartbeat'}.",
)
