"""Details of the audit log, and traces of runs."""

from __future__ import annotations

from typing import Any

from palinurus.domain.text_places import Stored, TextRows

SQL = ("ledger_places", __file__)


async def erase_details(services: Any, rows: list[Stored]) -> None:
    """Erases the details. The chain covers only their digests, and records the erasure."""
    await services.audit.erase([row[0] for row in rows])


PLACES = (
    TextRows("traces", "traces of runs", "remove", *SQL),
    TextRows(
        "audit_details",
        "details of the audit log",
        "erase",
        *SQL,
        before=erase_details,
        kept={"audit": "the audit log's own chain, which covers it"},
    ),
)
