"""The event-stream parser: any cut of the bytes, any line end, nothing without bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.providers.wires.http import EventTooLong, SseParser, WholeBody, parser_for


def parsed(*pieces: bytes, limit: int = 1024) -> list[bytes]:
    parser = SseParser(limit)
    return [payload for piece in pieces for payload in parser.feed(piece)] + parser.close()


STREAM = (
    '\ufeff: hello\n\ndata: {"a": "π 漢"}\n\nevent: x\ndata:two\ndata:  lines\n\n\n\nid: 3\n\nretry: 5\n'
    "data: [DONE]\n\n"
)
EXPECTED = ['{"a": "π 漢"}'.encode(), b"two\n lines", b"[DONE]"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_gives_the_same_payloads(end: str) -> None:
    assert parsed(STREAM.replace("\n", end).encode()) == EXPECTED


@given(
    cuts=st.lists(st.integers(0, len(STREAM.encode()) * 2), max_size=40),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_split_of_the_bytes_gives_the_same_payloads(cuts: list[int], end: str) -> None:
    data = STREAM.replace("\n", end).encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert parsed(*(data[start:stop] for start, stop in pairwise(edges))) == EXPECTED


def test_a_last_event_without_its_blank_line_is_kept() -> None:
    assert parsed(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(EventTooLong):
        parsed(*[b"data: " + b"x" * 400] * 5, limit=1024)


def test_an_endless_event_of_short_lines_is_refused() -> None:
    with pytest.raises(EventTooLong):
        parsed(*[b"data: " + b"x" * 100 + b"\n"] * 50, limit=1024)


def test_many_small_events_are_no_long_event() -> None:
    assert len(parsed(*[b"data: " + b"x" * 100 + b"\n\n"] * 50, limit=1024)) == 50


def test_a_body_that_starts_with_a_brace_is_read_whole() -> None:
    body = parser_for(b' \n{"choices"')
    assert body.feed(b' \n{"choices"') == []
    assert body.feed(b": []}") == []
    assert body.close() == [b' \n{"choices": []}']


def test_a_whole_body_has_a_limit() -> None:
    with pytest.raises(EventTooLong):
        WholeBody(limit=10).feed(b"x" * 11)
