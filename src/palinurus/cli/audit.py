"""`pal audit`: what hands have done, in a chain that shows tampering."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from palinurus.cli.derived import ask, command_of
from palinurus.cli.shell import Shell, with_json
from palinurus.domain.errors import BadRequest
from palinurus.ledger.audit import AuditReport, AuditRow
from palinurus.operations.audit import MOST_ERASED, AuditPage, erase_audit, show_audit, verify_audit
from palinurus.tools.approvals.rendering import visible

SEQS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


@click.group()
def audit() -> None:
    """Show what tools have done, and check the record."""


@audit.command("erase")
@click.argument("seqs", nargs=-1, required=True, metavar="SEQ...")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@with_json
@click.pass_obj
def erase(shell: Shell, seqs: tuple[str, ...], yes: bool) -> None:
    """Erase arguments and results of rows, for good. That something was done, and the chain, stay.

    \b
    Examples:
      pal audit erase 12 --yes
      pal audit erase 12 40-52
    """
    wanted = _numbers(seqs)
    if not yes:
        _confirm(len(wanted))
    erased = ask(shell, erase_audit, erase_audit.params(wanted))
    left = erased.asked - erased.erased
    rest = f" {left:,} had none, or are no rows." if left else ""
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
        raise BadRequest("nobody is here to be asked whether to erase", hint="say --yes")
    click.confirm(f"Erase the arguments and results of {_rows(count)}? They cannot be had back.", abort=True, err=True)


def _page_text(shell: Shell, page: AuditPage) -> str:
    if not page.rows:
        return "Nothing was done yet, or nothing that fits."
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
        shell.warn(f"the audit log is not what it was: {visible(report.trouble)}")
        return ""
    erased = f"; the details of {report.erased:,} are erased" if report.erased else ""
    return f"The chain is whole: {_rows(report.rows)}{erased}.\nhead  {report.head}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


audit.add_command(command_of(show_audit, _page_text))
audit.add_command(command_of(verify_audit, _report_text, exit_code=lambda report: 0 if report.ok else 1))
