"""qmd's indexes and the sessions written for it: made anew after words were forgotten."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable

from palinurus.domain.text_places import Spot, TextFiles, TextPlace


class QmdIndexes(TextPlace):
    """Those in use are forgotten by the memory of their agent; those that nobody uses any more are removed."""

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        services, spots = self.search.services, list[Spot]()
        root = services.home.root / "derived" / "qmd"
        for folder in sorted(root.glob("*")):
            agent = folder.name
            used = agent in services.agents.ids and services.memory(agent).settings.backend == "qmd"
            if not used:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                spots.append(Spot(f"qmd's index of {agent}", "remove", 1))
        return spots


PLACES = (TextFiles(r"derived/qmd/.+", "index"), QmdIndexes)
