"""Where dispatch stores text: accepted messages, pending replies, jobs, and names of senders."""

from __future__ import annotations

import json
from typing import Any

from palinurus.domain.text_places import Stored, TextRows

SQL = ("dispatch_places", __file__)


async def drop_jobs(services: Any, rows: list[Stored]) -> None:
    """Drops jobs and deliveries that wait."""
    keys = json.dumps([at for at, *_ in rows])
    await services.database.write(lambda tx: tx.run("jobs.drop_waiting", keys=keys))


PLACES = (
    TextRows("runs", "accepted messages and replies", "tombstone", *SQL),
    TextRows("deliveries", "messages on their way out", "tombstone", *SQL, before=drop_jobs),
    TextRows("jobs", "jobs and their outcomes", "tombstone", *SQL, before=drop_jobs),
    TextRows("pairings", "senders who were let in, or wait", "tombstone", *SQL),
)
