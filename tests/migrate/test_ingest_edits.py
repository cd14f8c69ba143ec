"""What a person does to a page of a wiki stays done."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_trees import Tree
from wikis import make_wiki, outcomes, snapshot, texts

from palinurus.extensions.migrate.ingest.pages import YOURS
from palinurus.extensions.migrate.ingest.state import FILE

MEMORY = "# Memory\n\n## Projects\n### argo\n- A small boat\n- Her sail is white\n"
PAGE = "projects/argo"


@pytest.fixture
def wiki(tree: Tree, tmp_path: Path) -> Path:
    tree.write("workspace/MEMORY.md", MEMORY)
    wiki = tmp_path / "wiki"
    make_wiki(tree.root, wiki)
    return wiki


def edit(wiki: Path, old: str, new: str) -> None:
    path = wiki / f"{PAGE}.md"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def learn(tree: Tree, line: str = "- Her keel is of lead\n") -> None:
    tree.write("workspace/MEMORY.md", MEMORY + line)


def test_words_around_our_part_stay_word_for_word(tree: Tree, wiki: Path) -> None:
    path = wiki / f"{PAGE}.md"
    page = path.read_text().replace("---\n\n<!--", "tags: [boats]\n---\n\nMy boat!\n\n<!--")
    path.write_text(f"{page}\n## Mine\nBelow.\n")
    learn(tree)
    make_wiki(tree.root, wiki)
    page = path.read_text()
    assert "tags: [boats]\n" in page
    places = [page.index(words) for words in ("My boat!", "# argo", "Her keel is of lead", "## Mine\nBelow.\n")]
    assert places == sorted(places)


def test_an_edit_stays_where_it_is_as_long_as_there_is_nothing_new(tree: Tree, wiki: Path) -> None:
    edit(wiki, "# argo\n", "# argo\n\nShe is the best of all boats.\n")
    before = snapshot(wiki)
    assert not make_wiki(tree.root, wiki).changed
    assert snapshot(wiki) == before


def test_lines_written_into_our_part_are_kept_between_marks_of_their_own(tree: Tree, wiki: Path) -> None:
    edit(wiki, "# argo\n", "# argo\n\nShe is the best of all boats.\n")
    learn(tree)
    report = make_wiki(tree.root, wiki)
    page = (wiki / f"{PAGE}.md").read_text()
    assert page.index("Her keel is of lead") < page.index(YOURS) < page.index("She is the best of all boats.")
    assert [made.kept_lines for made in report.pages if made.path == PAGE] == [1]
    learn(tree, "- Her keel is of iron\n")
    make_wiki(tree.root, wiki)
    page = (wiki / f"{PAGE}.md").read_text()
    assert page.count("She is the best of all boats.") == 1
    assert "of lead" not in page


def test_a_fact_that_was_thrown_out_does_not_come_back(tree: Tree, wiki: Path) -> None:
    path = wiki / f"{PAGE}.md"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "sail" not in line))
    learn(tree)
    make_wiki(tree.root, wiki)
    assert texts(wiki, PAGE) == ["A small boat", "Her keel is of lead"]
    learn(tree, "- Her keel is of iron\n")
    make_wiki(tree.root, wiki)
    assert texts(wiki, PAGE) == ["A small boat", "Her keel is of iron"]
    before = snapshot(wiki)
    assert not make_wiki(tree.root, wiki).changed
    assert snapshot(wiki) == before


def test_a_corrected_fact_stays_corrected(tree: Tree, wiki: Path) -> None:
    edit(wiki, "Her sail is white", "Her sail is red")
    learn(tree)
    make_wiki(tree.root, wiki)
    page = (wiki / f"{PAGE}.md").read_text()
    assert "Her sail is white" not in page
    assert "Her sail is red" in page


def test_a_deleted_page_stays_deleted_until_its_place_is_taken_again(tree: Tree, wiki: Path) -> None:
    path = wiki / f"{PAGE}.md"
    path.unlink()
    learn(tree)
    report = make_wiki(tree.root, wiki)
    assert not path.exists()
    assert outcomes(report, "away") == [PAGE]
    assert PAGE not in (wiki / "index.md").read_text()
    assert not make_wiki(tree.root, wiki).changed
    path.write_text("Back again.\n")
    make_wiki(tree.root, wiki)
    assert "Back again." in path.read_text()
    assert texts(wiki, PAGE)[-1] == "Her keel is of lead"


def test_a_page_of_somebody_else_is_added_to_and_not_replaced(tree: Tree, tmp_path: Path) -> None:
    tree.write("workspace/MEMORY.md", MEMORY)
    path = tmp_path / "wiki" / f"{PAGE}.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nowner: me\n---\n# Argo\nWritten long ago.\n")
    make_wiki(tree.root, tmp_path / "wiki")
    page = path.read_text()
    assert "owner: me\n" in page
    assert page.index("Written long ago.") < page.index("1. A small boat")


def test_when_nothing_is_left_to_say_the_persons_part_stays(tree: Tree, wiki: Path) -> None:
    path = wiki / f"{PAGE}.md"
    path.write_text(path.read_text() + "\nI loved that boat.\n")
    tree.write("workspace/MEMORY.md", "# Memory\n\n## Harbour\n- The crane is red\n")
    report = make_wiki(tree.root, wiki)
    assert outcomes(report, "removed") == [PAGE]
    assert path.read_text() == "I loved that boat.\n"


def test_edits_are_known_without_the_state_too(tree: Tree, wiki: Path) -> None:
    edit(wiki, "# argo\n", "# argo\n\nShe is the best of all boats.\n")
    (wiki / FILE).unlink()
    learn(tree)
    make_wiki(tree.root, wiki)
    page = (wiki / f"{PAGE}.md").read_text()
    assert page.count("She is the best of all boats.") == 1
    assert texts(wiki, PAGE) == ["A small boat", "Her sail is white", "Her keel is of lead"]
