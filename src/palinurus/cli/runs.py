"""`pal runs`: the last runs, and what one of them did when, as a small timeline."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime

import click

from palinurus.cli.command import command_of
from palinurus.cli.shell import Shell
from palinurus.domain.messages import Usage
from palinurus.ledger.trace import ModelStep, RunLine, RunTrace, Step, ToolStep
from palinurus.operations.runs import RunList, list_runs, show_run
from palinurus.tools.approvals.rendering import visible

BAR = 20  # characters of the whole run
SHORT_ID = 8
NO_LIMIT = 1_000  # where no terminal has an edge


@click.group()
def runs() -> None:
    """Show what runs did and how long it took."""


def list_text(shell: Shell, listed: RunList) -> str:
    if not listed.runs:
        return "No matching runs."
    return "\n".join(_line(shell, run) for run in listed.runs)


def _line(shell: Shell, run: RunLine) -> str:
    when = datetime.fromtimestamp(run.accepted_at / 1000).astimezone()
    took = duration(run.ms - (run.started or 0)) if run.started is not None else ""
    told = [f"{run.model_calls} model", f"{run.tool_calls} tool", tokens(run.usage), visible(run.model)]
    about = " · ".join([*(part for part in told if part), visible(run.session_key)])
    head = f"{visible(run.run_id[:SHORT_ID])}  {when:%m-%d %H:%M:%S}  {run.status:<8} {took:>7}"
    why = f"  {visible(run.error)}" if run.error else ""
    return f"{head}  {shell.dim(about)}{why}"


def timeline(trace: RunTrace, width: int) -> list[str]:
    """One line for each step: when it began, how long it took, and where that lies in the whole."""
    head = [trace.status, visible(trace.model), tokens(trace.usage)]
    lines = [
        f"run      {visible(trace.run_id)}",
        f"session  {visible(trace.session_key)}" + (f" · {visible(trace.channel)}" if trace.channel else ""),
        f"ended    {' · '.join(part for part in head if part)}"
        if trace.status not in ("waiting", "running")
        else f"status   {trace.status}",
    ]
    if trace.joined:
        lines.append(f"joined   {visible(trace.joined)}: that run answered this message too")
    if trace.error:
        kind = f"{visible(trace.error_kind)}: " if trace.error_kind else ""
        lines.append(f"error    {kind}{visible(trace.error)}")
    return [*lines, "", *(_clip(line.rstrip(), max(width, 60)) for line in _rows(trace))]


def _clip(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _rows(trace: RunTrace) -> list[str]:
    whole = max(1, trace.ms)
    rows = [_row(0, trace.started, whole, "waited", "in the queue")]
    end = trace.started or 0
    for step in trace.steps:
        rows.append(_row(step.at, step.ms, whole, *_told(step)))
        rows += [f"{'':>{18 + BAR}}  ! {visible(notice)}" for notice in step.notices]
        end = step.at + (step.ms or 0)
    if trace.left_out:
        rows.append(f"{'':>{18 + BAR}}  and {trace.left_out:,} steps more")
    if trace.status in ("ok", "error", "aborted") and trace.started is not None and not trace.joined:
        rows.append(_row(end, max(0, trace.ms - end), whole, "stored", "and told"))
    return rows


def _row(at: int, ms: int | None, whole: int, what: str, about: str) -> str:
    took = "…" if ms is None else duration(ms)
    first = min(BAR - 1, at * BAR // whole)
    length = max(1, round((whole - at if ms is None else ms) * BAR / whole))
    bar = (" " * first + "█" * length)[:BAR]
    return f"{duration(at):>8} {took:>8} {bar:<{BAR}}  {what:<7} {about}"


def _told(step: Step) -> tuple[str, str]:
    if isinstance(step, ModelStep):
        first = f"first token {duration(step.first_token)}" if step.first_token is not None else ""
        how = step.error or step.stop_reason
        parts = [visible(f"{step.provider}/{step.model}"), first, tokens(step.usage), visible(how)]
        return "model", " · ".join(part for part in parts if part)
    return "tool", _tool_told(step)


def _tool_told(step: ToolStep) -> str:
    asked = ""
    if step.approval:
        asked = f"approval {visible(step.approval)}" + (f" after {duration(step.approval_ms)}" if step.ms else "")
    parts = [visible(step.name), step.where, asked, "error" if step.is_error else ""]
    return " · ".join(part for part in parts if part)


def duration(ms: int) -> str:
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1000:.2f} s" if ms < 60_000 else f"{ms // 60_000}m {ms // 1000 % 60:02d}s"


def tokens(usage: Usage) -> str:
    if not usage.total:
        return ""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    return f"{usage.total - usage.output:,} in{cached}, {usage.output:,} out"


def _show_text(_: Shell, trace: RunTrace) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NO_LIMIT
    return "\n".join(timeline(trace, width))


runs.add_command(command_of(list_runs, list_text))
runs.add_command(command_of(show_run, _show_text))
