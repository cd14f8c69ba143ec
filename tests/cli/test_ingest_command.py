"""`pal ingest`: a wiki of a home, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Pal


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("## Projects\n### argo\n- A small boat\n- the password: hunter2\n")
    return folder


def test_a_wiki_is_made_and_the_second_time_there_is_nothing_to_do(
    pal_command: Pal, notes: Path, tmp_path: Path
) -> None:
    wiki = tmp_path / "wiki"
    planned = pal_command("ingest", str(notes), "--into", str(wiki), "--dry-run")
    assert planned.code == 0
    assert "2 pages with 2 facts: 2 would be new" in planned.out
    assert not wiki.exists()
    made = pal_command("ingest", str(notes), "--into", str(wiki))
    assert "new      projects/argo  (2 facts)" in made.out
    assert "1 secrets were removed" in made.out
    assert "hunter2" not in (wiki / "projects/argo.md").read_text()
    again = pal_command("ingest", str(notes), "--into", str(wiki), "--json").json
    assert not again["changed"]
    assert [(page["path"], page["outcome"]) for page in again["pages"]] == [
        ("projects/argo", "same"),
        ("index", "same"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "--into", "wiki"), "there is no folder"),
        (("notes", "--into", "notes"), "holds the home itself"),
        (("notes", "--into", "wiki", "--agent", "nobody"), "there is no agent 'nobody'"),
        (("notes", "--into", "wiki", "--model"), "no model is configured"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    pal_command: Pal, notes: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    many = "".join(f"- The mast of argo is {number} metres high\n" for number in range(5))
    (notes / "MEMORY.md").write_text(f"## Projects\n### argo\n{many}")
    monkeypatch.chdir(notes.parent)
    ended = pal_command("ingest", *arguments)
    assert ended.code != 0
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1
