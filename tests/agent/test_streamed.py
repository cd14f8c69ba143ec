"""Text on its way to those who follow a run."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.agent.streamed import Streamed

SECRET = "sk-live-0123456789"


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


def shown(pieces: list[str]) -> list[str]:
    out: list[str] = []
    streamed = Streamed(redact, out.append)
    for piece in pieces:
        streamed.hear(piece)
    streamed.end()
    return out


def test_words_are_shown_as_they_become_whole() -> None:
    assert shown(["Hel", "lo wor", "ld. Bye"]) == ["Hello ", "world. ", "Bye"]


def test_scripts_without_spaces_are_not_held_back() -> None:
    out: list[str] = []
    streamed = Streamed(redact, out.append)
    streamed.hear("我的自行车")
    assert out == ["我的自行车"]


@pytest.mark.parametrize("pieces", [["NO_REPLY"], ["NO_", "REPLY"], [" no_reply", "\n"], list("NO_REPLY")])
def test_silence_is_not_shown(pieces: list[str]) -> None:
    assert shown(pieces) == []


def test_a_reply_that_only_begins_like_silence_is_shown_whole() -> None:
    assert "".join(shown(["NO", "_REPLY is what I would say"])) == "NO_REPLY is what I would say"


def test_what_belongs_to_an_attempt_that_was_given_up_is_forgotten() -> None:
    out: list[str] = []
    streamed = Streamed(redact, out.append)
    streamed.hear("half a wo")
    streamed.discard()
    streamed.hear("again")
    streamed.end()
    assert out == ["half a ", "again"]
    assert streamed.text == "again"


@given(st.text(max_size=40), st.text(max_size=40), st.lists(st.integers(0, 120), max_size=8))
def test_however_a_text_is_cut_it_is_shown_whole_and_its_secret_never(before: str, after: str, cuts: list[int]) -> None:
    text = f"x {before} {SECRET} {after}"
    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert "".join(shown(pieces)) == redact(text)
