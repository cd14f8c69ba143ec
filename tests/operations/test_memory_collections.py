"""Collections of memory in the config file: added, listed and taken out without touching anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.config.home import Home, find_home
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.operations.config import Ground
from palinurus.operations.memory_collections import collection_add, collection_remove, collections_list

CONFIG = """{
  // mine
  agents: { list: [{ id: "main", memorySearch: { extraPaths: ["old"] } }, { id: "ops" }] },
}
"""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    (tmp_path / "home").mkdir()
    (tmp_path / "Notes & Co").mkdir()
    (tmp_path / "one.md").write_text("one\n")
    home = find_home({"PALINURUS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    home.config_path.write_text(CONFIG)
    return Ground(home, {})


def text(home: Home) -> str:
    return home.config_path.read_text()


def names(ground: Ground, agent: str = "") -> list[str]:
    return [each.name for each in collections_list(ground, agent)]


def test_a_folder_is_added_for_all_agents_under_a_plain_name_and_comments_stay(ground: Ground, tmp_path: Path) -> None:
    added = collection_add(ground, "~/Notes & Co")
    assert (added.collection.name, added.collection.path) == ("notes-co", str(tmp_path / "Notes & Co"))
    assert added.collection.there
    assert added.where == "memory.search.extraPaths"
    assert names(ground) == ["notes-co", "old"]
    assert names(ground, "ops") == ["notes-co"]
    assert "// mine" in text(ground.home)


def test_a_folder_for_one_agent_is_no_business_of_the_others(ground: Ground, tmp_path: Path) -> None:
    collection_add(ground, str(tmp_path / "Notes & Co"), name="N", mask="2026/**/*.md", agent="ops")
    assert names(ground, "ops") == ["n"]
    assert names(ground, "main") == ["old"]
    (found,) = collections_list(ground, "ops")
    assert found.mask == "2026/**/*.md"


def test_a_single_file_is_a_collection_too_and_can_be_taken_out_again(ground: Ground, tmp_path: Path) -> None:
    added = collection_add(ground, str(tmp_path / "one.md"))
    assert (added.collection.name, added.collection.mask) == ("one", "one.md")
    collection_remove(ground, "one")
    assert names(ground) == ["old"]


def test_what_is_taken_out_is_gone_wherever_it_was_named(ground: Ground) -> None:
    collection_add(ground, "~/Notes & Co")
    collection_remove(ground, "old")
    collection_remove(ground, "Notes Co")
    assert names(ground) == []
    assert "// mine" in text(ground.home)


@pytest.mark.parametrize("name", ["memory", "sessions", "old", "OLD"])
def test_a_name_that_is_taken_is_refused(ground: Ground, name: str) -> None:
    before = text(ground.home)
    with pytest.raises(BadRequest, match="taken"):
        collection_add(ground, "~/Notes & Co", name=name)
    assert text(ground.home) == before


def test_the_same_folder_is_not_added_twice(ground: Ground) -> None:
    collection_add(ground, "~/Notes & Co")
    before = text(ground.home)
    with pytest.raises(BadRequest, match="already"):
        collection_add(ground, "~/Notes & Co", name="again")
    assert text(ground.home) == before


def test_what_is_not_there_is_said_not_to_be(ground: Ground) -> None:
    with pytest.raises(NotFound, match="no folder"):
        collection_add(ground, "~/nowhere")
    with pytest.raises(NotFound, match="no collection"):
        collection_remove(ground, "nothing")
    with pytest.raises(NotFound, match="no agent"):
        collection_add(ground, "~/Notes & Co", agent="nobody")
    (ground.home.user_home / "a.txt").write_text("x")
    with pytest.raises(BadRequest, match="not markdown"):
        collection_add(ground, "~/a.txt")
