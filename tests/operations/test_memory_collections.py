"""Collections of memory in the config file: added, listed and taken out without touching anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.config.home import Home, find_home
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.operations.memory_collections import add_collection, list_collections, remove_collection
from palinurus.operations.services import Services

CONFIG = """{
  // mine
  agents: { list: [{ id: "main", memorySearch: { extraPaths: ["old"] } }, { id: "ops" }] },
}
"""


@pytest.fixture
def services(tmp_path: Path) -> Services:
    (tmp_path / "home").mkdir()
    (tmp_path / "Notes & Co").mkdir()
    (tmp_path / "one.md").write_text("one\n")
    home = find_home({"PALINURUS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    home.config_path.write_text(CONFIG)
    return Services(home=home, env={})


def text(home: Home) -> str:
    return home.config_path.read_text()


def names(services: Services, agent: str = "") -> list[str]:
    return [each.name for each in list_collections.function(services, agent)]


def test_a_folder_is_added_for_all_agents_under_a_plain_name_and_comments_stay(
    services: Services, tmp_path: Path
) -> None:
    added = add_collection.function(services, "~/Notes & Co")
    assert (added.collection.name, added.collection.path) == ("notes-co", str(tmp_path / "Notes & Co"))
    assert added.collection.there
    assert added.where == "memory.search.extraPaths"
    assert names(services) == ["notes-co", "old"]
    assert names(services, "ops") == ["notes-co"]
    assert "// mine" in text(services.home)


def test_a_folder_for_one_agent_is_no_business_of_the_others(services: Services, tmp_path: Path) -> None:
    add_collection.function(services, str(tmp_path / "Notes & Co"), name="N", mask="2026/**/*.md", agent="ops")
    assert names(services, "ops") == ["n"]
    assert names(services, "main") == ["old"]
    (found,) = list_collections.function(services, "ops")
    assert found.mask == "2026/**/*.md"


def test_a_single_file_is_a_collection_too_and_can_be_taken_out_again(services: Services, tmp_path: Path) -> None:
    added = add_collection.function(services, str(tmp_path / "one.md"))
    assert (added.collection.name, added.collection.mask) == ("one", "one.md")
    remove_collection.function(services, "one")
    assert names(services) == ["old"]


def test_what_is_taken_out_is_gone_wherever_it_was_named(services: Services) -> None:
    add_collection.function(services, "~/Notes & Co")
    remove_collection.function(services, "old")
    remove_collection.function(services, "Notes Co")
    assert names(services) == []
    assert "// mine" in text(services.home)


@pytest.mark.parametrize("name", ["memory", "sessions", "old", "OLD"])
def test_a_name_that_is_taken_is_refused(services: Services, name: str) -> None:
    before = text(services.home)
    with pytest.raises(BadRequest, match="taken"):
        add_collection.function(services, "~/Notes & Co", name=name)
    assert text(services.home) == before


def test_the_same_folder_is_not_added_twice(services: Services) -> None:
    add_collection.function(services, "~/Notes & Co")
    before = text(services.home)
    with pytest.raises(BadRequest, match="already"):
        add_collection.function(services, "~/Notes & Co", name="again")
    assert text(services.home) == before


def test_what_is_not_there_is_said_not_to_be(services: Services) -> None:
    with pytest.raises(NotFound, match="no folder"):
        add_collection.function(services, "~/nowhere")
    with pytest.raises(NotFound, match="no collection"):
        remove_collection.function(services, "nothing")
    with pytest.raises(NotFound, match="no agent"):
        add_collection.function(services, "~/Notes & Co", agent="nobody")
    (services.home.user_home / "a.txt").write_text("x")
    with pytest.raises(BadRequest, match="not markdown"):
        add_collection.function(services, "~/a.txt")
