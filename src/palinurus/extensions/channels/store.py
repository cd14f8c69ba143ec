"""Stores what channels must know after a restart: up to where they have read, and their previews of replies."""

from __future__ import annotations

from palinurus.dispatch.delivery import KIND
from palinurus.storage.database import Database
from palinurus.storage.jobs import open_lanes
from palinurus.storage.transaction import declare_queries

declare_queries("channels", __file__)
KEPT_MS = 7 * 24 * 3600 * 1000  # previews


class ChannelStore:
    """When a write returns it is on the disk."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def cursor(self, channel: str, account: str) -> str:
        values = {"channel": channel, "account": account}
        found = await self._database.read(lambda tx: tx.value("channels.cursor", **values))
        return found or ""

    async def save_cursor(self, channel: str, account: str, cursor: str) -> None:
        values = {"channel": channel, "account": account, "cursor": cursor}
        await self._database.write(lambda tx: tx.run("channels.save_cursor", **values))

    async def preview(self, run: str) -> str:
        """The id of the message that shows the reply of a run; empty: there is none."""
        return await self._database.read(lambda tx: tx.value("channels.preview", run=run)) or ""

    async def add_preview(self, run: str, message: str, now: int) -> None:
        await self._database.write(lambda tx: tx.run("channels.add_preview", run=run, message=message, at=now))

    async def remove_preview(self, run: str) -> None:
        await self._database.write(lambda tx: tx.run("channels.remove_preview", run=run))

    async def has_unsent(self, channel: str, to: str) -> bool:
        """Whether something that was said before waits to be sent to this chat."""
        return to in await self._database.read(lambda tx: open_lanes(tx, KIND + channel))

    async def forget_previews(self, now: int) -> None:
        await self._database.write(lambda tx: tx.run("channels.forget_previews", before=now - KEPT_MS))
