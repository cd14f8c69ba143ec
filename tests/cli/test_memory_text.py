"""Memory in words for people: freshness, reports, states, and the bar."""

from __future__ import annotations

import io

import pytest

from palinurus.cli.command import Bar, bar_line
from palinurus.cli.memory import answer_text, freshness_line, report_text, status_text
from palinurus.memory.answer import (
    Difference,
    Factor,
    IndexFreshness,
    MemoryStatus,
    SearchAnswer,
    SearchResult,
    SkippedFile,
    SyncReport,
)

FRESH = IndexFreshness("fresh", 214, caught_up=1, vectors="partial", embedded=8_120, pieces=9_340)
STATUS = MemoryStatus("main", True, 3, 9, 2, 1_000, 4_200, {"memory": 2, "handbook": 1}, "embedded/mini/384/")


def test_results_stand_with_their_place_their_lines_and_what_made_their_score() -> None:
    result = SearchResult("memory/a.md", 3, 4, 0.876, "one\ntwo", factors=(Factor("words", 0.5, 0.6, 0.3),))
    lines = answer_text(SearchAnswer((result,), FRESH, took_ms=38.2)).splitlines()
    assert lines[:3] == ["memory/a.md#L3-L4  0.88", "  one", "  two"]
    assert lines[3].split() == ["words", "0.500", "×", "0.60", "=", "+0.300"]
    assert lines[-1] == (
        "(hybrid search, fresh: 214 files compared, 1 file changed and indexed just now, "
        "vectors partial (8,120 of 9,340), 38 ms)"
    )


@pytest.mark.parametrize(
    ("freshness", "said"),
    [
        (IndexFreshness("fresh", 1), "(hybrid search, fresh: 1 file compared)"),
        (
            IndexFreshness("stale", 9, behind=("a.md", "b.md", "c.md", "d.md"), behind_count=7),
            "(hybrid search, stale: a.md, b.md, c.md and 4 more changed and not in it)",
        ),
        (IndexFreshness("unswept", 0, why="no time"), "(hybrid search, not compared with the disk: no time)"),
    ],
)
def test_how_fresh_an_answer_is_is_one_line(freshness: IndexFreshness, said: str) -> None:
    assert freshness_line(SearchAnswer((), freshness)) == said


def test_a_report_tells_what_was_done_and_what_was_not() -> None:
    report = SyncReport(
        5, added=1, removed=2, pieces=9, skipped=(SkippedFile("memory/big.md", "3 GB"),), embedder_trouble="it hangs"
    )
    text = report_text(report)
    assert text.startswith("5 files compared: 1 added, 2 removed.\n9 chunks indexed.")
    assert "not read: memory/big.md: 3 GB" in text
    assert "it hangs" in text
    assert report_text(SyncReport(1)) == "1 file compared: nothing has changed."


def test_a_long_list_is_cut() -> None:
    text = report_text(SyncReport(50, behind=tuple(f"{n}.md" for n in range(50))))
    assert "… and 30 more" in text


def test_a_state_says_whether_index_and_disk_agree() -> None:
    same = status_text(STATUS)
    assert "3 (handbook 1, memory 2)" in same
    assert "4.2 kB of index (4.2 ×)" in same
    assert same.endswith("The index matches the disk (by size and time; --deep reads every file).")
    differs = MemoryStatus(
        "main", True, 3, 9, 2, 0, 0, {}, "", differences=(Difference("a.md", "changed"),), difference_count=1, deep=True
    )
    assert "  a.md: changed" in status_text(differs)
    assert "keyword search only" in status_text(differs)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_one_line_that_goes_away() -> None:
    terminal = Terminal()
    bar = Bar(terminal)
    bar.show("indexing", 5, 10)
    bar.show("indexing", 10, 10)
    bar.close()
    assert terminal.getvalue().count("\n") == 0
    assert terminal.getvalue().endswith(" \r")
    assert bar_line("indexing", 5, 10) == "indexing [##############..............]  50%  5 of 10"
    assert bar_line("looking", 7, 0) == "looking: 7"


def test_where_nobody_looks_on_there_is_no_bar() -> None:
    pipe = io.StringIO()
    bar = Bar(pipe)
    bar.show("indexing", 5, 10)
    bar.close()
    assert pipe.getvalue() == ""
