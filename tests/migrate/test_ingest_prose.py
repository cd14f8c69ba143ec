"""A model writes the text of a page, and is believed only as far as the facts go."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from foreign_trees import Tree
from wikis import make_wiki, snapshot, texts

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, Failure
from palinurus.extensions.migrate.ingest.prose import ask_for_wiki
from palinurus.operations.single_request import SingleReply
from palinurus.operations.table import LocalCaller
from palinurus.testing.fakes import fails
from palinurus.testing.harness import Harness

MEMORY = "# Memory\n\n## Projects\n### argo\n- A small boat of 1984\n- Her sail is white\n- Mira Holm built her\n"
GOOD = "Argo is a small boat of 1984 [1], built by Mira Holm [3].\n\nHer sail is white [2]."


class Model:
    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []

    async def __call__(self, system: str, question: str) -> SingleReply:
        self.asked.append(question)
        text = self.replies.pop(0) if self.replies else ""
        return SingleReply(text, "test/model", "" if text else "the key was refused")


@pytest.fixture
def home(tree: Tree) -> Path:
    tree.write("workspace/MEMORY.md", MEMORY)
    return tree.root


@pytest.fixture
def wiki(tmp_path: Path) -> Path:
    return tmp_path / "wiki"


def page(wiki: Path) -> str:
    return (wiki / "projects/argo.md").read_text()


def test_a_true_text_stands_at_the_head_of_the_page_and_is_asked_for_once(home: Path, wiki: Path) -> None:
    model = Model(GOOD)
    report = make_wiki(home, wiki, ask=model)
    assert page(wiki).index("built by Mira Holm [3].\n\nHer sail is white [2].") < page(wiki).index("## Facts")
    assert (report.model, report.requests) == ("test/model", 1)
    before = snapshot(wiki)
    assert not make_wiki(home, wiki, ask=model).changed
    assert not make_wiki(home, wiki).changed
    assert snapshot(wiki) == before
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("A small boat of 1984 [1] with a white sail [2].", "fact [3] is not in it"),
        (f"{GOOD} [7]", "there is no fact [7]"),
        (GOOD.replace("1984", "1985"), "no fact has the number 1985"),
        (GOOD + " See /srv/argo/log.txt [1].", "no fact says '/srv/argo/log.txt'"),
        (GOOD.replace("Mira Holm", "her friend Jonas"), "no fact names 'Jonas'"),
        (f"# Argo\n{GOOD}", "it has headings"),
        (f"{GOOD} <img src=x>", "it has headings"),
        (GOOD + " and so on and on" * 80, "longer than"),
    ],
)
def test_a_text_that_loses_or_invents_is_sent_back_with_the_reason(
    home: Path, wiki: Path, bad: str, reason: str
) -> None:
    model = Model(bad, GOOD)
    report = make_wiki(home, wiki, ask=model)
    assert reason in model.asked[1]
    assert "built by Mira Holm [3]" in page(wiki)
    assert report.requests == 2


def test_a_model_that_does_not_mend_is_not_believed_and_the_facts_stand(home: Path, wiki: Path) -> None:
    bad = GOOD.replace("white", "of 77 colours")
    report = make_wiki(home, wiki, ask=Model(bad, bad))
    assert "77" not in page(wiki)
    assert texts(wiki, "projects/argo") == ["A small boat of 1984", "Her sail is white", "Mira Holm built her"]
    assert [made.prose for made in report.pages if made.path == "projects/argo"] == ["refused"]


def test_when_the_facts_change_an_old_text_goes(home: Path, wiki: Path) -> None:
    make_wiki(home, wiki, ask=Model(GOOD))
    (home / "workspace/MEMORY.md").write_text(MEMORY.replace("white", "red"))
    make_wiki(home, wiki)
    assert "[3]" not in page(wiki)
    assert "Her sail is red" in page(wiki)


def test_a_model_that_cannot_be_reached_costs_the_texts_and_not_the_wiki(home: Path, wiki: Path) -> None:
    report = make_wiki(home, wiki, ask=Model())
    assert report.model_error == "the key was refused"
    assert texts(wiki, "projects/argo")


async def test_a_question_for_a_wiki_is_answered_beside_all_conversations_and_paid_for(
    pal: Harness, tmp_path: Path
) -> None:
    caller = LocalCaller(pal.services(Home(tmp_path, tmp_path / "palinurus.json")))
    pal.model.says("Argo is a boat [1].", fails(Failure.AUTH, "the key was refused"))
    answer = await asyncio.wait_for(caller.call(ask_for_wiki, ask_for_wiki.params("rules", "[1] a boat")), 60)
    assert answer.text == "Argo is a boat [1]."
    assert re.fullmatch(r"[\w-]+/model-1", answer.model)
    failed = await asyncio.wait_for(caller.call(ask_for_wiki, ask_for_wiki.params("rules", "again")), 60)
    assert (failed.text, "the key was refused" in failed.error) == ("", True)
    assert [request.head.tools for request in pal.model.requests] == [(), ()]
    assert await pal.transcript() == []
    with pytest.raises(BadRequest):
        await caller.call(ask_for_wiki, ask_for_wiki.params("rules", "x" * 200_000))
