"""`pal memory` as a person and a program use it, on a real home with a real index."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from called import Pal

NOTE = "# 2026-11-15\n\n- The rudder of the Aster was painted green.\n- Ann brings the new sail on Friday.\n"


@pytest.fixture(autouse=True)
def by_words_alone(pal_command: Pal, workspace: Path) -> None:
    """No model is loaded here; what meaning adds is measured elsewhere."""
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-11-15.md").write_text(NOTE)
    assert pal_command("config", "set", "memory.search.provider", "none").code == 0


def test_a_question_is_answered_with_lines_places_and_how_fresh_it_is(pal_command: Pal) -> None:
    ended = pal_command("memory", "search", "which", "colour", "has", "the", "rudder?")
    assert ended.code == 0
    assert ended.out.startswith("memory/2026-11-15.md#L3")
    assert "painted green" in ended.out
    assert "fresh: 3 files compared" in ended.out


def test_for_programs_an_answer_is_json(pal_command: Pal) -> None:
    told = pal_command("memory", "search", "rudder", "--json", "--explain").json
    best = told["results"][0]
    assert (best["path"], best["startLine"], best["endLine"]) == ("memory/2026-11-15.md", 3, 3)
    assert best["snippet"] == "- The rudder of the Aster was painted green."
    assert best["factors"]
    assert told["freshness"]["state"] == "fresh"
    assert told["mode"] == "keyword"


def test_the_number_of_results_is_kept(pal_command: Pal) -> None:
    assert (
        len(pal_command("memory", "search", "the Aster rudder boat", "--max-results", "1", "--json").json["results"])
        == 1
    )


def test_a_file_that_was_just_written_changed_and_deleted_is_found_as_it_is(pal_command: Pal, workspace: Path) -> None:
    note = workspace / "memory" / "2026-11-16.md"
    pal_command("memory", "index")
    note.write_text("- The anchor weighs nine kilos.\n")
    assert "nine kilos" in pal_command("memory", "search", "anchor").out
    note.write_text("- The anchor weighs twelve kilos.\n")
    assert "twelve kilos" in pal_command("memory", "search", "anchor").out
    note.rename(note.with_name("2026-11-17.md"))
    assert "2026-11-17.md#L1" in pal_command("memory", "search", "anchor").out
    note.with_name("2026-11-17.md").unlink()
    assert "Nothing was found" in pal_command("memory", "search", "anchor").out


def test_many_questions_get_an_answer_a_line(pal_command: Pal) -> None:
    ended = pal_command(
        "memory",
        "search",
        "--stdin",
        "--json",
        "--budget-tokens",
        "100",
        stdin='rudder\n\n"AND NEAR(*\nwho has a sail?\n',
    )
    answers = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.code == 0
    assert len(answers) == 4
    assert answers[0]["results"][0]["path"] == "memory/2026-11-15.md"
    assert answers[1]["results"] == []
    assert "new sail" in answers[3]["results"][0]["snippet"]
    assert all("freshness" in answer for answer in answers)


@pytest.mark.slow
def test_an_answer_comes_before_the_next_question_is_asked(pal_command: Pal) -> None:
    command = [sys.executable, "-m", "palinurus", "memory", "search", "--stdin", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(30, process.kill)  # a line that never comes would be waited for
        limit.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for question in ("rudder", "sail"):
                process.stdin.write(question + "\n")
                process.stdin.flush()
                assert question in json.loads(process.stdout.readline())["results"][0]["snippet"]
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            limit.cancel()
            process.kill()


def test_the_index_is_made_once_and_then_only_compared(pal_command: Pal) -> None:
    first = pal_command("memory", "index", "--json")
    assert (first.code, first.json["added"]) == (0, 3)
    again = pal_command("memory", "index")
    assert "nothing has changed" in again.out
    assert pal_command("memory", "index", "--force", "--json").json["pieces"] == first.json["pieces"]


def test_the_state_is_compared_with_the_disk_each_time(pal_command: Pal, workspace: Path) -> None:
    pal_command("memory", "index")
    same = pal_command("memory", "status", "--deep")
    assert same.code == 0
    assert "The index matches the disk (every file was read)." in same.out
    (workspace / "memory" / "new.md").write_text("- news\n")
    other = pal_command("memory", "status", "--json")
    assert other.code == 1
    assert [each["path"] for each in other.json["differences"]] == ["memory/new.md"]


def test_lines_are_read_by_their_citation(pal_command: Pal) -> None:
    assert pal_command("memory", "get", "memory/2026-11-15.md#L4").out == "- Ann brings the new sail on Friday.\n"
    assert pal_command("memory", "get", "memory/none.md").code == 1
    refused = pal_command("memory", "get", "../secret.md")
    assert refused.code != 0
    assert refused.err.count("\n") <= 2


def test_a_collection_is_searched_as_soon_as_it_is_added_and_no_longer_when_it_is_removed(
    pal_command: Pal, tmp_path: Path
) -> None:
    (tmp_path / "Log Book").mkdir()
    (tmp_path / "Log Book" / "a.md").write_text("- The lighthouse blinks twice.\n")
    added = pal_command("memory", "collections", "add", str(tmp_path / "Log Book"), "--json").json
    assert added["collection"]["name"] == "log-book"
    assert "log-book/a.md#L1" in pal_command("memory", "search", "lighthouse").out
    assert "blinks twice" in pal_command("memory", "get", "log-book/a.md").out
    assert "log-book" in pal_command("memory", "collections", "list").out
    pal_command("memory", "collections", "remove", "log-book")
    assert "Nothing was found" in pal_command("memory", "search", "lighthouse").out
    assert "no collections" in pal_command("memory", "collections", "list").out


def test_own_questions_are_measured_and_the_misses_shown(pal_command: Pal, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(
        '{"query": "colour of the rudder", "expect": [["memory/2026-11-15.md", 3]]}\n'
        '{"query": "who brings the sail?", "expect": [["MEMORY.md", 90]]}\n'
    )
    ended = pal_command("memory", "eval", str(cases), "--fail-under", "60")
    assert ended.code == 1
    assert "2 questions: any 50.0%, all 50.0%" in ended.out
    assert "not found: MEMORY.md#L90" in ended.out
    assert "instead: memory/2026-11-15.md#L4" in ended.out
    assert pal_command("memory", "eval", str(cases), "--json").json["questions"] == 2


def test_memory_that_is_switched_off_says_so(pal_command: Pal) -> None:
    pal_command("config", "set", "memory.search.enabled", "false")
    ended = pal_command("memory", "search", "rudder")
    assert ended.code != 0
    assert "switched off" in ended.err


@pytest.mark.parametrize("arguments", [(), ("--stdin", "and words"), ("   ",)])
def test_a_question_is_asked_one_way(pal_command: Pal, arguments: tuple[str, ...]) -> None:
    assert pal_command("memory", "search", *arguments).code == 2


def test_an_agent_that_is_not_there_has_no_memory(pal_command: Pal) -> None:
    ended = pal_command("memory", "search", "rudder", "--agent", "nobody")
    assert ended.code != 0
    assert "nobody" in ended.err


def test_the_command_itself_imports_nothing_heavy() -> None:
    heavy = ("palinurus.agent.turn", "palinurus.tools.gate", "numpy", "onnxruntime", "watchfiles")
    code = f"import sys, palinurus.cli.memory; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
