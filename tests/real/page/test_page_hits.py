"""A hit leads to the very words: in view, marked, by an address that can be kept, wherever in the past they stand."""

from __future__ import annotations

import re
from typing import Any

import pytest
from page_house import PageHouse
from page_lived import MAIN, keep
from page_talk import Talk, settled
from playwright.sync_api import expect

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Message, Text, UserMessage

pytestmark = pytest.mark.real

MANY = 10_000
DEEP = 4_321
HIT = f"the heron number {DEEP} stood in the reeds"


def long_talk(services: PageHouse) -> None:
    said: list[Message] = []
    for number in range(MANY // 2):
        words = HIT if number == DEEP else f"remark {number} about the weather and the tides"
        said.append(UserMessage((Text(words),), 1_790_000_000_000 + number * 60_000))
        reply = (Text(f"Answer {number}: it will be as it was."),)
        said.append(AssistantMessage(reply, "wire", "test", timestamp=1_790_000_000_000 + number * 60_000 + 5_000))
    keep(services, MAIN, said)


def found(page: Any) -> Any:
    """The row that is marked."""
    return page.get_by_role("log").locator("[aria-current=true]")


def search(page: Any, words: str) -> Any:
    page.get_by_role("navigation").get_by_role("searchbox").fill(words)
    return page.get_by_role("region", name="Messages").get_by_role("link")


def test_a_hit_deep_in_ten_thousand_messages_opens_there_and_the_way_to_the_end_is_open(
    start: Any, enter: Any, model: Any
) -> None:
    services = start(prepare=long_talk)
    page = enter(services)
    talk = Talk(page)
    talk.hears("Answer 4999")
    search(page, f"heron {DEEP} reeds").first.click()
    expect(found(page)).to_contain_text(HIT)
    expect(found(page)).to_be_in_viewport()
    assert re.search(r"/s/agent:main:main\?at=\w+$", page.url)
    here = page.url
    # The address alone leads there too, and back and forth work.
    page.reload()
    expect(found(page)).to_contain_text(HIT)
    expect(found(page)).to_be_in_viewport()
    page.go_back()
    talk.hears("Answer 4999")
    expect(found(page)).to_have_count(0)
    page.go_forward()
    assert page.url == here
    expect(found(page)).to_be_in_viewport()
    # Scrolled on from there, what follows comes page by page.
    log = page.get_by_role("group", name="Messages")
    expect(log).to_contain_text(f"Answer {DEEP}")
    for _ in range(200):
        if page.get_by_text(f"Answer {DEEP + 150}:").count():
            break
        log.evaluate("(node) => node.scrollBy(0, node.clientHeight)")
        page.evaluate("() => new Promise(requestAnimationFrame)")
    expect(page.get_by_text(f"Answer {DEEP + 150}:")).to_be_visible()
    # What is said now is said at the end.
    model.says("The newest words.")
    talk.say("and today?")
    talk.hears("The newest words.")
    talk.hears("Answer 4999")
    expect(page.get_by_text("and today?", exact=True)).to_have_count(1)
    assert page.watched.errors == []


def test_newest_leads_from_a_hit_to_the_end(start: Any, enter: Any) -> None:
    services = start(prepare=long_talk)
    page = enter(services)
    Talk(page).hears("Answer 4999")
    search(page, f"heron {DEEP} reeds").first.click()
    expect(found(page)).to_be_in_viewport()
    page.get_by_role("button", name="Newest").click()
    Talk(page).hears("Answer 4999")
    expect(page.get_by_text("Answer 4999:")).to_be_in_viewport()


def test_a_hit_in_a_conversation_that_has_ended_is_shown_and_says_so(start: Any, enter: Any, model: Any) -> None:
    def prepare(services: PageHouse) -> None:
        keep(services, SessionKey.parse("agent:main:trip"), [UserMessage((Text("we met the ferryman Osk"),), 1)])

    services = start(prepare=prepare)
    services.pal("sessions", "delete", "agent:main:trip", "--yes")
    page = enter(services)
    talk = Talk(page)
    expect(talk.box).to_be_visible()
    search(page, "ferryman Osk").first.click()
    expect(found(page)).to_contain_text("we met the ferryman Osk")
    expect(page.get_by_text("This session has ended.")).to_be_visible()
    model.says("A new trip, then.")
    talk.say("where to?")
    talk.hears("A new trip, then.")
    expect(talk.log).not_to_contain_text("ferryman")
    assert page.watched.errors == []


def test_the_palette_finds_what_was_said_and_opens_it_there(start: Any, enter: Any) -> None:
    services = start(prepare=long_talk)
    page = enter(services)
    Talk(page).hears("Answer 4999")
    page.keyboard.press("Control+k")
    page.keyboard.type(f"heron number {DEEP}")
    page.get_by_role("option").filter(has_text=HIT).click()
    expect(found(page)).to_contain_text(HIT)
    expect(found(page)).to_be_in_viewport()


def test_a_passage_of_memory_from_a_conversation_opens_where_it_was_said(start: Any, enter: Any) -> None:
    memory = {"memory": {"search": {"provider": "none", "sources": ["memory", "sessions"]}}}

    def prepare(services: PageHouse) -> None:
        words = [f"a word about the weather {number}" for number in range(400)]
        words[37] = "the heron Osk stood in the reeds"
        keep(services, MAIN, [UserMessage((Text(each),), 1_790_000_000_000 + at) for at, each in enumerate(words)])

    services = start(prepare=prepare, **memory)
    page = enter(services, "/memory?q=heron+Osk+reeds")
    settled(page)
    page.get_by_role("link", name="a session").first.click()
    expect(found(page)).to_contain_text("the heron Osk stood in the reeds")
    expect(found(page)).to_be_in_viewport()
    assert "/s/agent:main:main?at=" in page.url


def test_an_address_of_words_that_are_gone_says_so_and_shows_the_end(start: Any, enter: Any) -> None:
    services = start(prepare=long_talk)
    page = enter(services, "/s/agent:main:main?at=nothing")
    expect(page.get_by_role("alert")).to_contain_text("there is no message 'nothing'")
    Talk(page).hears("Answer 4999")
    assert page.url.endswith("/s/agent:main:main")
