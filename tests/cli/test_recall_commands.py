"""`pal memory recall` and `pal memory entities` on a real home."""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home

OLD = """# 2025-11-27
## Retain
- W @Peter: Is in Marrakech (Nov 27–Dec 1, 2025) for a birthday.
- O(c=0.95) @Peter: Prefers concise replies.
- O(c=2) @Peter: Nonsense.
"""
NEW = """# 2026-03-02
The boat lies in the east harbour.
## Retain
- W @Anna: Moved to Vienna.
"""


@pytest.fixture(autouse=True)
def notes(pal_command: Pal, workspace: Path) -> Path:
    folder = workspace / "memory"
    folder.mkdir()
    (folder / "2025-11-27.md").write_text(OLD)
    (folder / "2026-03-02.md").write_text(NEW)
    assert pal_command("config", "set", "memory.search.provider", "none").code == 0
    return folder


def texts(pal_command: Pal, *asked: str) -> list[str]:
    return [each["text"] for each in pal_command("memory", "recall", *asked, "--json").json["results"]]


def test_a_fact_comes_with_what_it_is_and_where_it_stands(pal_command: Pal) -> None:
    best = pal_command("memory", "recall", "what does Peter prefer?", "--json").json["results"][0]
    assert (best["kind"], best["confidence"], best["entities"]) == ("opinion", 0.95, ["Peter"])
    assert (best["path"], best["startLine"], best["endLine"]) == ("memory/2025-11-27.md", 4, 4)
    assert (best["source"], best["text"]) == ("memory/2025-11-27.md#L4", "Prefers concise replies.")


def test_a_question_about_a_time_finds_what_was_so_then(pal_command: Pal) -> None:
    best = pal_command("memory", "recall", "where was he on 2025-11-30?", "--json").json["results"][0]
    assert (best["text"][:15], best["timestamp"]) == ("Is in Marrakech", "2025-11-27/2025-12-01")


def test_lines_that_are_no_facts_are_found_too(pal_command: Pal) -> None:
    found = pal_command("memory", "recall", "where does the boat lie?", "--json").json["results"]
    assert ("note", "The boat lies in the east harbour.") in [(each["kind"], each["text"]) for each in found]


def test_what_changed_since_a_season_is_told_with_what_was_before_and_what_was_true_in_a_month_too(
    pal_command: Pal, notes: Path
) -> None:
    (notes / "2026-01-10.md").write_text(
        "## Retain\n- O @Peter: Prefers tea to coffee.\n- W: Our dentist is Dr Weber.\n"
    )
    (notes / "2026-04-10.md").write_text(
        "## Retain\n- O @Peter: Prefers coffee to tea now.\n- W: Our dentist is Dr Sommer now.\n"
    )
    (notes / "2026-04-20.md").write_text("## Retain\n- O @Peter: Prefers coffee to tea now.\n- W: Milk is out.\n")
    changed = texts(pal_command, "what changed since spring?", "--as-of", "2026-06-01")[:4]
    assert sorted(changed) == [
        "Our dentist is Dr Sommer now.", "Our dentist is Dr Weber.",
        "Prefers coffee to tea now.", "Prefers tea to coffee.",
    ]  # fmt: skip
    assert texts(pal_command, "what changed since spring with Peter?", "--as-of", "2026-06-01")[:2] == [
        "Prefers coffee to tea now.", "Prefers tea to coffee.",
    ]  # fmt: skip
    true = texts(pal_command, "what was true during February 2026?")
    assert {"Our dentist is Dr Weber.", "Prefers tea to coffee."} == set(true[:2])


def test_a_line_that_plain_search_finds_is_the_fact_that_stands_there(pal_command: Pal) -> None:
    found = pal_command("memory", "recall", "the birthday in Morocco, Marrakech", "--json").json["results"]
    assert all(each["kind"] != "note" or not each["text"].startswith("- W") for each in found)


def test_answers_are_narrowed_by_day_kind_and_entity(pal_command: Pal) -> None:
    assert texts(pal_command, "Peter", "Anna", "--as-of", "2025-12-31", "--kind", "world") == [
        "Is in Marrakech (Nov 27–Dec 1, 2025) for a birthday."
    ]
    assert texts(pal_command, "Peter", "Anna", "--since", "2026-01-01", "--kind", "world") == ["Moved to Vienna."]
    assert texts(pal_command, "anything", "--entity", "anna") == ["Moved to Vienna."]
    assert len(texts(pal_command, "Peter", "--k", "1")) == 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("--entity", "Nobody"), "no fact names 'Nobody'"),
        (("--since", "soon"), "not a length of time"),
        (("--as-of", "31.12."), "is no day"),
    ],
)
def test_what_cannot_be_asked_is_one_line(pal_command: Pal, asked: tuple[str, str], why: str) -> None:
    ended = pal_command("memory", "recall", "Peter", *asked)
    assert ended.code != 0
    assert why in ended.err
    assert ended.err.count("\n") == 1


def test_a_hand_edit_counts_at_once_and_a_damaged_store_is_made_anew(
    pal_command: Pal, notes: Path, home: object
) -> None:
    assert "Moved to Vienna." in texts(pal_command, "Anna")
    note = notes / "2026-03-02.md"
    note.write_text(NEW.replace("Vienna", "Lisbon"))
    assert "Moved to Lisbon." in texts(pal_command, "Anna")
    [store] = home.root.glob("derived/knowledge/*.sqlite")
    store.write_bytes(b"no database at all" * 1000)
    assert "Moved to Lisbon." in texts(pal_command, "Anna")
    note.unlink()
    assert "Moved to Lisbon." not in texts(pal_command, "Anna")


def test_entities_are_listed_with_what_is_no_fact(pal_command: Pal) -> None:
    told = pal_command("memory", "entities", "--json").json
    assert [(each["name"], each["facts"]) for each in told["entities"]] == [("Peter", 2), ("Anna", 1)]
    assert told["troubles"][0]["line"] == 5
    shown = pal_command("memory", "entities").out
    assert "memory/2025-11-27.md#L5 is no fact" in shown
    assert "3 facts." in shown


def test_what_was_forgotten_is_not_in_what_is_derived(pal_command: Pal, home: Home) -> None:
    assert "Moved to Vienna." in texts(pal_command, "Anna")
    assert pal_command("forget", "--query", "Vienna", "--apply").code == 0
    assert b"Vienna" not in b"".join(each.read_bytes() for each in home.root.glob("derived/knowledge/*"))
    assert not any("Vienna" in each for each in texts(pal_command, "Anna", "Vienna"))


def test_names_are_merged_and_split_for_good(pal_command: Pal, workspace: Path, home: Home) -> None:
    def also(name: str) -> list[str]:
        return pal_command("memory", "entities", "show", name, "--json").json["entity"].get("also", [])

    assert pal_command("memory", "entities", "merge", "Anna", "Peter").code == 0
    assert also("anna") == ["Anna"]
    assert len(pal_command("memory", "entities", "show", "Peter", "--json").json["facts"]) == 3
    assert "@Anna is @Peter" in (workspace / "bank" / "aliases.md").read_text()
    for store in home.root.glob("derived/knowledge/*"):
        store.unlink()
    assert "also Anna: declared" in pal_command("memory", "entities", "show", "Anna").out
    assert pal_command("memory", "entities", "split", "Anna").code == 0
    assert [each["name"] for each in pal_command("memory", "entities", "list", "--json").json["entities"]] == [
        "Peter",
        "Anna",
    ]
    assert "has no other name" in pal_command("memory", "entities", "split", "Anna").err
    assert pal_command("memory", "entities", "merge", "Anna", "Peter").code == 0
    assert also("Peter") == ["Anna"]


def test_a_budget_of_tokens_is_filled_and_not_exceeded(pal_command: Pal, notes: Path) -> None:
    (notes / "2026-03-03.md").write_text("".join(f"- berth {number} of the boat is free\n" for number in range(60)))
    assert len(texts(pal_command, "which berth of the boat?")) == 25
    assert len(texts(pal_command, "which berth of the boat?", "--budget-tokens", "2000")) > 50
    few = texts(pal_command, "which berth of the boat?", "--budget-tokens", "50")
    assert 0 < sum(len(each) + 1 for each in few) <= 201
