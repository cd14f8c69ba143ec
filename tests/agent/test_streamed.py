"""Text on its way to those who follow a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.agent.reply import LONGEST_WORD, ReplyText
from palinurus.config.secrets import Redactor
from palinurus.testing.harness import Harness
from support import SOAK

SECRET = "sk-live-0123456789"
MEGABYTE = 1_000_000
LONG = MEGABYTE if SOAK else MEGABYTE // 5


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


def shown(pieces: list[str]) -> list[str]:
    out: list[str] = []
    streamed = ReplyText(redact, out.append)
    for piece in pieces:
        streamed.add(piece)
    streamed.end()
    return out


def test_words_are_shown_as_they_become_whole() -> None:
    assert shown(["Hel", "lo wor", "ld. Bye"]) == ["Hello ", "world. ", "Bye"]


def test_scripts_without_spaces_are_not_held_back() -> None:
    out: list[str] = []
    streamed = ReplyText(redact, out.append)
    streamed.add("我的自行车")
    assert out == ["我的自行车"]


@pytest.mark.parametrize("pieces", [["NO_REPLY"], ["NO_", "REPLY"], [" no_reply", "\n"], list("NO_REPLY")])
def test_silence_is_not_shown(pieces: list[str]) -> None:
    assert shown(pieces) == []


def test_a_reply_that_only_begins_like_silence_is_shown_whole() -> None:
    assert "".join(shown(["NO", "_REPLY is what I would say"])) == "NO_REPLY is what I would say"


def test_what_belongs_to_an_attempt_that_was_given_up_is_forgotten() -> None:
    out: list[str] = []
    streamed = ReplyText(redact, out.append)
    streamed.add("half a wo")
    streamed.discard()
    streamed.add("again")
    streamed.end()
    assert out == ["half a ", "again"]
    assert streamed.text == "again"


@given(st.text(max_size=40), st.text(max_size=40), st.lists(st.integers(0, 120), max_size=8))
def test_however_a_text_is_cut_it_is_shown_whole_and_its_secret_never(before: str, after: str, cuts: list[int]) -> None:
    text = f"x {before} {SECRET} {after}"
    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert "".join(shown(pieces)) == redact(text)


HOSTILE = {
    "one word": "a" * LONG,
    "long words": ("a" * (LONGEST_WORD - 1) + " ") * (LONG // LONGEST_WORD),
    "space": " " * LONG,
    "line breaks": "\n" * LONG,
    "silence that goes on": "NO_REPLY" + " " * LONG,
    "beginnings of keys": "sk-" * (LONG // 3),
    "keys without a gap": f"AIza{'x' * 35}pal_{'y' * 43}" * (LONG // 86),
    "keys of one kind": f"AIza{'x' * 35}" * (LONG // 39),
    "headers of keys": "-----BEGIN PRIVATE KEY-----\n" * (LONG // 28),
}


@pytest.mark.parametrize("size", [1, 97, LONGEST_WORD, LONG * 2])
@pytest.mark.parametrize("name", HOSTILE)
def test_the_work_grows_with_the_text_however_it_is_cut(
    name: str, size: int, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    text = HOSTILE[name] + " "
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    out: list[str] = []
    with cpu_limit(LONG / 25_000):
        streamed = ReplyText(Redactor(["a configured one"]).redact, out.append)
        for piece in pieces:
            streamed.add(piece)
        streamed.end()
    assert streamed.text == text
    assert out or not text.strip() or text.strip() == "NO_REPLY"


@pytest.mark.parametrize("word", ["a", "sk-", "NO_", "`", "Mr. ", "\n"])
async def test_a_reply_of_a_megabyte_is_stored_and_shown_without_holding_the_program(
    word: str, pal: Harness, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    text = "Well " + word * (MEGABYTE // len(word)) + " done"
    pal.model.says(text)
    with cpu_limit(15):
        assert (await pal.hears("go on")).text == text
