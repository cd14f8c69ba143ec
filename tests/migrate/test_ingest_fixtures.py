"""Whole homes that the real program made, distilled."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from wikis import facts_of, make_wiki, snapshot, texts, unfounded

HOMES = ("openclaw-a", "openclaw-b", "openclaw-c", "seed-flat")


@pytest.fixture(params=HOMES)
def theirs(request: pytest.FixtureRequest) -> Path:
    folder = os.environ.get("FIXTURES")
    if not folder:
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    return Path(folder, request.param, "home")


def test_every_fact_has_a_source_that_holds_its_words_and_a_second_run_changes_nothing(
    theirs: Path, tmp_path: Path
) -> None:
    home, wiki = snapshot(theirs), tmp_path / "wiki"
    report = make_wiki(theirs, wiki)
    assert report.facts >= 15
    assert report.skipped_total == 0
    assert unfounded(theirs, wiki) == []
    before = snapshot(wiki)
    assert not make_wiki(theirs, wiki).changed
    assert snapshot(wiki) == before
    assert snapshot(theirs) == home


def test_the_owner_and_what_they_prefer_have_pages_and_every_link_leads_somewhere(theirs: Path, tmp_path: Path) -> None:
    make_wiki(theirs, tmp_path)
    assert texts(tmp_path, "people/sam")
    assert texts(tmp_path, "preferences/sam")
    assert list((tmp_path / "projects").glob("*.md"))
    for path in tmp_path.rglob("*.md"):
        for target in re.findall(r"\[\[([^\]|]+)", path.read_text()):
            assert (tmp_path / f"{target}.md").is_file(), f"{path}: {target}"


def test_no_stored_key_of_the_home_is_in_its_wiki(theirs: Path, tmp_path: Path) -> None:
    make_wiki(theirs, tmp_path)
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()).decode()
    assert not re.search(r"FAKE|sk-ant|botToken", held)
    assert all(fact.cites for _, fact in facts_of(tmp_path))
