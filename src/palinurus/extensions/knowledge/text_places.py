"""What is derived from facts: removed when words were forgotten, and made anew by the next question.

Core blocks are made anew at once: their lines lack words of the notes, so a search for these does not find them.
"""

from __future__ import annotations

from collections.abc import Callable

from palinurus.domain.errors import PalinurusError
from palinurus.domain.text_places import Spot, TextFiles, TextPlace
from palinurus.extensions.knowledge.core_block import refresh_core_block
from palinurus.extensions.knowledge.knowledge import Knowledge
from palinurus.workspace.files import CORE_FILE


class KnowledgeStores(TextPlace):
    """Those of all agents."""

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        services = self.search.services
        removed = await services.keep(Knowledge).remove_stores()
        spots = [Spot("derived facts", "index anew", removed)] if removed else []
        for agent, root in self.search.workspaces.items():
            if not (root / CORE_FILE).is_file():
                continue
            try:
                await refresh_core_block(services, agent)
            except PalinurusError as error:
                spots.append(Spot(str(root / CORE_FILE), "stays", 1, str(error)))
        return spots


PLACES = (TextFiles(r"derived/knowledge/[^/]+\.sqlite(-wal|-shm)?", "index"), KnowledgeStores)
