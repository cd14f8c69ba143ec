"""The text format of Prometheus: read back by a small parser of our own and by Prometheus' own."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from palinurus.gateway.meter import (
    MOST,
    OTHER,
    Counter,
    Gauge,
    Histogram,
    LabelValues,
    render_metrics,
)

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
LINE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels. Raises when a line is none."""
    assert not text or text.endswith("\n")
    found = {}
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(rf"# (HELP|TYPE) {NAME} [^\n]*", line), line
            continue
        match = LINE.fullmatch(line)
        assert match, line
        inside = match[2] or ""
        labels = [
            (name, re.sub(r"\\[\\\"n]", lambda m: UNESCAPED[m[0]], value)) for name, value in LABEL.findall(inside)
        ]
        assert LABEL.sub("", inside) == "", line
        found[match[1], frozenset(labels)] = float(match[3])
    return found


def rendered(metrics: list[Counter | Histogram | Gauge]) -> str:
    return render_metrics(metrics).decode()


def told(text: str, name: str, **labels: str) -> float:
    return parsed(text)[name, frozenset(labels.items())]


def test_a_counter_starts_at_nought_and_counts_by_its_labels() -> None:
    plain, by = Counter("a_total", "All."), Counter("b_total", "By kind.", ("kind", "who"))
    by.add("x", "me")
    by.add("x", "me", by=2.5)
    text = rendered([plain, by])
    assert told(text, "a_total") == 0
    assert told(text, "b_total", kind="x", who="me") == 3.5
    assert "# HELP b_total By kind.\n# TYPE b_total counter\n" in text


def test_a_histogram_counts_what_lies_below_each_limit_and_all_of_it() -> None:
    seconds = Histogram("s", "Time.", ("who",), (0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        seconds.observe(value, "me")
    text = rendered([seconds])
    buckets = [told(text, "s_bucket", who="me", le=limit) for limit in ("0.1", "1", "+Inf")]
    assert buckets == [2, 3, 4]
    assert told(text, "s_count", who="me") == 4
    assert told(text, "s_sum", who="me") == pytest.approx(7.65)


def test_values_of_a_label_are_few_and_plain_whatever_comes() -> None:
    calls = Counter("calls_total", "Calls.", ("tool",))
    for number_ in range(10 * MOST):
        calls.add(f"made_up_{number_}")
    for strange in ("", 'quote"', "new\nline", "x" * 81, "back\\slash", "über", "tab\t"):
        calls.add(strange)
    found = parsed(rendered([calls]))
    assert len(found) == MOST + 1
    assert sum(found.values()) == 10 * MOST + 7
    assert told(rendered([calls]), "calls_total", tool=OTHER) == 9 * MOST + 7


def test_routes_models_and_agents_are_plain_names() -> None:
    few = LabelValues()
    for name in (
        "/v1/models/{model:path}",
        "anthropic/claude-opus-4.5",
        "qwen3:8b",
        "meta-llama/Llama@1",
        "_note",
        "/",
    ):
        assert few.bounded(name) == name


def test_prometheus_own_parser_reads_the_same() -> None:
    by = Counter("b_total", 'With "quotes" and \\ and\na second line.', ("kind",))
    by.add("x/y", by=2)
    seconds = Histogram("s", "Time.", ("who",), (0.1, 1))
    seconds.observe(0.3, "me")
    text = rendered([by, seconds, Gauge("g", "A gauge.", {'a"b\\c\nd': 1.5}, "what")])
    families = list(text_string_to_metric_families(text))
    assert [(family.name, family.type) for family in families] == [("b", "counter"), ("s", "histogram"), ("g", "gauge")]
    assert families[0].documentation == 'With "quotes" and \\ and\na second line.'
    theirs = {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}
    assert theirs == parsed(text)
