"""What looks like a command and is none is refused with what may have been meant, and no model hears of it."""

from __future__ import annotations

import pytest

from palinurus.domain.envelope import Inbound
from palinurus.domain.messages import Origin
from palinurus.testing.harness import WAIT, Harness


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/hlep", "unknown command /hlep; did you mean /help?"),
        ("/dance with me", "unknown command /dance"),
        ("/STAUTS", "did you mean /status?"),
        ("/think banana", "/think cannot be 'banana'"),
        ("/think hihg why?", "did you mean high?"),
        ("/verbose loud", "off, on, full"),
        ("/queue bogus", "/queue cannot be 'bogus'"),
        ("/reasoning maybe", "off, on, stream"),
        ("/model nosuch", "'nosuch' is not a model"),
        ("/model nosuch and hello", "'nosuch' is not a model"),
        ("/model !", "/model cannot be '!'"),
        ("/context banana", "list, detail, json"),
        ("/think high /hlep", "did you mean /help?"),
        ("/new /hlep", "did you mean /help?"),
        ("/skill", "there are no skills here"),
    ],
)
async def test_a_typo_is_refused_in_a_line_and_costs_nothing(pal: Harness, text: str, told: str) -> None:
    refused = await pal.hears(text)
    assert (refused.status, refused.text) == ("error", "")
    assert told in refused.error
    assert "\n" not in refused.error
    assert pal.model.requests == []
    assert await pal.transcript() == []


@pytest.mark.parametrize(
    "text",
    [
        "/etc/hosts is empty, why?",
        "/home/me/x",
        "/tmp is full",
        "//",
        "/ ",
        "/",
        "/* a comment */",
        "/.bashrc",
        "/1 is a number",
        " /hlep begins with a space",
        "what does /think do?",
        "what does /model do?",
        "see /hlep",
        "/usr/bin/env python\n/hlep",
    ],
)
async def test_text_that_merely_begins_with_a_slash_goes_to_the_model_as_it_was_said(pal: Harness, text: str) -> None:
    assert (await pal.hears(text)).status == "ok"
    assert pal.model.requests[-1].messages[-1].text == text


async def test_in_the_mouth_of_others_and_of_programs_it_is_text(pal: Harness) -> None:
    for inbound in (
        Inbound("/hlep", "1", session_key="agent:main:direct:eve", sender="eve", origin=Origin.OUTSIDE),
        Inbound("/hlep", "2", plain=True),
    ):
        run = await pal.dispatcher.submit(inbound)
        assert (await run.wait(WAIT)).text.endswith("/hlep")


async def test_a_fresh_start_may_name_its_model(pal: Harness) -> None:
    await pal.hears("hello")
    assert (await pal.hears("/new scripted/model-2")).text.startswith("The session was reset with scripted/model-2.")
    await pal.hears("and now?")
    assert (await pal.hears("/reset scripted/model-3 tell me more")).text == "you said: tell me more"
    assert [request.model for request in pal.model.requests] == ["model-1", "model-2", "model-3"]


async def test_words_that_are_no_model_are_the_first_message(pal: Harness) -> None:
    assert (await pal.hears("/new hello there")).text == "you said: hello there"


async def test_the_default_model_is_one_word_away(pal: Harness) -> None:
    await pal.hears("/model scripted/model-2")
    assert "(the default)" in (await pal.hears("/model default")).text
    await pal.hears("hi")
    assert pal.model.requests[-1].model == "model-1"
    assert (await pal.hears("/model status")).text == "model scripted/model-1, thinking off"


async def test_who_asks_is_told_who_they_are(pal: Harness) -> None:
    for text in ("/whoami", "/id"):
        said = (await pal.hears(text, key="agent:main:direct:alice")).text
        assert "owner" in said
        assert "agent:main:direct:alice" in said
    assert pal.model.requests == []


async def test_whether_thinking_is_shown_is_kept_for_the_session(pal: Harness) -> None:
    assert "reasoning stream" in (await pal.hears("/reasoning stream")).text
    assert "reasoning stream" in (await pal.hears("/reasoning")).text
    assert "reasoning off" in (await pal.hears("/reason off")).text


@pytest.mark.parametrize("unit", ["/t ", "/queue ", "/model ", "/think : ", "/hlep ", "/queue cap:", "a", "/a", "/-"])
async def test_a_megabyte_of_slashes_is_read_at_once(pal: Harness, unit: str) -> None:
    text = ("/" + unit * (900_000 // len(unit)))[:900_000]
    for said in (text, text[1:]):
        assert (await pal.hears(said)).status in ("ok", "error")
