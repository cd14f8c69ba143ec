"""What is known of two years of somebody's notes, beside an oracle that knows what was so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date, timedelta
from itertools import combinations
from pathlib import Path

import pytest
from life import BOTH, COMMON, FIRST, OTHER, Life, Phrases, same_names

from palinurus.config.home import Home
from palinurus.extensions.knowledge.facts import read_facts
from palinurus.extensions.knowledge.knowledge import Knowledge
from palinurus.extensions.knowledge.recall import RecallQuestion, RecallResult
from palinurus.extensions.knowledge.store import KnowledgeStore
from palinurus.testing.loop_time import excuse
from support.open_home import opened

Ask = Callable[..., Awaitable[tuple[RecallResult, ...]]]


async def stored(life: Life) -> KnowledgeStore:
    store = KnowledgeStore(None)
    with excuse("two years of notes at once"):
        read = {path: ("", read_facts(path, "\n".join(lines))) for path, lines in life.notes.items()}
    await store.replace(read, (), ())
    return store


def test_the_life_is_as_long_and_as_restless_as_it_says() -> None:
    life = Life()
    assert (len(life.notes), len(life.lies)) == (600, 41)
    assert life.changes >= 120


@pytest.mark.parametrize(("seed", "phrases"), [(1, COMMON), (2, OTHER), (3, COMMON)])
async def test_names_of_one_are_one_and_nobody_is_taken_for_another(seed: int, phrases: Phrases) -> None:
    with excuse("two years of notes at once"):
        life = Life(seed, phrases)
    listed = await (await stored(life)).names()
    found = {frozenset(pair) for pair in combinations(listed, 2) if listed[pair[0]] == listed[pair[1]]}
    wanted = {pair for pair in same_names() if pair <= listed.keys()}
    assert found - wanted == set()
    assert 2 * len(found & wanted) / (len(found) + len(wanted)) >= 0.95
    assert listed[BOTH] == BOTH


@asynccontextmanager
async def lived(home: Home, workspace: Path, life: Life) -> AsyncIterator[tuple[Ask, Knowledge]]:
    """A home with these notes, and its results for a question."""
    (workspace / "memory").mkdir()
    for path, lines in life.notes.items():
        (workspace / path).write_text("\n".join(lines) + "\n")
    async with opened(home, memory={"search": {"provider": "none"}}) as here:
        with excuse("hundreds of questions to two years of notes"):

            async def ask(text: str, as_of: date | None = None) -> tuple[RecallResult, ...]:
                asked = RecallQuestion(text, k=10, as_of=as_of.isoformat() if as_of else "")
                return (await here.services.keep(Knowledge).recall(asked)).results

            yield ask, here.services.keep(Knowledge)


@pytest.mark.parametrize(("phrases", "least"), [(COMMON, 0.95), (OTHER, 0.85)])
async def test_what_was_so_on_a_day_and_during_a_month_is_the_first_answer_and_no_lie_is(
    home: Home, workspace: Path, phrases: Phrases, least: float
) -> None:
    life, right, wrong = Life(5, phrases), list[str](), list[str]()
    async with lived(home, workspace, life) as (ask, _):
        asked = [(each, each.known, {value}) for each, value in list(life.as_of_questions())[::3]]
        asked += [(each, None, values) for each, values in list(life.month_questions())[::3]]
        for question, known, values in asked:
            best = (await ask(question.text, known))[0]
            assert (best.path, best.start_line) not in life.lies
            found = life.statement_at((best.path, best.start_line))
            is_right = found is not None and found.subject == question.subject and found.value in values
            (right if is_right else wrong).append(f"{question.text} {known}")
    assert len(asked) >= 160
    assert len(right) / (len(right) + len(wrong)) >= least, wrong


async def test_what_changed_a_mind_is_told_with_what_was_thought_before(home: Home, workspace: Path) -> None:
    life = Life(6)
    async with lived(home, workspace, life) as (ask, _):
        for text, subject in life.changes_of_mind():
            thought = [each for each in life.statements if each.subject == subject]
            change = [each for each in thought if each.is_change][-1]
            before = [each for each in thought if each.said < change.said][-1]
            places = [(each.path, each.start_line) for each in await ask(text)]
            assert change.place in places[:3]
            assert before.place in places[:5]


async def test_what_is_derived_is_the_same_when_it_is_made_anew(home: Home, workspace: Path) -> None:
    life = Life(7)
    question, day = "Where does Peter Hansen live?", FIRST + timedelta(400)
    async with lived(home, workspace, life) as (ask, knowledge):
        before = await ask(question, day)
        assert any(each.until for each in before)
        assert await knowledge.remove_stores() >= 1
        assert await ask(question, day) == before
