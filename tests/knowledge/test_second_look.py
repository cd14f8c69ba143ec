"""A second search for questions that ask for several things."""

from __future__ import annotations

import pytest

from palinurus.extensions.knowledge.second_look import search_twice
from palinurus.memory.answer import Factor, IndexFreshness, SearchAnswer, SearchResult
from palinurus.memory.question import Question
from palinurus.memory.settings import SearchLimits

FRESH = IndexFreshness("fresh", 1)
FOUND = {"pets": 0.9, "my cat": 0.8, "a walk": 0.7, "rain": 0.40, "the turtle": 0.39}
NEAR = {"rain": 0.1, "the turtle": 0.6}  # to what was found first


class Search:
    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> SearchAnswer:
        self.asked.append(question)
        found = NEAR if question.explain else FOUND
        results = (
            SearchResult(f"{text}.md", 1, 1, FOUND[text], f"- {text}", factors=(Factor("vector", value, 1.0, value),))
            for text, value in found.items()
        )
        return SearchAnswer(tuple(results), FRESH, self.mode)


async def asked(query: str, mode: str = "hybrid", tokens: int | None = 100) -> tuple[list[str], list[Question]]:
    search = Search(mode)
    answer = await search_twice(search, Question(query, SearchLimits(tokens=tokens)))
    return [each.snippet for each in answer.results], search.asked


async def test_what_is_near_to_the_first_lines_gains() -> None:
    found, searches = await asked("Which pets do I have?")
    assert found == ["- pets", "- my cat", "- a walk", "- the turtle", "- rain"]
    assert [each.query for each in searches] == ["Which pets do I have?", "pets my cat a walk"]
    assert searches[0].budget.tokens == 200  # of which the better half remains


@pytest.mark.parametrize(
    ("query", "mode", "tokens"),
    [("Where is my cat?", "hybrid", 100), ("Which pets do I have?", "keyword", 100), ("Which pets?", "hybrid", None)],
    ids=["one thing", "without vectors", "without a budget"],
)
async def test_elsewhere_the_order_is_that_of_the_search(query: str, mode: str, tokens: int | None) -> None:
    found, searches = await asked(query, mode, tokens)
    assert found == [f"- {text}" for text in FOUND]
    assert len(searches) == 1
