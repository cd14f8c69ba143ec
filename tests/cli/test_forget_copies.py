"""`pal forget` beyond the home: wikis and exports that were made of it are known, rewritten and looked at again."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from called import Pal

from palinurus.cli import command
from palinurus.config.home import Home
from palinurus.domain.text_places import Words
from palinurus.extensions.migrate.copies import Copies, Copy
from palinurus.extensions.migrate.ingest.state import wiki_lock
from palinurus.operations import progress as operation_progress

WORDS = Words(["Villa Ada", "villa-ada"])
TAIL = "the tail of the tale"
LONG = f"- Greta Lund told about Villa Ada {'and more and more ' * 40} {TAIL}"
MEMORY = f"""# Memory

## Projects
### Villa Ada
- The roof is leaking

### aster
- The boat is called Aster
{LONG}

## Rules
- Never paint VILLA
  ADA on a Friday
- Always lock the shed
"""
SAID = "We decided that Villa Ada will be sold. We decided that the shed of aster stays green."


@pytest.fixture
def copied(pal_command: Pal, home: Home, workspace: Path, tmp_path: Path) -> Path:
    """A home with a wiki, a tree and a packed file beside it."""
    (workspace / "MEMORY.md").write_text(MEMORY)
    config = json.loads(home.config_path.read_text())
    config["agents"]["defaults"]["memorySearch"] = {"provider": "none"}  # vectors: test_forget_vectors.py
    home.config_path.write_text(json.dumps(config))
    assert pal_command("agent", "-m", SAID).code == 0
    assert pal_command("ingest", str(home.root), "--into", str(tmp_path / "wiki")).code == 0
    assert pal_command("export", str(tmp_path / "tree")).code == 0
    assert pal_command("export", str(tmp_path / "home.pal")).code == 0
    return tmp_path


def holding(folder: Path) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [str(path.relative_to(folder)) for path in files if WORDS.held_in(path.read_bytes())]


def all_pages(wiki: Path) -> str:
    return "".join(path.read_text() for path in sorted(wiki.rglob("*.md")))


def test_a_wiki_loses_the_words_and_the_facts_whose_lines_went_and_keeps_the_rest(
    pal_command: Pal, home: Home, copied: Path
) -> None:
    wiki = copied / "wiki"
    page = wiki / "projects" / "aster.md"
    page.write_text(page.read_text() + "\nmine: the mast is new\nmine: villa \u00a0ADA was nice\n")
    (wiki / "mine.md").write_text("I wrote of villa ada myself\n")
    assert TAIL in all_pages(wiki)
    assert (wiki / "projects" / "villa-ada.md").exists()
    plan = pal_command("forget", "--query", "villa ada", "--json").json
    assert {spot["where"] for spot in plan["spots"]} >= {f"wiki {wiki}: facts", f"wiki {wiki}: projects/aster.md"}
    assert TAIL in all_pages(wiki), "a plan changes nothing"
    done = pal_command("forget", "--query", "villa ada", "--apply", "--json").json
    assert holding(wiki) == ["mine.md"]
    left = {spot["where"]: spot["why"] for spot in done["remains"]}
    assert left[str(wiki / "mine.md")] == "a file in the wiki that `pal ingest` did not write"
    pages = all_pages(wiki)
    assert TAIL not in pages
    assert "The roof is leaking" not in pages  # it hung under the name
    assert not (wiki / "projects" / "villa-ada.md").exists()
    for kept in ("The boat is called Aster", "mine: the mast is new", "Always lock the shed"):
        assert kept in pages, kept
    again = pal_command("ingest", str(home.root), "--into", str(wiki), "--json").json
    assert holding(wiki) == ["mine.md"]
    assert "mine: the mast is new" in page.read_text()
    assert {each["outcome"] for each in again["pages"] if each["path"] == "projects/aster"} <= {"same", "changed"}


def test_an_exported_tree_is_rewritten_and_still_whole_and_a_packed_one_is_named(
    pal_command: Pal, copied: Path
) -> None:
    tree = copied / "tree"
    assert holding(tree)
    log = tree / "cron" / "runs" / "job.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text('{"summary": "Villa Ada is sold"}\n{"summary": "fine"}\n')
    done = pal_command("forget", "--query", "Villa  Ada", "--apply", "--json").json
    assert holding(tree) == []
    assert log.read_text() == '{"summary": "fine"}\n'
    left = [spot for spot in done["remains"] if spot["where"] == f"export {copied / 'home.pal'}"]
    assert len(left) == 1
    assert "delete it" in left[0]["why"]
    assert "The boat is called Aster" in (tree / "workspace" / "MEMORY.md").read_text()
    brought = pal_command("migrate", "openclaw", str(tree), "--dry-run", "--json").json
    assert brought["skipped"] == []
    (talk,) = (tree / "agents" / "main" / "sessions").glob("*.jsonl")
    lines = [json.loads(line) for line in talk.read_text().splitlines()]
    assert any("[forgotten]" in json.dumps(line) for line in lines)


@pytest.mark.slow
def test_with_a_session_its_facts_go_from_the_wiki_and_its_words_from_the_tree(pal_command: Pal, copied: Path) -> None:
    assert "the shed of aster stays green" in all_pages(copied / "wiki")
    pal_command("forget", "--session", "agent:main:main", "--apply")
    assert "the shed of aster stays green" not in all_pages(copied / "wiki")
    assert "The boat is called Aster" in all_pages(copied / "wiki")
    (talk,) = (copied / "tree" / "agents" / "main" / "sessions").glob("*.jsonl")
    assert "stays green" not in talk.read_text()
    assert pal_command("migrate", "openclaw", str(copied / "tree"), "--dry-run", "--json").json["skipped"] == []


@pytest.mark.slow
def test_what_is_not_there_any_more_is_passed_over_and_told(pal_command: Pal, home: Home, copied: Path) -> None:
    shutil.rmtree(copied / "wiki")
    shutil.rmtree(copied / "tree")
    (copied / "home.pal").unlink()
    done = pal_command("forget", "--query", "Villa Ada", "--apply")
    assert done.code == 0
    assert f"skipped, because it is missing: wiki {copied / 'wiki'}" in done.out
    assert not (copied / "wiki").exists()
    noted = (home.root / "copies.json").read_text()
    assert [each["kind"] for each in json.loads(noted)] == ["wiki", "export", "export"]
    assert "Villa" not in noted


@pytest.mark.slow
def test_a_wiki_that_is_being_written_is_named_and_left(pal_command: Pal, copied: Path) -> None:
    with wiki_lock(copied / "wiki", "pal ingest"):
        done = pal_command("forget", "--query", "Villa Ada", "--apply", "--json").json
    whys = [spot["why"] for spot in done["remains"] if spot["where"] == f"wiki {copied / 'wiki'}"]
    assert len(whys) == 1
    assert "(pal ingest); try again" in whys[0]
    pal_command("forget", "--query", "Villa Ada", "--apply")
    assert holding(copied / "wiki") == []


@pytest.mark.slow
def test_a_program_that_goes_on_with_a_transcript_keeps_it(pal_command: Pal, copied: Path) -> None:
    (talk,) = (copied / "tree" / "agents" / "main" / "sessions").glob("*.jsonl")
    with talk.open("a") as file:
        file.write('{"type":"message","id":"x","message":{"role":"user","content":"on I go"}}\n')
    before = talk.read_bytes()
    done = pal_command("forget", "--query", "Villa Ada", "--apply", "--json").json
    assert talk.read_bytes() == before
    assert any(spot["where"] == str(talk) and "another program" in spot["why"] for spot in done["remains"])


def test_the_plan_shows_the_words_as_they_stand_and_nothing_around_them(pal_command: Pal, copied: Path) -> None:
    plan = pal_command("forget", "--query", "villa ada")
    assert "… VILLA⏎  ADA …" in plan.out
    assert "… Villa Ada …" in plan.out
    assert "will be sold" not in plan.out
    assert "Friday" not in plan.out


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_progress_is_shown_where_a_person_looks_on(
    pal_command: Pal, copied: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    shown: list[tuple[str, int, int]] = []

    class Bar:
        def show(self, *told: object) -> None:
            shown.append(told)  # type: ignore[arg-type]

        def close(self) -> None:
            shown.append(("closed", 0, 0))

    monkeypatch.setattr(command, "Bar", Bar)
    monkeypatch.setattr(operation_progress, "TELL_SECONDS", 0.0)
    assert pal_command("forget", "--query", "Villa Ada", "--apply", *(["--json"] if as_json else [])).code == 0
    stages = {stage for stage, _, _ in shown}
    assert shown[-1][0] == "closed"
    assert bool(stages - {"closed"}) != as_json
    assert all(0 <= done <= total or total == 0 for _, done, total in shown)


@pytest.mark.slow
def test_with_one_agent_they_are_only_named_because_they_are_of_all(pal_command: Pal, copied: Path) -> None:
    before = holding(copied / "wiki"), holding(copied / "tree")
    done = pal_command("forget", "--query", "Villa Ada", "--agent", "main", "--apply", "--json").json
    assert (holding(copied / "wiki"), holding(copied / "tree")) == before
    named = {spot["where"] for spot in done["remains"] if "without --agent" in spot.get("why", "")}
    assert f"{copied / 'wiki' / 'projects' / 'aster.md'}" in named


def test_a_wiki_of_other_notes_is_known_to_the_home_of_whoever_made_it(pal_command: Pal, tmp_path: Path) -> None:
    notes, wiki = tmp_path / "notes", tmp_path / "wiki"
    notes.mkdir()
    (notes / "MEMORY.md").write_text(MEMORY)
    pal_command("ingest", str(notes), "--into", str(wiki), "--dry-run")
    assert "wiki" not in pal_command("forget", "--query", "Villa Ada").out, "nothing was written"
    pal_command("ingest", str(notes), "--into", str(wiki))
    pal_command("forget", "--query", "Villa Ada", "--apply")
    assert holding(wiki) == []
    assert "The boat is called Aster" in all_pages(wiki)
    assert (notes / "MEMORY.md").read_text() == MEMORY, "somebody else's home"
    pal_command("ingest", str(notes), "--into", str(wiki))
    assert holding(wiki) == [], "a source that is as it was is not read again"


def test_two_who_note_their_copies_at_once_lose_neither(home: Home) -> None:
    def note(number: int) -> None:
        Copies(home.root).add(Copy("wiki", f"/wiki/{number}", str(home.root), number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, range(24)))
    assert {each.path for each in Copies(home.root).all()} == {f"/wiki/{number}" for number in range(24)}
