"""What tools did and what models cost: the audit log and the usage ledger."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest
from palinurus.ledger.audit import AuditReport, AuditRow
from palinurus.ledger.usage import By, UsageTotal, grand_total
from palinurus.operations.operation import Position, WholeDays, operation
from palinurus.operations.services import Services
from palinurus.sessions.names import name_key

MOST_ERASED = 100_000  # rows at once
HASH = re.compile(r"[0-9a-f]{64}")


class AuditPage(Struct, frozen=True):
    rows: tuple[AuditRow, ...]  # the newest that fit, oldest first: as things happened


class EraseReport(Struct, frozen=True):
    asked: int
    erased: int  # the others are no rows or had no details


@operation("audit.show", scope="read")
async def show_audit(
    services: Services,
    session_key: Annotated[str, "Only this session's."] = "",
    tool: Annotated[str, "Only of this tool."] = "",
    run: Annotated[str, "Only this run: its id or the beginning of it."] = "",
    before: Annotated[Position, "Only rows before this one; 0: from the newest."] = 0,
    limit: Annotated[int, Meta(ge=0, le=10_000), "Maximum number, counted from the newest."] = 50,
) -> AuditPage:
    """Show tool calls, decisions and results, newest last.

    Examples:
      pal audit show --tool exec --limit 20
      pal audit show --session-key agent:main:main --json
    """
    session = session_key and await name_key(services.sessions, session_key, agent=services.agents.default)
    rows = await services.audit.rows(limit=limit, session=session, run=run, tool=tool, before=before)
    return AuditPage(tuple(reversed(rows)))


@operation("audit.verify", scope="read")
async def verify_audit(
    services: Services, expect: Annotated[str, "A head printed earlier; it must be in the chain."] = ""
) -> AuditReport:
    """Check that no row was changed, removed or added. Exit code 1 when one was.

    The head is the hash of the last row. Store it elsewhere to detect later whether rows at the end were removed.

    Examples:
      pal audit verify
      pal audit verify --expect 0000000000000000000000000000000000000000000000000000000000000000
    """
    head = expect.strip().lower()
    if head and not HASH.fullmatch(head):
        raise BadRequest(
            f"not a hash of the audit log: {expect[:80]!r}", hint="64 hex digits, as `pal audit verify` prints"
        )
    return await services.audit.verify(expect=head)


@operation("audit.erase", scope="admin")
async def erase_audit(services: Services, seqs: tuple[Position, ...]) -> EraseReport:
    """Permanently erase the arguments and results of rows. The rows themselves and the chain stay."""
    wanted = sorted(set(seqs))
    if len(wanted) > MOST_ERASED:
        raise BadRequest(f"{len(wanted):,} rows are too many at once", hint=f"at most {MOST_ERASED:,}")
    return EraseReport(len(wanted), await services.audit.erase([seq for seq in wanted if 0 < seq < 2**63]))


DAY_MS = 24 * 3600 * 1000


class UsageReport(Struct, frozen=True):
    by: By
    totals: tuple[UsageTotal, ...]
    total: UsageTotal


class UsageDay(Struct, frozen=True):
    date: str  # YYYY-MM-DD in the owner's zone
    models: tuple[UsageTotal, ...]  # the most tokens first


class UsageSeries(Struct, frozen=True):
    days: tuple[UsageDay, ...]  # those on which anything was used, in their order


@operation("usage.totals", scope="read")
async def usage_totals(
    services: Services,
    by: Annotated[By, "How to group."] = "day",
    days: Annotated[WholeDays, "Number of days; 0 for all."] = 30,
    agent: Annotated[str, "Only this agent's."] = "",
) -> UsageReport:
    """Show what models used and cost.

    Examples:
      pal usage
      pal usage --by model --days 7
      pal usage --by session --json
    """
    totals = await services.usage.totals(by, zone=services.clock.zone, since=_since(services, days), agent=agent)
    return UsageReport(by, tuple(totals), grand_total(totals))


@operation("usage.series", scope="read")
async def usage_series(services: Services, days: WholeDays = 30, agent_id: str = "") -> UsageSeries:
    """What each model used on each day; of 0 days: everything."""
    totals = await services.usage.totals(
        "day-model", zone=services.clock.zone, since=_since(services, days), agent=agent_id
    )
    by_day: dict[str, list[UsageTotal]] = {}
    for total in totals:
        day, _, model = total.name.partition(" ")
        by_day.setdefault(day, []).append(msgspec.structs.replace(total, name=model))
    for models in by_day.values():
        models.sort(key=lambda total: (-total.usage.total, total.name))
    return UsageSeries(tuple(UsageDay(day, tuple(models)) for day, models in by_day.items()))


def _since(services: Services, days: int) -> int:
    return services.clock.now_ms() - days * DAY_MS if days > 0 else 0
