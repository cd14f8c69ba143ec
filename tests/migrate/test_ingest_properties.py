"""Whatever stands in a home: a second run changes nothing, every fact has its source, and no secret gets out."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from foreign_trees import Tree, talk
from hypothesis import given, settings
from hypothesis import strategies as st
from wikis import facts_of, make_wiki, snapshot, unfounded

SECRETS = ("sk-ant-api03-Canary0123456789abc", "ghp_Canary0123456789Canary0123456789ab", "correct-horse-0-staple")
WORDS = (
    "tide-clock", "argo", "Mira", "Noor Haddad", "decided to", "prefers", "never", "`code`", "[[link]]", "<b>",
    "2026-11-15", "the", "boat", "潮の時計", "@Sam", "password: ", *SECRETS, "|", "- ", "# ", "```", "---", "?", "\t",
    "’s", "https://a.invalid/x",
)  # fmt: skip
lines = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join)
headings = st.sampled_from(["## Projects", "### argo", "## Rules", "## About Mira", "## Retain", "## 2026-11-14", ""])
notes = st.lists(
    st.one_of(headings, lines.map("- {}".format), lines, st.text(max_size=40)), min_size=3, max_size=12
).map("\n".join)
NAMES = ("MEMORY.md", "USER.md", "DREAMS.md", "memory/2026-11-14.md", "memory/2026-01-02.md", "notes/argo.md")
files = st.dictionaries(st.sampled_from(NAMES), notes, min_size=2, max_size=5)
said = st.lists(lines, max_size=4)


def make_home(root: Path, written: dict[str, str], words: list[str]) -> Tree:
    tree = Tree(root)
    tree.write("agents/main/agent/auth-profiles.json", json.dumps({"profiles": {"x:y": {"token": SECRETS[2]}}}))
    for name, text in written.items():
        tree.write(f"workspace/{name}", text.encode("utf-8", "replace"))
    tree.session("s1", talk("s1", *words), key="agent:main:main")
    return tree


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(files, said, files)
def test_a_wiki_is_stable_and_founded_and_holds_no_secret(
    written: dict[str, str], words: list[str], later: dict[str, str]
) -> None:
    place = Path(tempfile.mkdtemp())
    try:
        wiki = place / "wiki"
        tree = make_home(place / ".openclaw", written, words)
        _check(tree, wiki)
        for name, text in later.items():  # the home goes on
            tree.write(f"workspace/{name}", text.encode("utf-8", "replace"))
        _check(tree, wiki)
        _as_if_made_at_once(tree, wiki, place / "anew")
    finally:
        shutil.rmtree(place)


def _check(tree: Tree, wiki: Path) -> None:
    make_wiki(tree.root, wiki)
    before = snapshot(wiki)
    assert not make_wiki(tree.root, wiki).changed
    assert snapshot(wiki) == before
    assert unfounded(tree.root, wiki) == []
    held = b"".join(path.read_bytes() for path in wiki.rglob("*") if path.is_file()).decode()
    assert [secret for secret in SECRETS if secret in held] == []


def _as_if_made_at_once(tree: Tree, wiki: Path, anew: Path) -> None:
    """Going on from an older wiki leads to the same pages as beginning anew."""
    make_wiki(tree.root, anew)
    assert list(facts_of(wiki)) == list(facts_of(anew))
    pages = {path: text for path, (text, _) in snapshot(wiki).items() if path.endswith(".md") and path != "log.md"}
    assert pages == {
        path: text for path, (text, _) in snapshot(anew).items() if path.endswith(".md") and path != "log.md"
    }
