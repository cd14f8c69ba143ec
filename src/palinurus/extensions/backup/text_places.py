"""Backups that still contain forgotten text: they are marked and reported, never changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from palinurus.domain.text_places import Spot, TextFiles, TextPlace
from palinurus.extensions.backup.backups import Backups, KnownBackup


class BackupCopies(TextPlace):
    async def look(self) -> list[Spot]:
        return await asyncio.to_thread(self._spots, mark=False)

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        return await asyncio.to_thread(self._spots, mark=True)

    def _spots(self, *, mark: bool) -> list[Spot]:
        """The backups with the text. `since` 0: it is not known since when the text existed."""
        backups = Backups(self.search.services.home.root)
        held = [known for known in backups.all() if known.created_at >= self.search.since]
        if held and mark:
            backups.mark(self.search.id, [each.id for each in held])
        return [_spot(each) for each in held]


def _spot(known: KnownBackup) -> Spot:
    why = "made while the text existed; a backup is never changed. Make a new one and remove this one"
    if known.gone:
        why = "made while the text existed, and missing from its folder"
    return Spot(f"backup {known.id[:8]}, {known.path}", "stays", 1, why)


PLACES = (
    TextFiles(r"backups/.*", "stays", "a backup"),
    TextFiles(r"backups\.json", "stays", "where copies were written; you can rename them"),
    BackupCopies,
)
