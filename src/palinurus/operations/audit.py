"""Look at what hands have done, check that nobody changed the record, and erase what must not be kept."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest
from palinurus.ledger.audit import AuditReport, AuditRow
from palinurus.operations.bounds import Position
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.sessions.names import name_key

MOST_ERASED = 100_000  # rows at once
HASH = re.compile(r"[0-9a-f]{64}")


class AuditPage(Struct, frozen=True):
    rows: tuple[AuditRow, ...]  # the newest that fit, oldest first: as things happened


class Erased(Struct, frozen=True):
    asked: int
    erased: int  # the others are no rows or had no details


@operation("audit.show", scope="read")
async def show_audit(
    house: House,
    session_key: Annotated[str, "Only this session's."] = "",
    tool: Annotated[str, "Only of this tool."] = "",
    run: Annotated[str, "Only this run: its id or the beginning of it."] = "",
    before: Annotated[Position, "Only rows before this one; 0: from the newest."] = 0,
    limit: Annotated[int, Meta(ge=0, le=10_000), "The newest so many."] = 50,
) -> AuditPage:
    """Show calls of tools, decisions about them and their results, the newest last.

    Examples:
      pal audit show --tool exec --limit 20
      pal audit show --session-key agent:main:main --json
    """
    session = session_key and await name_key(house.sessions, session_key, agent=house.agents.default)
    rows = await house.audit.rows(limit=limit, session=session, run=run, tool=tool, before=before)
    return AuditPage(tuple(reversed(rows)))


@operation("audit.verify", scope="read")
async def verify_audit(
    house: House, expect: Annotated[str, "A head that was printed before: it must be in the chain."] = ""
) -> AuditReport:
    """Check that no row was changed, removed or added. Exit code 1 when one was.

    The head is the hash of the last row. Kept somewhere else, it shows later whether the end was cut off.

    Examples:
      pal audit verify
      pal audit verify --expect 0000000000000000000000000000000000000000000000000000000000000000
    """
    head = expect.strip().lower()
    if head and not HASH.fullmatch(head):
        raise BadRequest(
            f"not a hash of the audit log: {expect[:80]!r}", hint="64 hex digits, as `pal audit verify` prints"
        )
    return await house.audit.verify(expect=head)


@operation("audit.erase", scope="admin")
async def erase_audit(house: House, seqs: tuple[Position, ...]) -> Erased:
    """Erase arguments and results of rows, for good. That something was done, and the chain, stay."""
    wanted = sorted(set(seqs))
    if len(wanted) > MOST_ERASED:
        raise BadRequest(f"{len(wanted):,} rows are too many at once", hint=f"at most {MOST_ERASED:,}")
    return Erased(len(wanted), await house.audit.erase([seq for seq in wanted if 0 < seq < 2**63]))


OPERATIONS = (show_audit, verify_audit, erase_audit)
