"""Blocks of a text that is still being written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.text.blocks import BlockCutter, BreakPreference, TextBlock
from palinurus.text.markdown import TextLimits, render_parts

PREFERENCES: tuple[BreakPreference, ...] = ("paragraph", "newline", "sentence")
TEXTS = st.text(alphabet="ab \n`~.。」>-é👩\u200d\u0301", max_size=300)


def cut(
    text: str, size: int, *, least: int = 800, most: int = 1200, prefer: BreakPreference = "paragraph"
) -> list[TextBlock]:
    """The blocks of a text that comes in pieces of that size."""
    cutter = BlockCutter(least, most, prefer)
    blocks = []
    for start in range(0, len(text), size):
        blocks += cutter.add(text[start : start + size])
    return blocks + cutter.end()


@given(TEXTS, st.integers(1, 40), st.integers(1, 30), st.integers(1, 60), st.sampled_from(PREFERENCES))
def test_blocks_are_the_text_whatever_its_pieces(
    text: str, size: int, least: int, most: int, prefer: BreakPreference
) -> None:
    blocks = cut(text, size, least=least, most=most, prefer=prefer)
    assert "".join(block.text for block in blocks) == text
    assert all(0 < len(block.text) <= most for block in blocks)
    assert blocks == cut(text, max(1, len(text)), least=least, most=most, prefer=prefer)


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [
        ("paragraph", ["One two. Three\nfour.\n\n", "Five."]),
        ("newline", ["One two. Three\n", "four.\n", "\nFive."]),
        ("sentence", ["One two. ", "Three\n", "four.\n", "\nFive."]),
    ],
)
def test_a_block_ends_at_the_first_wanted_place_after_its_minimum(prefer: BreakPreference, expected: list[str]) -> None:
    blocks = cut("One two. Three\nfour.\n\nFive.", 1, least=6, most=60, prefer=prefer)
    assert [block.text for block in blocks] == expected


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a. b\nc d e f", "a. b\n"),
        ("aa. bb cc dd", "aa. "),
        ("aaa bbb cccc", "aaa bbb "),
        ("aaaaaaaaaaaaa", "aaaaaaaaaa"),
        ("aaaaaaaa👩‍👩‍👧‍👦b", "aaaaaaaa"),
    ],
)
def test_a_block_that_becomes_too_long_ends_at_the_best_place_there_is(text: str, first: str) -> None:
    assert cut(text, 1, least=3, most=10)[0].text == first


def test_a_fence_is_not_cut_while_there_is_another_place() -> None:
    fence = "```python\n" + "x = 1\n" * 12 + "```\n"
    blocks = cut(f"Words.\n{fence}More.", 7, least=20, most=90)
    assert blocks == [TextBlock("Words.\n"), TextBlock(fence), TextBlock("More.")]


def test_a_fence_that_is_cut_is_opened_again_in_the_next_block() -> None:
    text = "- item\n  ```python\n" + "  x = '# one'\n" * 20 + "  ```\n  **after** it"
    blocks = cut(text, 3, least=50, most=120)
    assert [block.opened for block in blocks] == ["", "", "  ```python", "  ```python"]
    parts = [
        part.text
        for block in blocks
        for part in render_parts(block.text, "discord", TextLimits(2000), opened=block.opened)
    ]
    assert [part.count("```") for part in parts] == [0, 2, 2, 2]
    assert parts[1].startswith("```python\nx = ")
    assert parts[-1].endswith("**after** it")
    assert sum(part.count("x = '# one'") for part in parts) == 20


def test_the_cutter_takes_another_text_after_the_end() -> None:
    cutter = BlockCutter(1, 5)
    assert cutter.add("```\nab") == [TextBlock("```\n")]
    assert cutter.end() == [TextBlock("ab", "```")]
    assert cutter.add("b") == []
    assert cutter.end() == [TextBlock("b")]
