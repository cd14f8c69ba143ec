"""What is known of two years of somebody's notes, beside an oracle that knows what was so."""

from __future__ import annotations

from itertools import combinations

import pytest
from life import BOTH, COMMON, OTHER, Life, Phrases, same_names

from palinurus.extensions.knowledge.facts import read_facts
from palinurus.extensions.knowledge.store import KnowledgeStore


async def stored(life: Life) -> KnowledgeStore:
    store = KnowledgeStore(None)
    read = {path: ("", read_facts(path, "\n".join(lines))) for path, lines in life.notes.items()}
    await store.replace(read, (), ())
    return store


def test_the_life_is_as_long_and_as_restless_as_it_says() -> None:
    life = Life()
    assert (len(life.notes), len(life.lies)) == (600, 41)
    assert life.changes >= 120


@pytest.mark.parametrize(("seed", "phrases"), [(1, COMMON), (2, OTHER), (3, COMMON)])
async def test_names_of_one_are_one_and_nobody_is_taken_for_another(seed: int, phrases: Phrases) -> None:
    listed = await (await stored(Life(seed, phrases))).names()
    found = {frozenset(pair) for pair in combinations(listed, 2) if listed[pair[0]] == listed[pair[1]]}
    wanted = {pair for pair in same_names() if pair <= listed.keys()}
    assert found - wanted == set()
    assert 2 * len(found & wanted) / (len(found) + len(wanted)) >= 0.95
    assert listed[BOTH] == BOTH
