"""Markdown is cut into blocks the same way however it arrives, and each block has its form on the screen."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.cli.terminal.markdown import LONGEST, BlockStream, fitted, plain, render, render_text
from palinurus.cli.terminal.spans import Line, harmless, inline, line_width, wrap

WHOLE = """# Tides

A paragraph with **bold** words
and a second line.
- one
- two
   - nested

| Day | High |
|---|---:|
| Wed | 6.4 m |
| Thu | **6.9** m |

```python
def f(x):
    return x | 1
```
> quoted
> twice

- [x] done
---
The end."""


def shown(lines: list[Line]) -> list[str]:
    return ["".join(text for _, text in line).rstrip() for line in lines]


def test_each_kind_of_block_has_its_form() -> None:
    assert shown(render_text(WHOLE, 60)) == [
        "Tides",
        "",
        "A paragraph with bold words",
        "and a second line.",
        "• one",
        "• two",
        "   • nested",
        "",
        "Day │  High",
        "────┼──────",
        "Wed │ 6.4 m",
        "Thu │ 6.9 m",
        "",
        "  python",
        "  def f(x):",
        "      return x | 1",
        "",
        "│ quoted",
        "│ twice",
        "",
        "☑ done",
        "────────────────────────────────────────",
        "The end.",
    ]


@given(st.lists(st.integers(1, len(WHOLE)), max_size=30))
def test_however_it_is_cut_the_blocks_are_the_same(cuts: list[int]) -> None:
    stream, done = BlockStream(), []
    places = [0, *sorted(cuts), len(WHOLE)]
    for start, end in pairwise(places):
        done += stream.feed(WHOLE[start:end])
        assert stream.open is not None  # looking at what is open changes nothing
    whole = BlockStream()
    assert done + stream.finish() == whole.feed(WHOLE) + whole.finish()


@given(st.text(alphabet="ab *_`#-|>\n\\[]()~1.", max_size=300))
def test_no_text_breaks_it_and_no_letter_is_lost(text: str) -> None:
    lines = shown(render_text(text, 40))
    letters = [char for char in "".join(lines) if char in "ab"]
    if "```" not in text and "~~~" not in text and "|" not in text:  # names of languages are cut, cells may be too many
        assert letters == [char for char in text if char in "ab"]


def test_a_table_is_open_until_its_last_row_and_text_with_bars_is_no_table() -> None:
    stream = BlockStream()
    assert stream.feed("| a | b |\n|---|---|\n| 1 | 2 |\n") == []
    assert [block.kind for block in stream.open] == ["table"]
    assert [block.kind for block in stream.feed("\n")] == ["table"]
    assert [block.kind for block in [*stream.feed("x | y\nnothing\n"), *stream.finish()]] == ["text"]


def test_code_is_given_out_line_by_line_before_its_end() -> None:
    stream = BlockStream()
    done = stream.feed("```\none\ntwo\nthr")
    assert [(block.kind, block.text) for block in done] == [("language", ""), ("code", "one"), ("code", "two")]
    assert [block.text for block in stream.open] == ["thr"]


def test_an_endless_paragraph_is_given_out_in_pieces() -> None:
    stream = BlockStream()
    done = stream.feed("word " * 3000)
    assert done
    assert all(len(block.text) <= 2 * LONGEST for block in [*done, *stream.open])


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("a **b** c", [("", "a "), ("strong", "b"), ("", " c")]),
        ("*x* and _y_", [("em", "x"), ("", " and "), ("em", "y")]),
        ("**a `b` c**", [("strong", "a "), ("strong code", "b"), ("strong", " c")]),
        ("snake_case_name 2 * 3 * 4", [("", "snake_case_name 2 * 3 * 4")]),
        (r"\*not\*", [("", "*"), ("", "not"), ("", "*")]),
        ("``a ` b``", [("code", "a ` b")]),
        ("[name](https://x.org)", [("link", "name"), ("dim", " (https://x.org)")]),
        ("~~old~~", [("struck", "old")]),
        ("**begun", [("", "**begun")]),
    ],
)
def test_inline_marks_become_styles(text: str, spans: list[tuple[str, str]]) -> None:
    assert inline(text) == spans


def test_a_mark_that_is_begun_holds_to_the_end_of_what_is_open() -> None:
    assert inline("see **bol", open_ended=True) == [("", "see "), ("strong", "bol")]
    assert inline("see `co", open_ended=True) == [("", "see "), ("code", "co")]


@given(st.text(alphabet="abc 你好é\n", max_size=200), st.integers(8, 40))
def test_wrapped_lines_are_never_wider_than_the_screen(text: str, width: int) -> None:
    lines = wrap([("", text)], width, [("", "› ")], [("", "  ")])
    assert all(line_width(line) <= width for line in lines)
    kept = "".join(part for line in lines for _, part in line[1:])
    assert [char for char in kept if not char.isspace()] == [char for char in text if not char.isspace()]


@given(st.lists(st.integers(0, 80), min_size=1, max_size=6), st.integers(20, 120))
def test_columns_fit_together_or_there_is_no_table(wanted: list[int], width: int) -> None:
    widths = fitted(wanted, width)
    if widths:
        assert sum(widths) + 3 * (len(widths) - 1) <= width
        assert all(column <= max(1, want) for column, want in zip(widths, wanted, strict=True))


def test_a_table_with_too_many_columns_becomes_a_list() -> None:
    head, rule, row = (" | ".join(cells) for cells in ([f"name{n}" for n in range(9)], ["---"] * 9, list("abcdefghi")))
    lines = shown(render_text(f"{head}\n{rule}\n{row}", 40))
    assert lines[:2] == ["name0: a", "name1: b"]


def test_a_terminal_is_never_given_what_it_would_obey() -> None:
    hostile = "a\x1b[2Jb\x07c\x9b31md\u202ee"
    assert harmless(hostile) == "a[2Jbc31mde"
    everything = [
        *render_text(f"{hostile}\n\n```\n{hostile}\n```\n| {hostile} | b |\n|---|---|\n", 80),
        *plain(hostile, 80),
    ]
    assert not any(char in "".join(shown(everything)) for char in "\x1b\x07\x9b\u202e")


def test_rendering_a_block_leaves_a_blank_line_before_it_only_where_there_was_one() -> None:
    stream = BlockStream()
    first, second, third = [*stream.feed("one\n\ntwo\n- three\n"), *stream.finish()]
    assert [len(render(block, 40)) for block in (first, second, third)] == [1, 2, 1]
