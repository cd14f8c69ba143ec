"""Look at what hands have done, check that nobody changed the record, and erase what must not be kept."""

from __future__ import annotations

import re

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.ledger.audit import AuditReport, AuditRow
from palinurus.operations.bounds import Count, Position
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.sessions.names import name_key

MOST_ERASED = 100_000  # rows at once
HASH = re.compile(r"[0-9a-f]{64}")


class ShowAudit(Struct, frozen=True):
    session_key: str = ""
    tool: str = ""
    run: str = ""  # a run's id or its beginning
    limit: Count = 50
    before: Position = 0  # only rows before this seq; 0: from the newest


class AuditPage(Struct, frozen=True):
    rows: tuple[AuditRow, ...]  # the newest that fit, oldest first: as things happened


class VerifyAudit(Struct, frozen=True):
    expect: str = ""  # a hash that was the head once


class EraseAudit(Struct, frozen=True):
    seqs: tuple[Position, ...]


class Erased(Struct, frozen=True):
    asked: int
    erased: int  # the others are no rows or had no details


async def _show(house: House, params: ShowAudit) -> AuditPage:
    session = params.session_key and await name_key(house.sessions, params.session_key, agent=house.agents.default)
    rows = await house.audit.rows(
        limit=params.limit, session=session, run=params.run, tool=params.tool, before=params.before
    )
    return AuditPage(tuple(reversed(rows)))


async def _verify(house: House, params: VerifyAudit) -> AuditReport:
    expect = params.expect.strip().lower()
    if expect and not HASH.fullmatch(expect):
        raise BadRequest(
            f"not a hash of the audit log: {params.expect[:80]!r}", hint="64 hex digits, as `pal audit verify` prints"
        )
    return await house.audit.verify(expect=expect)


async def _erase(house: House, params: EraseAudit) -> Erased:
    seqs = sorted(set(params.seqs))
    if len(seqs) > MOST_ERASED:
        raise BadRequest(f"{len(seqs):,} rows are too many at once", hint=f"at most {MOST_ERASED:,}")
    return Erased(len(seqs), await house.audit.erase([seq for seq in seqs if 0 < seq < 2**63]))


SHOW = Operation("audit.show", ShowAudit, AuditPage, "read", _show)
VERIFY = Operation("audit.verify", VerifyAudit, AuditReport, "read", _verify)
ERASE = Operation("audit.erase", EraseAudit, Erased, "admin", _erase)
OPERATIONS = (SHOW, VERIFY, ERASE)
