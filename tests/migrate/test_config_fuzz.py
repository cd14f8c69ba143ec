"""Whatever stands in a foreign config: the result loads, ours stays, a second time changes nothing."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich_config import CANARIES, RICH, load, plan, shown

from palinurus.config.agents import default_agent
from palinurus.extensions.migrate.openclaw.settings import leaves

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "${NOT_SET}", "$${X}", "a\0b", "full", "off", "~/.openclaw/workspace/../x", "\ud800", "/"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["id", "", "a.b", "model", "env", "main", "$include", "\ud800"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in _paths(item, (*path, key)))]


PATHS = [path for path in _paths(RICH) if path]


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """The rich one with some values replaced, added or taken out."""
    data = copy.deepcopy(RICH)
    for path in draw(st.lists(st.sampled_from(PATHS), max_size=6)):
        holder: Any = data
        try:
            for step in path[:-1]:
                holder = holder[step]
            if isinstance(path[-1], int) and not isinstance(holder, list):
                continue  # no object of a JSON file has a number as its key
            change = draw(st.sampled_from(["replace", "drop", "beside"]))
            if change == "drop":
                del holder[path[-1]]
            elif change == "replace" or isinstance(holder, list):
                holder[path[-1]] = draw(VALUES)
            else:
                holder[draw(st.text(max_size=5))] = draw(VALUES)
        except (LookupError, TypeError):
            continue  # an earlier change has taken the place away
    return data


def _parts(data: dict[str, Any], names: list[str]) -> str:
    """Some sections of what a first plan made, as a config that somebody already has."""
    made = load(plan(data).text).raw
    return json.dumps({name: made[name] for name in names if name in made}, indent=2)


@settings(max_examples=25, deadline=None)
@given(configs(), configs(), st.lists(st.sampled_from(["agents", "models", "tools", "mcp", "skills", "env"])))
def test_any_config_comes_over_or_is_told_and_ours_stays(
    theirs: dict[str, Any], others: dict[str, Any], names: list[str]
) -> None:
    ours = _parts(others, names)
    made = plan(theirs, ours)
    after = load(made.text)
    before = load(ours)
    assert default_agent(after.config) == default_agent(before.config)
    kept = dict(leaves(after.raw, ()))
    for path, value in leaves(before.raw, ()):
        assert value == {} or kept[path] == value
    assert plan(theirs, made.text).text == made.text


@settings(max_examples=25, deadline=None)
@given(configs())
def test_no_secret_is_copied_or_told_wherever_the_rest_breaks(theirs: dict[str, Any]) -> None:
    made = plan(theirs)
    for canary in CANARIES:
        assert canary not in made.text
        assert canary not in shown(made)
    assert not any(canary in shown(plan(theirs, keys=True)) for canary in CANARIES)
