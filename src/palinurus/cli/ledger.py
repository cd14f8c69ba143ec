"""`pal audit` and `pal usage`: what tools did, in a chain that shows tampering, and what models cost."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from palinurus.cli.command import call_operation, command_of
from palinurus.cli.shell import Shell, with_json
from palinurus.domain.errors import BadRequest
from palinurus.ledger.audit import AuditReport, AuditRow
from palinurus.ledger.usage import UsageTotal
from palinurus.operations.ledger import (
    MOST_ERASED,
    AuditPage,
    UsageReport,
    erase_audit,
    show_audit,
    usage_totals,
    verify_audit,
)
from palinurus.tools.approvals.rendering import visible

SEQS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


@click.group()
def audit() -> None:
    """Show the audit log of tool calls; verify it."""


@audit.command("erase")
@click.argument("seqs", nargs=-1, required=True, metavar="SEQ...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
@click.pass_obj
def erase(shell: Shell, seqs: tuple[str, ...], yes: bool) -> None:
    """Permanently erase the arguments and results of rows. The rows themselves and the chain stay.

    \b
    Examples:
      pal audit erase 12 --yes
      pal audit erase 12 40-52
    """
    wanted = _numbers(seqs)
    if not yes:
        _confirm(len(wanted))
    erased = call_operation(shell, erase_audit, erase_audit.params(wanted))
    left = erased.asked - erased.erased
    rest = f" {left:,} had none, or do not exist." if left else ""
    shell.show(erased, lambda: f"Erased the details of {_rows(erased.erased)}; the chain says so.{rest}")


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


def _confirm(count: int) -> None:
    if not sys.stdin.isatty():
        raise BadRequest("pal audit erase needs a terminal", hint="use --yes")
    click.confirm(f"Erase the arguments and results of {_rows(count)}? This cannot be undone.", abort=True, err=True)


def _page_text(shell: Shell, page: AuditPage) -> str:
    if not page.rows:
        return "No matching rows."
    width = shutil.get_terminal_size().columns
    number = max(len(str(row.seq)) for row in page.rows)
    return "\n".join(line for row in page.rows for line in _row_lines(shell, row, number, width))


def _row_lines(shell: Shell, row: AuditRow, number: int, width: int) -> list[str]:
    when = datetime.fromtimestamp(row.at / 1000).astimezone()
    head = f"{row.seq:>{number}}  {when:%m-%d %H:%M:%S}  {row.kind:<8}  {visible(row.tool)}  {visible(row.outcome)}"
    about = " ".join(part for part in (visible(row.session_key), visible(row.run_id[:8])) if part)
    told = "(erased)" if row.details is None else visible(_gist(row.details))
    lines = [f"{head}  {shell.dim(about)}".rstrip()]
    return [*lines, f"{'':<{number}}  {shell.dim(_clip(told, max(20, width - number - 2)))}"] if told else lines


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
    return f"The chain is intact: {_rows(report.rows)}{erased}.\nhead  {report.head}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


audit.add_command(command_of(show_audit, _page_text))
audit.add_command(command_of(verify_audit, _report_text, exit_code=lambda report: 0 if report.ok else 1))


SMALLEST_BAR = 4


def chart(report: UsageReport, width: int) -> str:
    """One bar for each total, as long as its share of the largest, in lines of at most `width` characters."""
    if not report.totals:
        return "No usage yet."
    rows = [(_usage_clip(total.name, max(12, width // 3)), _figures(total)) for total in (*report.totals, report.total)]
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


def _figures(total: UsageTotal) -> str:
    return f"{_count(total.usage.total):>6} tokens  {money(total):>9}"


def money(total: UsageTotal) -> str:
    """US dollars; a dash when no call has a price, a plus behind it when some have none."""
    if total.unpriced == total.calls:
        return "-"
    amount = f"${total.cost:.2f}" if total.cost >= 1 or not total.cost else f"${total.cost:.4f}"
    return f"{amount}+" if total.unpriced else amount


def _count(tokens: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 10_000)):
        if tokens >= size:
            return f"{tokens / (1_000_000 if unit == 'M' else 1_000):.1f}{unit}"
    return f"{tokens:,}"


def _usage_clip(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most - most // 2) :]}"


usage = command_of(usage_totals, lambda _, report: chart(report, shutil.get_terminal_size().columns), name="usage")
