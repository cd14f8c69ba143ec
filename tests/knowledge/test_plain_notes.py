"""Facts in plain lines of notes: a model names them and is believed only as far as the lines go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palinurus.extensions.knowledge.plain_notes import MOST_CALLS, NoteReading, read_plain_notes, with_bullets

PATH = "memory/2026-11-01.md"
NOTE = """# 2026-11-01
Lunch with Anna Berg, she has moved to Graz.
- I prefer trains to planes.
A page said so. (noted in a turn that had read text from outside)

## Retain
- W @Peter: Has a boat.
"""
FACT: dict[str, Any] = {
    "line": 1, "quote": "she has moved to Graz", "kind": "W", "about": ["Anna Berg"],
    "text": "Anna Berg has moved to Graz.",
}  # fmt: skip


class Model:
    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []

    async def __call__(self, question: str) -> tuple[str, str]:
        self.asked.append(question)
        return (self.replies.pop(0), "") if self.replies else ("", "the key was refused")


def facts(*said: dict[str, Any]) -> str:
    return json.dumps({"facts": said})


async def read(model: Model | None, notes: str = NOTE, known: dict[str, list[str]] | None = None) -> NoteReading:
    return await read_plain_notes({PATH: notes}, known or {}, model, lambda text: text.replace("hunter2", "[redacted]"))


async def test_what_a_line_bears_out_is_a_fact_and_a_line_is_read_once() -> None:
    model = Model(facts(FACT))
    reading = await read(model)
    assert reading.bullets == {PATH: ["- W @Anna-Berg: Anna Berg has moved to Graz."]}
    assert model.asked == [f"{PATH}:\n1. Lunch with Anna Berg, she has moved to Graz.\n2. - I prefer trains to planes."]
    again = await read(Model(), known=reading.read)
    assert (again.calls, again.bullets) == (0, {})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"quote": "she has moved to Linz"}, "line 1 does not say"),
        ({"text": "Anna Berg has moved to Linz."}, "words, names or numbers"),
        ({"text": "Anna Berg has moved to Graz in 2019."}, "words, names or numbers"),
        ({"about": ["Karl"]}, "do not name 'Karl'"),
        ({"confidence": 0.5}, "only an opinion"),
        ({"line": 7}, "there is no line 7"),
        ({"kind": "X"}, "not the JSON that was asked for"),
        ({"more": 1}, "not the JSON that was asked for"),
    ],
)
async def test_what_is_invented_is_sent_back_once_with_the_reason(change: dict[str, Any], why: str) -> None:
    model = Model(facts(FACT | change), facts(FACT))
    reading = await read(model)
    assert why in model.asked[1]
    assert reading.bullets == {PATH: ["- W @Anna-Berg: Anna Berg has moved to Graz."]}


async def test_of_a_good_reply_only_what_is_wrong_is_dropped() -> None:
    reading = await read(Model(facts(FACT, FACT | {"text": "Anna Berg is a spy of Elbonia."})))
    assert (len(reading.bullets[PATH]), reading.dropped, reading.calls) == (1, 1, 1)


@pytest.mark.parametrize("replies", [("nonsense", "[]"), (), ("nonsense",)], ids=["twice wrong", "down", "then down"])
async def test_a_model_that_fails_leaves_it_to_rules(replies: tuple[str, ...]) -> None:
    reading = await read(Model(*replies))
    assert reading.bullets == {PATH: ["- O: I prefer trains to planes."]}
    assert bool(reading.trouble) == (len(replies) < 2)
    assert bool(reading.read) == (len(replies) == 2)  # what could not be asked is asked again


async def test_without_a_model_statements_are_taken_as_they_stand_and_labels_are_of_others() -> None:
    note = "My dentist is Dr Weber.\n- Bob: I live in Linz.\nWhat is my shoe size?\nok\n"
    assert (await read(None, note)).bullets == {PATH: ["- W: My dentist is Dr Weber."]}


async def test_no_secret_becomes_a_fact() -> None:
    said = {"line": 1, "quote": "hunter2", "kind": "W", "text": "The password of Anna is hunter2."}
    assert (await read(Model(facts(said), facts()), "The password of Anna is hunter2.\n")).bullets == {}


async def test_calls_have_a_limit_and_the_rest_waits() -> None:
    note = "\n".join(f"Counted {number} boats in the east harbour. {'Rain. ' * 600}" for number in range(20))
    model = Model(*["nonsense"] * 20)
    reading = await read(model, note)
    assert len(model.asked) == reading.calls == MOST_CALLS
    assert len(reading.read[PATH]) < 20


def test_bullets_go_under_the_last_retain_or_a_new_one() -> None:
    assert with_bullets(NOTE, ["- W: x"]) == NOTE + "- W: x\n"
    assert with_bullets("Plain.\n", ["- W: x"]) == "Plain.\n\n## Retain\n- W: x\n"
    assert with_bullets("## Retain\n- W: a\n## Next\nb\n", ["- W: x"]).endswith("b\n\n## Retain\n- W: x\n")
