"""Names that every provider takes, whatever servers call their tools; and listings read from anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palinurus.extensions.mcp.listing import MAX_TOOLS, ListingCache, ToolListing, name_tools, read_listing
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.providers.wires.google import to_google_schema

LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=80)), max_size=12))
def test_names_are_legal_and_no_two_are_the_same_whatever_the_order(pairs: list[tuple[str, str]]) -> None:
    named, told = name_tools(pairs)
    names = [each.name for each in named]
    assert all(LEGAL.fullmatch(name) for name in names)
    assert len({name.casefold() for name in names}) == len(set(pairs))
    assert name_tools(reversed(pairs)) == (named, told)


def test_who_needs_no_change_keeps_its_name_and_the_other_is_told() -> None:
    named, told = name_tools([("a", "b.c"), ("a", "b_c"), ("4", "x" * 80)])
    called = {(each.server, each.tool): each.name for each in named}
    assert called["a", "b_c"] == "a__b_c"
    assert re.fullmatch(r"a__b_c_[0-9a-f]{8}", called["a", "b.c"])
    assert re.fullmatch(r"_4__x{51}_[0-9a-f]{8}", called["4", "x" * 80])
    assert told == (f"mcp: the tool 'b.c' of a is called {called['a', 'b.c']}: its plain name is taken",)


@given(
    st.lists(JSON | st.fixed_dictionaries({"name": st.text(), "inputSchema": JSON, "description": JSON}), max_size=8)
)
def test_a_listing_is_read_from_anything_and_is_the_same_when_read_again(sent: list[Any]) -> None:
    listing = read_listing(sent, at=1)
    assert msgspec.json.decode(msgspec.json.encode(listing), type=ToolListing) == listing
    for tool in listing.tools:
        assert tool.parameters["type"] == "object"
        assert isinstance(tool.parameters["properties"], dict)
        assert to_google_schema(tool.parameters)


def test_no_more_than_so_many_tools_are_kept() -> None:
    listing = read_listing([{"name": str(number)} for number in range(1_000)], at=1)
    assert (len(listing.tools), listing.left_out) == (MAX_TOOLS, 1_000 - MAX_TOOLS)


def test_a_damaged_listing_is_none(tmp_path: Path) -> None:
    shelf = ListingCache(tmp_path / "deep" / "listings", lambda text: text)
    assert shelf.load("x") is None
    kept = shelf.keep("x", read_listing([{"name": "a"}], at=5))
    assert shelf.load("x") == kept
    file = tmp_path / "deep" / "listings" / "x.json"
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("{")
    assert shelf.load("x") is None


def test_what_is_kept_of_a_server_does_not_depend_on_its_secrets() -> None:
    one = ServerSettings("a", "program", env={"KEY": "one"})
    assert one.fingerprint == msgspec.structs.replace(one, env={"KEY": "two"}).fingerprint
    assert one.fingerprint != msgspec.structs.replace(one, args=("x",)).fingerprint
    assert ServerSettings("a", url="https://me:pass@host:8443/mcp?key=1").where == "https://host:8443/mcp"


def test_tools_that_only_run_as_tasks_are_not_offered() -> None:
    sent = [
        {"name": "plain"},
        {"name": "either", "execution": {"taskSupport": "optional"}},
        {"name": "never", "execution": {"taskSupport": "forbidden"}},
        {"name": "task", "execution": {"taskSupport": "required"}},
        {"name": "odd", "execution": "required"},
    ]
    listing = read_listing(sent, at=0)
    assert [tool.name for tool in listing.tools] == ["either", "never", "odd", "plain"]
    assert listing.left_out == 1
