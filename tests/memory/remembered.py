"""A memory that answers what it is told to answer, and remembers what it was asked."""

from __future__ import annotations

from palinurus.config.remembering import MemorySettings
from palinurus.memory.answer import Answer, Freshness, Result
from palinurus.memory.question import Question

FRESH = Freshness("fresh", 3, vectors="complete", embedded=9, pieces=9)


class Remembered:
    """Implements memory.tools.Searched."""

    def __init__(self, *results: Result, settings: MemorySettings | None = None, freshness: Freshness = FRESH) -> None:
        self.settings = settings or MemorySettings()
        self.answer = Answer(results, freshness)
        self.asked: list[Question] = []

    async def search(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.answer
