"""Light and quick: what the first load weighs, where it asks, ten thousand messages, a reply of a megabyte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from page_house import PageHouse
from page_lived import MAIN, keep, lived_in
from page_talk import Talk
from playwright.sync_api import expect

from palinurus.domain.messages import AssistantMessage, Message, Text, UserMessage
from palinurus.testing.loop_time import measure_slowness
from support.behaviours import Says

pytestmark = pytest.mark.real

MOST_BYTES = 100_000
SLACK_MS = 100  # beyond what a blank page shows on the same machine
FREEZE_MS = 200
MEGABYTE = 1024 * 1024

FRAMES = """(count) => new Promise((done) => {
  const next = () => (count-- > 0 ? requestAnimationFrame(next) : done());
  next();
})"""


class Longest(NamedTuple):
    """The longest task of the page's main thread in milliseconds: what it computed, and how long that took.

    On a machine that others use as well the second says more about them; the first is the page's own.
    """

    own: float
    wall: float

    def __str__(self) -> str:
        return f"{self.own:.0f} ms ({self.wall:.0f} on the wall)"


@contextmanager
def tasks(browser: Any, page: Any, found: list[Longest]) -> Iterator[None]:
    """Puts the longest task of the block into `found`. Seen from outside the page, so that nothing is added to it."""
    browser.start_tracing(page=page, categories=["toplevel"])
    try:
        yield
    finally:
        told = json.loads(browser.stop_tracing())
        events = told["traceEvents"] if isinstance(told, dict) else told
        names = [event for event in events if event.get("name") == "thread_name"]
        main = {(event["pid"], event["tid"]) for event in names if event["args"]["name"] == "CrRendererMain"}
        run = [
            event
            for event in events
            if event.get("name") == "ThreadControllerImpl::RunTask" and (event["pid"], event["tid"]) in main
        ]
        own = max((event.get("tdur", event.get("dur", 0)) for event in run), default=0)
        found.append(Longest(own / 1000, max((event.get("dur", 0) for event in run), default=0) / 1000))


def test_the_first_load_is_light_and_asks_nobody_else(start: Any, enter: Any, browser: Any) -> None:
    services = start(prepare=lived_in)
    state = enter(services).context.storage_state()
    context = browser.new_context(storage_state=state)
    try:
        page = context.new_page()
        asked, weights = [], []
        page.on("request", lambda request: asked.append(request.url))
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda done: weights.append(done["encodedDataLength"]))
        page.goto(f"{services.url}/s/agent:main:main")
        Talk(page).hears("Three things are on today")
        page.wait_for_load_state("networkidle")
        total = sum(weights)
        print(f"first load: {total:,.0f} bytes in {len(weights)} answers")
        assert len(weights) > 5
        assert total <= MOST_BYTES
        assert [url for url in asked if not url.startswith((services.url, "data:", "blob:"))] == []
        before = len(weights)
        page.reload()
        Talk(page).hears("Three things are on today")
        again = sum(weights[before:])
        print(f"second load: {again:,.0f} bytes")
        assert again < total / 2
    finally:
        context.close()


def blank(browser: Any) -> Longest:
    """Of a page that has nothing to do but to be scrolled as far."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        page.goto("about:blank")
        page.evaluate("() => { document.body.style.height = '4000000px'; }")
        found: list[Longest] = []
        with tasks(browser, page, found):
            _wheel(page)
        return found[0]
    finally:
        context.close()


def _wheel(page: Any, turns: int = 60, step: int = -1500) -> None:
    page.mouse.move(640, 400)
    for _ in range(turns):
        page.mouse.wheel(0, step)
        page.evaluate(FRAMES, 2)


def test_ten_thousand_messages_scroll_without_a_long_task(start: Any, enter: Any, browser: Any) -> None:
    services = start(prepare=_ten_thousand)
    nothing = blank(browser)
    page = enter(services)
    talk = Talk(page)
    talk.hears("reply 4999")
    found: list[Longest] = []
    with tasks(browser, page, found):
        _wheel(page, 120, -2500)  # up, which loads what is older
    with tasks(browser, page, found):
        _wheel(page, 60, 4000)  # and down again
    shown = page.evaluate("() => document.querySelectorAll('[role=log] *').length")
    print(f"longest task: blank {nothing}, up {found[0]}, down {found[1]}; {shown} elements in the log")
    assert max(each.own for each in found) <= nothing.own + SLACK_MS * measure_slowness()
    assert shown < 5_000
    assert page.watched.errors == []


def test_a_reply_of_a_megabyte_does_not_freeze_the_page(start: Any, enter: Any, model: Any, browser: Any) -> None:
    services = start()
    nothing = blank(browser)
    page = enter(services)
    talk = Talk(page)
    line = "A line of a very long reply, with **bold** words, `code` and a [link](https://example.org).\n\n"
    text = line * (MEGABYTE // len(line)) + "\n\nThe very end."
    model.says(Says(text, chunks=300, delay=0.01))
    found: list[Longest] = []
    with tasks(browser, page, found):
        talk.say("tell me a megabyte")
        talk.hears("A line of a very long reply")
        talk.box.fill("still here")
        expect(talk.box).to_have_value("still here")
        talk.idle()
        page.evaluate(FRAMES, 10)
    with tasks(browser, page, found):
        page.reload()
        talk.hears("A line of a very long reply")
        _wheel(page, 30, -2000)
    print(f"longest task: blank {nothing}, while it streams {found[0]}, when it is read again {found[1]}")
    assert max(each.own for each in found) <= nothing.own + FREEZE_MS * measure_slowness()


def _ten_thousand(services: PageHouse) -> None:
    said: list[Message] = []
    for number in range(5_000):
        at = 1_700_000_000_000 + number * 60_000
        said.append(UserMessage((Text(f"message {number}: what about the boat, the tide and the letter?"),), at))
        said.append(AssistantMessage((Text(_long(number)),), "wire", "test", timestamp=at + 5_000))
    keep(services, MAIN, said, label="Very long")


def _long(number: int) -> str:
    more = "\n\n```python\nprint('tide')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |" if number % 10 == 0 else ""
    return f"reply {number}: **low tide** at 11:40.\n\n- one\n- two\n- three{more}"
