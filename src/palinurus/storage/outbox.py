"""The outbox in `home.sqlite`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import apsw
import msgspec

from palinurus.dispatch.parcel import MOST_WAITING, Parcel, Recipient, State, given_up, no_room
from palinurus.domain.errors import QueueFull, StorageDamaged
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries

SQL = load_queries("outbox.sql")


class SqliteOutbox:
    """Implements dispatch.outbox.Outbox."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, parcel: Parcel) -> Parcel:
        return await self._database.write(lambda connection: _add(connection, parcel))

    async def change(self, parcel: Parcel) -> Parcel | None:
        changed = msgspec.structs.replace(parcel, revision=parcel.revision + 1)

        def work(connection: apsw.Connection) -> Parcel | None:
            connection.execute(SQL["change_parcel"], _values(changed))
            return changed if connection.changes() else None

        return await self._database.write(work)

    async def next(self, recipient: Recipient) -> Parcel | None:
        found = await self._parcels("next_parcel", channel=recipient.channel, recipient=recipient.to)
        return found[0] if found else None

    async def recipients(self, channel: str = "") -> list[Recipient]:
        return [Recipient(*row) for row in await self._rows("open_recipients", channel=channel)]

    async def unfinished(self) -> list[Parcel]:
        return await self._parcels("parcels_being_sent")

    async def find(self, beginning: str) -> list[Parcel]:
        return await self._parcels("parcels_beginning", beginning=beginning)

    async def recent(self, *, states: Collection[State] = (), limit: int = 50) -> list[Parcel]:
        if not states:
            return await self._parcels("parcels_recent", limit=limit)
        return await self._parcels("parcels_in_states", states=msgspec.json.encode(list(states)).decode(), limit=limit)

    async def counts(self) -> dict[tuple[str, State], int]:
        if not await self._rows("has_outbox"):
            return {}  # a home of an older release that may only be read: `pal status` looks there too
        return {(channel, state): number for channel, state, number in await self._rows("parcel_counts")}

    async def forget(self, before: int) -> int:
        if not await self._rows("old_parcel", before=before):
            return 0  # a process that starts does not wait for the disk for nothing

        def work(connection: apsw.Connection) -> int:
            connection.execute(SQL["forget_parcels"], {"before": before})
            return connection.changes()

        return await self._database.write(work)

    async def _parcels(self, query: str, **values: Any) -> list[Parcel]:
        return [_parcel(row) for (row,) in await self._rows(query, **values)]

    async def _rows(self, query: str, **values: Any) -> list[Any]:
        return await self._database.read(lambda connection: connection.execute(SQL[query], values).fetchall())


def add_reply(connection: apsw.Connection, parcel: Parcel) -> Parcel:
    """Inside the transaction that ends a run: the result and the parcel are kept together or not at all.

    A result is never refused: where no room is left its parcel is kept as failed, for a person to see.
    """
    try:
        return _add(connection, parcel)
    except QueueFull as error:
        return _insert(connection, given_up(parcel, error.message))


def _add(connection: apsw.Connection, parcel: Parcel) -> Parcel:
    known = connection.execute(SQL["parcel_by_key"], {"idempotency_key": parcel.idempotency_key}).fetchall()
    if known:
        return _parcel(known[0][0])
    recipient = {"channel": parcel.channel, "recipient": parcel.to}
    if connection.execute(SQL["open_for"], recipient).get >= MOST_WAITING:
        raise no_room(parcel)
    return _insert(connection, parcel)


def _insert(connection: apsw.Connection, parcel: Parcel) -> Parcel:
    connection.execute(SQL["add_parcel"], _values(parcel))
    return parcel


def _values(parcel: Parcel) -> dict[str, Any]:
    return {
        "id": parcel.id,
        "idempotency_key": parcel.idempotency_key,
        "channel": parcel.channel,
        "recipient": parcel.to,
        "state": parcel.state,
        "queued_at": parcel.queued_at,
        "revision": parcel.revision,
        "row": msgspec.json.encode(parcel).decode(),
    }


def _parcel(row: Any) -> Parcel:
    try:
        return msgspec.json.decode(row, type=Parcel)
    except msgspec.DecodeError as error:
        raise StorageDamaged(f"the row of a parcel cannot be read: {error}", hint="restore a backup") from error
