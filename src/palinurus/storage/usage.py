"""The usage ledger in `home.sqlite`."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

import apsw

from palinurus.domain.messages import Usage
from palinurus.ledger.usage import By, UsageRow, UsageTotal, total_by
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries

SQL = load_queries("usage.sql")


class SqliteUsage:
    """Implements ledger.usage.UsageLedger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, row: UsageRow) -> None:
        await self._database.write(lambda connection: add_usage(connection, row))

    async def totals(
        self, by: By, *, zone: tzinfo, since: int = 0, agent: str = "", session: str = ""
    ) -> list[UsageTotal]:
        def work(connection: apsw.Connection) -> list[UsageTotal]:
            values = {"since": since, "agent": agent, "session": session}
            found = connection.execute(SQL["usage_of_session" if session else "usage_since"], values)
            return total_by(map(_row, found), by, zone)  # on the reader's thread: years of rows take their time

        return await self._database.read(work)


def add_usage(connection: apsw.Connection, row: UsageRow) -> None:
    """Inside a transaction of somebody else: a reply and its row are kept together or not at all."""
    usage = row.usage
    connection.execute(
        SQL["add_usage"],
        {
            "session_key": row.session_key,
            "entry_id": row.entry_id,
            "at": row.at,
            "run_id": row.run_id,
            "agent": row.agent,
            "provider": row.provider,
            "model": row.model,
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "cost": row.cost,
        },
    )


def _row(row: tuple[Any, ...]) -> UsageRow:
    entry_id, at, run_id, session_key, agent, provider, model, *tokens, cost = row
    return UsageRow(entry_id, at, run_id, session_key, agent, provider, model, Usage(*tokens), cost)
