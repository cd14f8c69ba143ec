"""A merge patch on the text of a config makes of the data what RFC 7396 says, and leaves the rest of the text alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.config.rewrite import DROP, apply_changes, changes, merged, with_values
from palinurus.config.source import parse

keys = st.text("abcxyz.\"'é -", min_size=0, max_size=4)
leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=4)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
with_ids = st.lists(
    st.builds(
        lambda name, more: {"id": name, **more}, st.sampled_from("pqr"), st.dictionaries(keys, values, max_size=2)
    ),
    max_size=3,
)
objects = st.dictionaries(keys, values | with_ids, max_size=4)


def merge(text: str, patch: dict[str, Any], replace: tuple[str, ...] = ()) -> str:
    data = parse(text)
    return apply_changes(text, changes(data, patch, replace), merged(data, patch, replace))


@given(data=objects, patch=objects)
def test_the_text_says_afterwards_what_the_merged_data_says(data: dict[str, Any], patch: dict[str, Any]) -> None:
    for text in (json.dumps(data), json.dumps(data, indent=2)):
        assert parse(merge(text, patch)) == merged(data, patch)


@given(data=objects, patch=objects)
def test_merging_twice_changes_nothing_more(data: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge(json.dumps(data), patch)
    assert list(changes(parse(once), patch)) == []
    assert merge(once, patch) == once


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # the examples of RFC 7396, appendix A, that begin with objects
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result
    assert parse(merge(json.dumps(target), patch)) == result


def test_comments_order_and_unknown_keys_stay() -> None:
    text = "{\n  // first\n  b: 1, // one\n  a: {c: 2, /* kept */ d: 'x'},\n}\n"
    assert merge(text, {"a": {"c": 3}, "e": True}) == (
        "{\n  // first\n  b: 1, // one\n  a: {c: 3, /* kept */ d: 'x'},\n  e: true,\n}\n"
    )


def test_lists_whose_elements_have_ids_are_merged_by_them_unless_they_are_to_be_replaced() -> None:
    text = '{list: [{id: "a", x: 1, /* mine */ y: 2}, {id: "b"}]}'
    patch = {"list": [{"id": "c"}, {"id": "a", "x": 5}]}
    assert merge(text, patch) == '{list: [{id: "a", x: 5, /* mine */ y: 2}, {id: "b"}, {"id": "c"}]}'
    assert parse(merge(text, patch, ("list",))) == patch


def test_edits_name_their_paths_and_what_is_taken_out() -> None:
    assert list(changes({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": None, "d": None})) == [
        (("a", "b"), 3),
        (("c",), DROP),
    ]
    assert with_values({"a": [{"b": 1}]}, [(("a", 0, "b"), 2)]) == {"a": [{"b": 2}]}
