"""Words that change how a message is answered: alone they are kept, inside a message they hold for it only."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.dispatch.directives import Directives, parse_directives
from palinurus.dispatch.queue import QueueChange
from palinurus.testing.harness import Harness


@pytest.mark.parametrize(
    ("text", "directives", "words"),
    [
        ("/think high", Directives(thinking="high"), ""),
        ("/t:low go on", Directives(thinking="low"), "go on"),
        ("explain /think high this", Directives(thinking="high"), "explain this"),
        ("/model openai/gpt-5 hi", Directives(model="openai/gpt-5"), "hi"),
        ("/queue collect debounce:2s cap:5 hi", Directives(queue=QueueChange("collect", 2.0, 5)), "hi"),
        ("/v on /usage cost", Directives(verbose="on", usage="cost"), ""),
        ("/queue", Directives(asked=("queue",)), ""),
        ("what does /think do?", Directives(), "what does /think do?"),
        ("look into /tmp/model x", Directives(), "look into /tmp/model x"),
        ("/think twice about it", Directives(), "/think twice about it"),
        ("  spaces stay \n", Directives(), "  spaces stay \n"),
    ],
)
def test_directives_are_told_from_words(text: str, directives: Directives, words: str) -> None:
    assert parse_directives(text) == (directives, words)


async def test_thinking_inside_a_message_holds_for_that_message(pal: Harness) -> None:
    for text in ("/think high why?", "and now?"):
        await pal.hears(text)
    assert [request.thinking for request in pal.model.requests] == ["high", "off"]
    assert pal.model.requests[0].messages[-1].text == "why?"


async def test_thinking_alone_is_kept_for_the_session_and_no_model_is_called(pal: Harness) -> None:
    assert (await pal.hears("/think low")).text == "For this session: thinking low."
    assert pal.model.requests == []
    await pal.hears("hi")
    assert pal.model.requests[-1].thinking == "low"
    await pal.hears("hi", key="other")
    assert pal.model.requests[-1].thinking == "off"


async def test_a_model_is_kept_for_the_session_even_when_named_inside_a_message(pal: Harness) -> None:
    for text in ("/model scripted/model-2 hi", "still there?"):
        await pal.hears(text)
    assert [request.model for request in pal.model.requests] == ["model-2", "model-2"]
    assert (await pal.hears("/model")).text == "model scripted/model-2, thinking off"


async def test_usage_is_shown_below_each_reply_until_it_is_switched_off(pal: Harness) -> None:
    assert (await pal.hears("hi")).footer == ""
    await pal.hears("/usage tokens")
    assert (await pal.hears("hi")).footer == "100 in, 10 out"
    await pal.hears("/usage cost")
    assert (await pal.hears("hi")).footer == "price unknown"
    await pal.hears("/usage off")
    assert (await pal.hears("hi")).footer == ""


async def test_preferences_survive_a_crash(workspace: Path) -> None:
    async with Harness(workspace) as pal:
        await pal.hears("/verbose full")
        await pal.crash()
        assert "verbose full" in (await pal.hears("/verbose")).text


async def test_directives_are_not_in_what_was_said(pal: Harness) -> None:
    await pal.hears("/think high why?")
    assert next(message.text for message in await pal.messages()) == "why?"
