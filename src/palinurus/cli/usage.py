"""`pal usage`: what models used and cost, as a chart."""

from __future__ import annotations

import shutil

from palinurus.cli.derived import command_of
from palinurus.ledger.usage import UsageTotal
from palinurus.operations.usage import UsageReport, usage_totals

SMALLEST_BAR = 4


def chart(report: UsageReport, width: int) -> str:
    """One bar for each total, as long as its share of the largest, in lines of at most `width` characters."""
    if not report.totals:
        return "Nothing was used yet."
    rows = [(_clip(total.name, max(12, width // 3)), _figures(total)) for total in (*report.totals, report.total)]
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


def _clip(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most - most // 2) :]}"


usage = command_of(usage_totals, lambda _, report: chart(report, shutil.get_terminal_size().columns), name="usage")
