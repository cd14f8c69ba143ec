"""Markdown is cut into pieces that can be cited, and each knows what it hangs under."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.memory.chunk import chunk
from palinurus.memory.document import Piece


def pieces(text: str, path: str = "memory/2026-11-15.md") -> tuple[Piece, ...]:
    return chunk(dedent(text).strip("\n"), path, 400).pieces


def lines(text: str) -> list[tuple[int, int]]:
    return [(piece.start_line, piece.end_line) for piece in pieces(text)]


def test_a_bullet_keeps_the_lines_that_continue_it() -> None:
    text = """
    - Decided: the boiler is replaced
      in spring, by Karl
    - Paint is ordered
    """
    assert lines(text) == [(1, 2), (3, 3)]


def test_a_nested_bullet_is_its_own_piece_and_knows_its_parent() -> None:
    parent, child = pieces("- Trip to Porto\n  - hotel is booked")
    assert child.context == "Trip to Porto"
    assert child.text == "  - hotel is booked"
    assert parent.context == ""


def test_the_headings_above_are_the_context_of_a_piece() -> None:
    found = pieces("# Atlas\n\n## Budget\n\n- twelve thousand\n\n## People\n\n- Anna", "memory/projects.md")
    assert [(piece.text, piece.context) for piece in found] == [
        ("# Atlas", "projects"),
        ("## Budget", "projects > Atlas"),
        ("- twelve thousand", "projects > Atlas > Budget"),
        ("## People", "projects > Atlas"),
        ("- Anna", "projects > Atlas > People"),
    ]
    assert "Budget" in found[2].words


def test_an_underlined_line_is_a_heading_too() -> None:
    heading, body = pieces("Atlas\n=====\n\nIt goes on.")
    assert (heading.start_line, heading.end_line) == (1, 2)
    assert body.context == "Atlas"


def test_each_row_of_a_table_knows_the_header() -> None:
    found = pieces("| name | age |\n|---|---|\n| Bob | 7 |\n| Ann | 9 |")
    assert [piece.start_line for piece in found] == [1, 3, 4]
    assert found[-1].context == "name age"


def test_wrapped_prose_is_cut_where_sentences_end_at_a_line() -> None:
    text = """
    The first sentence is long enough that the editor wrapped it after some
    eighty columns, and here it ends.
    The second one begins on a line of its own and is wrapped again because
    it is just as long as the first.
    """
    assert lines(text) == [(1, 2), (3, 4)]


def test_long_prose_is_cut_and_no_line_is_lost() -> None:
    text = "\n".join(
        f"line {number} of a paragraph that never ends and was wrapped by an editor" for number in range(40)
    )
    found = pieces(text)
    assert len(found) > 5
    assert "\n".join(piece.text for piece in found) == text


def test_one_very_long_line_is_one_piece() -> None:
    assert lines("word " * 2_000) == [(1, 1)]


def test_what_people_say_line_by_line_is_a_piece_each() -> None:
    assert lines("User: what shall we do about the boiler, it is broken again\nAssistant: call Karl") == [
        (1, 1),
        (2, 2),
    ]


def test_short_lines_were_ended_on_purpose() -> None:
    assert lines("milk\nbread\neggs") == [(1, 1), (2, 2), (3, 3)]


def test_code_is_found_without_its_fences_and_is_not_taken_for_markdown() -> None:
    found = pieces("Run:\n\n```sh\n# not a heading\nmake test\n```\nAfter it.")
    assert [(piece.text, piece.context) for piece in found] == [
        ("Run:", ""),
        ("# not a heading\nmake test", ""),
        ("After it.", ""),
    ]


def test_each_field_of_front_matter_is_a_piece() -> None:
    found = pieces("---\ntitle: Atlas\ntags: [roof, budget]\n---\nText.")
    assert [piece.text for piece in found] == ["title: Atlas", "tags: [roof, budget]", "Text."]


def test_rulers_and_empty_lines_are_no_pieces() -> None:
    assert pieces("---\n\n***\n\n* * *\n\n|---|\n\n   \n") == ()


def test_a_dated_file_is_found_by_every_way_to_write_its_date() -> None:
    (passage,) = chunk("- Rain.", "memory/2026-11-15.md", 400).passages
    assert {"2026-11-15", "Sunday", "15", "November", "20261115", "202611"} <= set(passage.words.split())


def test_what_is_embedded_is_the_text_without_its_markers() -> None:
    assert [piece.meaning for piece in pieces("- [x] call Anna\n\n## Roof\n\n1. tiles")] == [
        "call Anna",
        "Roof",
        "tiles",
    ]


def test_pieces_that_mean_the_same_have_the_same_digest() -> None:
    one, other = pieces("- call Anna\n* call Anna")
    assert one.digest == other.digest
    assert len(one.digest) == 16


def test_passages_hold_some_hundred_tokens_and_end_at_headings_when_large() -> None:
    section = "\n".join(f"- {number} something that happened in this long section" for number in range(30))
    cut = chunk(f"# One\n{section}\n# Two\n{section}", "memory/a.md", 400)
    assert all(len(passage.words) < 400 * 4 + 200 for passage in cut.passages)
    heading = next(piece for piece in cut.pieces if piece.text == "# Two")
    assert cut.passages[heading.passage].start_line == heading.start_line


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_lines_count_the_same_with_any_line_ending(ending: str) -> None:
    assert [piece.start_line for piece in chunk(ending.join(["a one", "", "- b"]), "memory/a.md", 400).pieces] == [1, 3]


_line = st.one_of(
    st.sampled_from(
        [
            "",
            "  ",
            "# Head",
            "## Sub",
            "- item",
            "  - nested",
            "  goes on",
            "| a | b |",
            "|---|",
            "```",
            "~~~",
            "---",
            "===",
        ]
    ),
    st.text(st.characters(exclude_characters="\n\r"), max_size=80),
)


@settings(max_examples=150)
@given(st.lists(_line, max_size=40))
def test_any_text_gives_pieces_in_order_that_are_its_own_lines(found: list[str]) -> None:
    cut = chunk("\n".join(found), "memory/x.md", 50)
    before = 0
    for piece in cut.pieces:
        assert before < piece.start_line <= piece.end_line <= len(found)
        assert piece.text == "\n".join(found[piece.start_line - 1 : piece.end_line])
        passage = cut.passages[piece.passage]
        assert passage.start_line <= piece.start_line <= piece.end_line <= passage.end_line
        before = piece.end_line


# -- windows, as OpenClaw's documents cut ------------------------------------------------------------------------------


def test_windows_hold_whole_lines_and_overlap() -> None:
    text = "\n".join(f"- line number {number:03}" for number in range(100))  # 17 characters each
    found = chunk(text, "memory/a.md", 50, 20).pieces
    assert [(piece.start_line, piece.end_line) for piece in found[:3]] == [(1, 11), (8, 18), (15, 25)]
    assert found[-1].end_line == 100
    assert all(len(piece.text) <= 200 for piece in found)
    assert found[0].text.splitlines()[-4:] == found[1].text.splitlines()[:4]


@given(st.lists(st.integers(0, 400), max_size=40), st.integers(32, 200), st.integers(0, 64))
@settings(max_examples=60, deadline=None)
def test_windows_leave_out_no_line(lengths: list[int], tokens: int, overlap: int) -> None:
    lines = ["x" * length for length in lengths]
    found = chunk("\n".join(lines), "memory/a.md", tokens, overlap).pieces
    covered = {number for piece in found for number in range(piece.start_line, piece.end_line + 1)}
    assert covered >= {number for number, line in enumerate(lines, start=1) if line}
    assert [piece.start_line for piece in found] == sorted({piece.start_line for piece in found})
