"""What a gateway does instead of looking at every file in every turn, and that it misses nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from shelved import Shelf, write_skill

from palinurus.skills import discovery
from palinurus.skills.catalog import Catalog
from palinurus.skills.roots import Root
from palinurus.skills.watch import SkillWatch

WAIT = 20.0


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not what():
            await asyncio.sleep(0.01)


@pytest.fixture
async def watch() -> AsyncIterator[SkillWatch]:
    watch = SkillWatch()
    watch.start()
    yield watch
    await watch.close()
    assert watch.stamp("/") is None


def catalog(shelf: Shelf, root: Path, watch: SkillWatch) -> Catalog:
    made = shelf.catalog()
    return Catalog(
        (Root("workspace", str(root)),), made._limits, made._cache, home=shelf.home.root, now=shelf._clock, watch=watch
    )


async def test_while_it_watches_no_file_is_looked_at(
    shelf: Shelf, watch: SkillWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(shelf.skills, "tides")
    shelves = catalog(shelf, shelf.skills, watch)
    shelves.look()
    await until(lambda: watch.stamp(str(shelf.skills)) is not None)
    await until(lambda: (shelves.look(), all(each.settled for each in shelves.known()))[1])
    found = shelves.look()
    looked: list[str] = []
    monkeypatch.setattr(discovery, "_unchanged", lambda mark: looked.append(mark.path) or True)
    assert shelves.look() is found
    assert looked == []


async def test_every_kind_of_change_is_seen(shelf: Shelf, watch: SkillWatch) -> None:
    write_skill(shelf.skills, "tides")
    shelves = catalog(shelf, shelf.skills, watch)
    shelves.look()
    await until(lambda: watch.stamp(str(shelf.skills)) is not None)

    def names() -> list[str]:
        return [skill.name for skill in shelves.look().skills]

    write_skill(shelf.skills, "winds")
    await until(lambda: names() == ["tides", "winds"])
    write_skill(shelf.skills, "winds", description="Halps.")
    await until(lambda: shelves.look().get("winds").about.description == "Halps.")
    (shelf.skills / "winds").rename(shelf.base / "away")
    await until(lambda: names() == ["tides"])
    (shelf.base / "away").rename(shelf.skills / "back")
    await until(lambda: names() == ["tides", "winds"])
    (shelf.skills / "back" / "SKILL.md").unlink()
    await until(lambda: names() == ["tides"])


async def test_a_root_that_is_not_there_yet_is_looked_for_each_time(shelf: Shelf, watch: SkillWatch) -> None:
    shelves = catalog(shelf, shelf.skills, watch)
    assert shelves.look().skills == ()
    write_skill(shelf.skills, "tides")
    assert watch.stamp(str(shelf.skills)) is None
    assert [skill.name for skill in shelves.look().skills] == ["tides"]


async def test_a_root_that_comes_later_is_watched_too(shelf: Shelf, watch: SkillWatch) -> None:
    write_skill(shelf.skills, "tides")
    watch.cover([str(shelf.skills)])
    await until(lambda: watch.stamp(str(shelf.skills)) is not None)
    other = shelf.base / "other"
    write_skill(other, "winds")
    watch.cover([str(other)])
    await until(lambda: watch.stamp(str(other)) is not None)
    assert watch.stamp(str(shelf.skills)) is not None


async def test_what_nobody_told_of_is_found_a_little_later(
    shelf: Shelf, watch: SkillWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palinurus.skills.watch.TICKS", 1)
    write_skill(shelf.skills, "tides")
    watch.cover([str(shelf.skills)])
    await until(lambda: watch.stamp(str(shelf.skills)) is not None)
    first = watch.stamp(str(shelf.skills))
    await until(lambda: watch.stamp(str(shelf.skills)) != first)  # and nothing was changed
