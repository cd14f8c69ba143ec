"""What is derived from facts: removed when words were forgotten, and made anew by the next question."""

from __future__ import annotations

from collections.abc import Callable

from palinurus.domain.text_places import Spot, TextFiles, TextPlace
from palinurus.extensions.knowledge.knowledge import Knowledge


class KnowledgeStores(TextPlace):
    """Those of all agents."""

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        removed = await self.search.services.keep(Knowledge).remove_stores()
        return [Spot("derived facts", "index anew", removed)] if removed else []


PLACES = (TextFiles(r"derived/knowledge/[^/]+\.sqlite(-wal|-shm)?", "index"), KnowledgeStores)
