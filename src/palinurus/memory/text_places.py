"""The memory indexes: rebuilt after words were forgotten, and searched for them afterwards."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palinurus.domain.errors import PalinurusError
from palinurus.domain.text_places import Spot, TextFiles, TextPlace, WordCheck
from palinurus.memory.question import Question

INDEXING = "indexing memory anew"
MOST_ASKED = 5  # texts that are searched for in an index afterwards


class MemoryIndexes(TextPlace):
    """The indexes of all agents: one may include what another agent wrote."""

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        spots, services = [], self.search.services
        agents = services.agents.ids
        for done, agent in enumerate(agents):
            tell(INDEXING, done, len(agents))
            if not self._is_there(agent):
                continue
            try:
                report = await services.memory(agent).forget()
                spots.append(Spot(f"memory index of {agent}", "index anew", report.changed + report.removed))
            except PalinurusError as error:
                spots.append(Spot(f"memory index of {agent}", "stays", 1, error.message))
        return spots

    async def look_again(self) -> tuple[list[Spot], list[WordCheck]]:
        agents = self.search.workspaces
        return [], [WordCheck(f"memory search of {agent}", await self._found(agent)) for agent in agents]

    async def _found(self, agent: str) -> int:
        if not self._is_there(agent):
            return 0
        found, words = 0, self.search.said
        for text in words.texts[:MOST_ASKED]:
            try:
                answer = await self.search.services.memory(agent).search(Question(text))
            except PalinurusError:  # a missing workspace
                continue
            found += sum(words.hold(msgspec.json.encode(each).decode()) for each in answer.results)
        return found

    def _is_there(self, agent: str) -> bool:
        derived = self.search.services.home.root / "derived"
        backend = self.search.services.memory(agent).settings.backend
        return bool((derived / "memory" / f"{agent}.sqlite").exists() or (derived / backend / agent).exists())


PLACES = (TextFiles(r"derived/memory/[^/]+\.sqlite(-wal|-shm)?", "index"), MemoryIndexes)
