"""`pal audit`, `pal usage`, `pal runs` and `pal logs`: what was done, in a chain that shows tampering, what
models cost, the timeline of a run, and the log.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from palinurus.cli.command import add_operation, call_operation, command_of
from palinurus.cli.shell import CommandGroup, Shell, confirm, count_of, echo, moment, shorten, with_shell
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import visible
from palinurus.domain.messages import Usage
from palinurus.ledger.audit import AuditReport, AuditRow
from palinurus.ledger.trace import ModelStep, RunLine, RunTrace, Step, ToolStep
from palinurus.ledger.usage import UsageTotal
from palinurus.operations import ledger as operations
from palinurus.operations.ledger import MOST_ERASED, AuditPage, UsageReport, erase_audit
from palinurus.operations.logs import LEVELS, LogLine, follow_logs, log_filter, read_logs
from palinurus.operations.runs import RunList, list_runs, show_run

SECOND = "%m-%d %H:%M:%S"
SEQS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


@click.group(cls=CommandGroup)
def audit() -> None:
    """Show the audit log of tool calls; verify it."""


@audit.command("erase")
@click.argument("seqs", nargs=-1, required=True, metavar="SEQ...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_shell
def erase(shell: Shell, seqs: tuple[str, ...], yes: bool) -> None:
    """Permanently erase the arguments and results of rows. The rows themselves and the chain stay.

    \b
    Examples:
      pal audit erase 12 --yes
      pal audit erase 12 40-52
    """
    wanted = _numbers(seqs)
    if not yes:
        rows = count_of(len(wanted), "row")
        confirm("pal audit erase", f"Erase the arguments and results of {rows}? This cannot be undone.")
    erased = call_operation(shell, erase_audit, seqs=wanted)
    left = erased.asked - erased.erased
    rest = f" {left:,} had none, or do not exist." if left else ""
    shell.show(erased, lambda: f"Erased the details of {count_of(erased.erased, 'row')}; the chain says so.{rest}")


def _numbers(words: Sequence[str]) -> tuple[int, ...]:
    """Rows by number, or from one to another."""
    numbers: set[int] = set()
    for word in words:
        match = SEQS.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise BadRequest(f"not a row of the audit log: {word!r}", hint="a number such as 12, or 40-52")
        if last - first >= MOST_ERASED:
            raise BadRequest(f"{word} is too many rows at once", hint=f"at most {MOST_ERASED:,}")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def _page_text(shell: Shell, page: AuditPage) -> str:
    if not page.rows:
        return "No matching rows."
    width = shutil.get_terminal_size().columns
    number = max(len(str(row.seq)) for row in page.rows)
    return "\n".join(line for row in page.rows for line in _row_lines(shell, row, number, width))


def _row_lines(shell: Shell, row: AuditRow, number: int, width: int) -> list[str]:
    when = moment(row.at, SECOND)
    head = f"{row.seq:>{number}}  {when}  {row.kind:<8}  {visible(row.tool)}  {visible(row.outcome)}"
    about = " ".join(part for part in (visible(row.session_key), visible(row.run_id[:8])) if part)
    told = "(erased)" if row.details is None else visible(_gist(row.details))
    lines = [f"{head}  {shell.dim(about)}".rstrip()]
    return [*lines, f"{'':<{number}}  {shell.dim(shorten(told, max(20, width - number - 2)))}"] if told else lines


def _gist(details: dict[str, Any]) -> str:
    """The one thing that a person looks for: what was to be done, what came of it, why not."""
    plan = details.get("plan")
    candidates = (plan.get("summary") if isinstance(plan, dict) else None, details.get("text"), details.get("why"))
    said = next((text for text in candidates if isinstance(text, str) and text.strip()), "")
    return said.strip() or (msgspec.json.encode(details).decode() if details else "")


def _report_text(shell: Shell, report: AuditReport) -> str:
    if not report.ok:
        shell.warn(f"the audit log was changed: {visible(report.trouble)}")
        return ""
    erased = f"; the details of {report.erased:,} are erased" if report.erased else ""
    return f"The chain is intact: {count_of(report.rows, 'row')}{erased}.\nhead  {report.head}"


add_operation(audit, operations.show_audit, _page_text)
add_operation(audit, operations.verify_audit, _report_text, exit_code=lambda report: 0 if report.ok else 1)


SMALLEST_BAR = 4


def chart(report: UsageReport, width: int) -> str:
    """One bar for each total, as long as its share of the largest, in lines of at most `width` characters."""
    if not report.totals:
        return "No usage yet."
    rows = [
        (_shorten_name(total.name, max(12, width // 3)), f"{_count(total.usage.total):>6} tokens  {money(total):>9}")
        for total in (*report.totals, report.total)
    ]
    names, figures = (max(len(row[column]) for row in rows) for column in (0, 1))
    room = max(SMALLEST_BAR, width - names - figures - 4)
    most = max(total.usage.total for total in report.totals)
    lines = []
    for (name, told), total in zip(rows, report.totals, strict=False):
        share = total.usage.total / most if most else 0
        bar = "#" * max(1 if total.usage.total else 0, round(room * share))
        lines.append(f"{name:<{names}}  {bar:<{room}}  {told:>{figures}}")
    lines.append(f"{rows[-1][0]:<{names}}  {'':<{room}}  {rows[-1][1]:>{figures}}")
    if report.total.unpriced:
        lines.append(f"{report.total.unpriced:,} of {report.total.calls:,} calls have no known price.")
    return "\n".join(lines)


def money(total: UsageTotal) -> str:
    """US dollars; a dash when no call has a price, a plus behind it when some have none."""
    if total.unpriced == total.calls:
        return "-"
    amount = f"${total.cost:.2f}" if total.cost >= 1 or not total.cost else f"${total.cost:.4f}"
    return f"{amount}+" if total.unpriced else amount


def _count(tokens: int) -> str:
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{tokens / 1_000:.1f}k" if tokens >= 10_000 else f"{tokens:,}"


def _shorten_name(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most - most // 2) :]}"


usage = command_of(
    operations.usage_totals, lambda _, report: chart(report, shutil.get_terminal_size().columns), name="usage"
)


BAR = 20  # characters of the whole run
SHORT_ID = 8
NO_LIMIT = 1_000  # where no terminal has an edge


@click.group(cls=CommandGroup)
def runs() -> None:
    """Show what runs did and how long it took."""


def _runs_text(shell: Shell, listed: RunList) -> str:
    return "\n".join(_run_line(shell, run) for run in listed.runs) or "No matching runs."


def _run_line(shell: Shell, run: RunLine) -> str:
    when = moment(run.accepted_at, SECOND)
    took = duration(run.ms - (run.started or 0)) if run.started is not None else ""
    told = [f"{run.model_calls} model", f"{run.tool_calls} tool", tokens(run.usage), visible(run.model)]
    about = " · ".join([*(part for part in told if part), visible(run.session_key)])
    head = f"{visible(run.run_id[:SHORT_ID])}  {when}  {run.status:<8} {took:>7}"
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
    return [*lines, "", *(shorten(line.rstrip(), max(width, 60)) for line in _step_rows(trace))]


def _step_rows(trace: RunTrace) -> list[str]:
    whole = max(1, trace.ms)
    rows = [_step_row(0, trace.started, whole, "waited", "in the queue")]
    end = trace.started or 0
    for step in trace.steps:
        rows.append(_step_row(step.at, step.ms, whole, *_step_text(step)))
        rows += [f"{'':>{18 + BAR}}  ! {visible(notice)}" for notice in step.notices]
        end = step.at + (step.ms or 0)
    if trace.left_out:
        rows.append(f"{'':>{18 + BAR}}  and {trace.left_out:,} steps more")
    if trace.status in ("ok", "error", "aborted") and trace.started is not None and not trace.joined:
        rows.append(_step_row(end, max(0, trace.ms - end), whole, "stored", "and answered"))
    return rows


def _step_row(at: int, ms: int | None, whole: int, what: str, about: str) -> str:
    took = "…" if ms is None else duration(ms)
    first = min(BAR - 1, at * BAR // whole)
    length = max(1, round((whole - at if ms is None else ms) * BAR / whole))
    bar = (" " * first + "█" * length)[:BAR]
    return f"{duration(at):>8} {took:>8} {bar:<{BAR}}  {what:<7} {about}"


def _step_text(step: Step) -> tuple[str, str]:
    if isinstance(step, ModelStep):
        first = f"first token {duration(step.first_token)}" if step.first_token is not None else ""
        how = step.error or step.stop_reason
        parts = [visible(f"{step.provider}/{step.model}"), first, tokens(step.usage), visible(how)]
        return "model", " · ".join(part for part in parts if part)
    return "tool", _tool_text(step)


def _tool_text(step: ToolStep) -> str:
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


def _trace_text(_: Shell, trace: RunTrace) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NO_LIMIT
    return "\n".join(timeline(trace, width))


add_operation(runs, list_runs, _runs_text)
add_operation(runs, show_run, _trace_text)


LOOK_SECONDS = 0.2
COLORS = {"warning": "yellow", "error": "red"}


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines until Ctrl-C.")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True, help="This level and above.")
@click.option("--run", default="", metavar="ID", help="Only this run: its id or the beginning of it.")
@click.option(
    "--lines", "-n", type=click.IntRange(0, 100_000), default=100, show_default=True, help="Number of last lines."
)
@with_shell
def logs(shell: Shell, follow: bool, level: str, run: str, lines: int) -> None:
    """Show the log: runs, failovers, config reloads, who holds the home.

    With --json each line is one JSON object, as in the file. Tracebacks are shown below the line they belong to.

    \b
    Examples:
      pal logs -f
      pal logs --level warning -n 20
      pal logs --run 3f9a --json
    """
    wanted = log_filter(level, run)
    for line in read_logs(shell.home.root, wanted, lines) if lines else ():
        echo(_log_text(shell, line))
    if follow:
        try:
            for line in follow_logs(shell.home.root, wanted, lambda: time.sleep(LOOK_SECONDS)):
                echo(_log_text(shell, line))
        except KeyboardInterrupt:
            return


def _log_text(shell: Shell, line: LogLine) -> str:
    if shell.as_json:
        return msgspec.json.encode(line).decode()
    when = datetime.fromisoformat(line.at).astimezone()
    level = f"{line.level:<7}"
    if shell.color and line.level in COLORS:
        level = click.style(level, fg=COLORS[line.level])
    about = " ".join(part for part in (line.session, line.run[:8]) if part)
    shown = f"{shell.dim(f'{when:{SECOND}}')} {level} {line.text}" + (shell.dim(f"  {about}") if about else "")
    return shown + "".join(f"\n    {row}" for row in line.trace.splitlines())
