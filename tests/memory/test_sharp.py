"""Small memories stay sharp: what tells nothing is no result, and what has nothing to do with the question neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notes import asked, search_over

from palinurus.memory.embedders.embedded import EmbeddedModel
from palinurus.memory.fill import VectorFiller
from palinurus.memory.store import MemoryStore
from palinurus.workspace.seed import template


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MemoryStore]:
    made = MemoryStore(tmp_path / "derived" / "memory.sqlite")
    async with asyncio.timeout(60):
        yield made
        await made.close()


async def found(root: Path, store: MemoryStore, text: str, query: str, path: str = "memory/notes.md") -> list[str]:
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")
    return [result.snippet for result in (await asked(search_over(root, store), query)).results]


@pytest.mark.parametrize(
    "line",
    ["- **Name:**", "- Name:", "- [ ] Name:", "- **Name:** _(optional)_", "_(what is the name?)_", "Name:", "# Name"],
)
async def test_a_line_that_waits_to_be_filled_in_is_no_result(tmp_path: Path, store: MemoryStore, line: str) -> None:
    assert await found(tmp_path, store, f"{line}\n\n- the name is Ada\n", "name") == ["- the name is Ada"]


async def test_an_empty_bullet_is_no_result(tmp_path: Path, store: MemoryStore) -> None:
    assert await found(tmp_path, store, "- [x]\n- \n- x is a letter\n", "x") == ["- x is a letter"]


@pytest.mark.parametrize("heading", ["# The garden of my aunt", "The garden of my aunt\n---", "## Garden"])
async def test_a_heading_is_found_by_what_is_below_it(tmp_path: Path, store: MemoryStore, heading: str) -> None:
    assert await found(tmp_path, store, f"{heading}\n\n- quinces\n", "garden") == ["- quinces"]


async def test_a_heading_that_is_the_note_is_a_result(tmp_path: Path, store: MemoryStore) -> None:
    text = "## Karl called about the boiler\n\n## Lunch\n"
    assert await found(tmp_path, store, text, "boiler") == ["## Karl called about the boiler"]
    assert "## Lunch" not in await found(tmp_path, store, text, "lunch")


async def test_a_comment_in_code_is_no_heading(tmp_path: Path, store: MemoryStore) -> None:
    text = "```\n# restarts the mail server\n```\n\n- other\n"
    assert (await found(tmp_path, store, text, "mail server"))[0] == "# restarts the mail server"


async def test_the_template_of_a_new_home_gives_no_results(tmp_path: Path, store: MemoryStore) -> None:
    text = template("USER.md")
    assert await found(tmp_path, store, text, "name languages care about dislike", "USER.md") == []
    filled = text.replace("- Name:", "- Name: Ada")
    assert await found(tmp_path, store, filled, "what is the name?", "USER.md") == ["- Name: Ada"]


SMALL = """
- Anna moved to Oslo with her two dogs
- Prefers tea over coffee in the morning
- Budget for the kitchen: 12,000, the rest stays in reserve
- Wi-Fi router is behind the bookshelf
- Dentist appointment was painful; next one in spring
- Passport expires in 2027
"""
OTHER_WORDS = {
    "what pets does she have?": "two dogs",
    "how much can the renovation cost?": "Budget",
    "where is the internet box?": "router",
    "travel documents validity": "Passport",
}
UNRELATED = ["how does photosynthesis work?", "who won the football match?", "write a haiku about rust"]


@pytest.mark.slow
async def test_other_words_find_their_line_and_what_is_unrelated_finds_nothing(
    tmp_path: Path, store: MemoryStore
) -> None:
    model = EmbeddedModel()
    await found(tmp_path, store, SMALL, "so that there are words")
    assert not (await VectorFiller(store, model, share=1.0).run()).trouble
    search = search_over(tmp_path, store, model)
    answers = {query: (await asked(search, query)).results for query in (*OTHER_WORDS, *UNRELATED)}
    await model.close()
    assert all(words in answers[query][0].snippet for query, words in OTHER_WORDS.items())
    assert not [query for query in UNRELATED if answers[query]]
