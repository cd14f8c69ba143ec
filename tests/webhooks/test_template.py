"""Templates: linear, filled in one pass, and nothing that is inserted is read again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.extensions.webhooks.template import (
    CUT,
    MOST_OF_A_VALUE,
    MOST_TEXT,
    TemplateValues,
    parse_template,
    render_template,
)

PAYLOAD = {
    "a": {"b": [{"c": "deep"}, 7]},
    "yes": True,
    "half": 0.5,
    "nothing": None,
    "empty": "",
    "x-y": "dash",
    "tree": {"k": [1, "é"]},
    "payload": "own",
}


@pytest.mark.parametrize(
    ("template", "text", "missing"),
    [
        ("plain", "plain", ()),
        ("", "", ()),
        ("{{a.b[0].c}}!", "deep!", ()),
        ("{{ a.b[1] }} {{yes}} {{half}} {{x-y}}", "7 true 0.5 dash", ()),
        ("[{{empty}}]", "[]", ()),
        ("{{nothing}}{{a.b[2]}}{{a.c}}{{a.b.c}}{{a.c}}", "", ("nothing", "a.b[2]", "a.c", "a.b.c")),
        ("{{tree}}", '{"k":[1,"é"]}', ()),
        ("{{payload.a.b[0].c}} {{payload.payload}}", "deep own", ()),
        ("{{headers.x-event}} {{query.q}} {{path}} {{now}}", "opened 1 /hooks/x today", ()),
        ("{{body}}", "the body", ()),
        ("} }} { {{half}} }}", "} }} { 0.5 }}", ()),
    ],
)
def test_paths_lead_to_values(template: str, text: str, missing: tuple[str, ...]) -> None:
    values = TemplateValues(PAYLOAD, "the body", {"x-event": "opened"}, {"q": "1"}, "/hooks/x", "today")
    rendered = render_template(template, values)
    assert (rendered.text, rendered.missing) == (text, missing)


def test_a_key_called_body_goes_before_the_whole_body() -> None:
    assert render_template("{{body}}", TemplateValues({"body": "own"}, "all")).text == "own"


@pytest.mark.parametrize(
    "template",
    ["{{", "{{a", "{{a}", "{{}}", "{{a b}}", "{{a|upper}}", "{{a()}}", "{{a.}}", "{{.a}}", "{{a[-1]}}", "{{a[b]}}",
     "{{a['b']}}", "{{{a}}}", "{{1+1}}", "{{a[9999999]}}"],
)  # fmt: skip
def test_there_are_no_expressions(template: str) -> None:
    with pytest.raises(ValueError, match="has "):
        parse_template(template)


PIECES = st.text("ab{}[].0 é", max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("{}ab.[0] ", max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)


@given(st.lists(st.sampled_from(["a", "b", "a.b", "b[0]", "payload", "body"])), st.lists(PIECES), JSON)
def test_what_is_inserted_is_the_value_and_is_not_read_again(
    paths: list[str], literals: list[str], payload: Any
) -> None:
    """An oracle that knows nothing of text in braces: the pieces, joined."""
    words = [piece.replace("{{", "") for piece in [*literals, *("" for _ in paths)]][: len(paths)]
    template = "".join(f"{word} {{{{{path}}}}}" for word, path in zip(words, paths, strict=True))
    values = TemplateValues(payload, "{{a}} of the body")
    found = [render_template(f"{{{{{path}}}}}", values).text for path in paths]
    rendered = render_template(template, values)
    assert rendered.text == "".join(f"{word} {text}" for word, text in zip(words, found, strict=True))
    for path in set(paths):
        value = values.find(parse_template(f"{{{{{path}}}}}")[0].steps)  # type: ignore[union-attr]
        assert (path in rendered.missing) == (value is None)
        if isinstance(value, str):
            assert render_template(f"{{{{{path}}}}}", values).text == value


def test_long_values_and_long_texts_are_cut() -> None:
    rendered = render_template("{{a}}|{{a}}", TemplateValues({"a": "x" * 1_000_000}))
    assert rendered.text == "|".join(["x" * MOST_OF_A_VALUE + CUT] * 2)
    assert len(render_template("{{a}}" * 1000, TemplateValues({"a": "x" * 1_000_000})).text) <= MOST_TEXT + len(CUT)
    assert len(render_template("x" * 100_000 + "{{a}}", TemplateValues({"a": "y"})).text) <= MOST_TEXT + len(CUT)


@pytest.mark.parametrize(
    "template",
    ["{{" * 500_000, "{{a" * 300_000, "}}" * 500_000, "{{ " + " " * 1_000_000 + "}}", "{{" + "a" * 1_000_000 + "}}",
     "{{" + "a." * 500_000 + "}}", "{{" + "a[0]" * 250_000 + "}}", "{{a}}" * 200_000, "{" * 1_000_000],
)  # fmt: skip
def test_a_template_takes_time_in_proportion_to_its_length(
    template: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    with cpu_limit(30):
        try:
            parse_template.__wrapped__(template)
        except ValueError as error:
            assert len(str(error)) < 200  # noqa: PT017  # either outcome is right
        if template.startswith("{{a}}"):
            render_template(template, TemplateValues({"a": "{{a}}" * 10_000}))
