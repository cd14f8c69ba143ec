"""The scanner finds what pyjson5 parses, and paths are read as they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.config.source import SyntaxFault, format_path, line_column, parse, parse_path, scan
from palinurus.domain.errors import BadRequest

TEXT = """// a comment with { and "
{
  plain: 'it\\'s', /* [ */ "quo\\u0074ed": [1, {deep: .5}, ], // , }
  'single': {},
  hex: 0x1F, nothing: null,
}
"""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


def test_every_value_is_found_with_its_key() -> None:
    source = scan(TEXT)
    found = {path: TEXT[span.start : span.end] for path, span in source.spans.items() if path}
    assert found == {
        ("plain",): "'it\\'s'",
        ("quoted",): "[1, {deep: .5}, ]",
        ("quoted", 0): "1",
        ("quoted", 1): "{deep: .5}",
        ("quoted", 1, "deep"): ".5",
        ("single",): "{}",
        ("hex",): "0x1F",
        ("nothing",): "null",
    }
    key = source.spans["quoted",]
    assert TEXT[key.key_start : key.key_end] == '"quo\\u0074ed"'
    assert line_column(TEXT, source.spans["hex",].begin) == (5, 3)


def test_keys_written_twice_are_named() -> None:
    assert scan("{a: 1, b: {c: 1, 'c': 2}}").repeated == (("b", "c"),)


@settings(deadline=None)
@given(VALUES, st.sampled_from([None, 1, 2]))
def test_what_stands_at_a_span_is_the_value_of_its_path(value: Any, indent: int | None) -> None:
    text = json.dumps({"root": value}, indent=indent, ensure_ascii=False)
    for path, span in scan(text).spans.items():
        expected: Any = {"root": value}
        for step in path:
            expected = expected[step]
        assert parse(text[span.start : span.end]) == expected


@settings(deadline=None)
@given(st.lists(st.text(max_size=6) | st.integers(0, 30), max_size=4))
def test_a_path_written_out_is_read_back(steps: list[str | int]) -> None:
    path = ("first", *steps)
    assert parse_path(format_path(path)) == path


@pytest.mark.parametrize(
    ("dotted", "path"),
    [
        ("a.b[0].c", ("a", "b", 0, "c")),
        ('models.providers."my.host".baseUrl', ("models", "providers", "my.host", "baseUrl")),
        ("models.providers['my.host']", None),
        ('a["b.c"].d', ("a", "b.c", "d")),
        ("a.'b.c'", ("a", "b.c")),
        ("", None),
        ("a.", None),
        (".a", None),
        ("a..b", None),
        ("[0]", None),
        ("a[x]", None),
        ('a"b"', None),
        ('a."b', None),
    ],
)
def test_paths_are_read_or_refused(dotted: str, path: tuple[str | int, ...] | None) -> None:
    if path is None:
        with pytest.raises(BadRequest, match="not a path"):
            parse_path(dotted)
    else:
        assert parse_path(dotted) == path


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', (3, 3), "a comma should stand here"),
        ('{\n  "a" 1\n}', (2, 7), "a colon should stand here"),
        ('{\n  "a": "x\n}', (2, 8), "the string that begins here is not closed"),
        ("{a: 1", (1, 1), "the object that begins here is not closed"),
        ("{a: }", (1, 5), "did not expect '}' here"),
        ("{}\n\n{}", (3, 1), "there is something after the end of the config"),
        ("  \n", (1, 1), "there is no config in the file"),
        ("[" * 100, (1, 65), "nested more than 64 deep"),
    ],
)
def test_a_syntax_fault_says_where_and_what(text: str, position: tuple[int, int], reason: str) -> None:
    with pytest.raises(SyntaxFault) as caught:
        parse(text)
    assert line_column(text, caught.value.offset) == position
    assert caught.value.reason == reason
