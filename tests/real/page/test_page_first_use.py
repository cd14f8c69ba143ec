"""The first minutes on the page: every suggestion, every entry of the palette and every model leads somewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from page_house import until
from page_talk import Talk, settled
from playwright.sync_api import expect

pytestmark = pytest.mark.real

# What leaves the page, or ends the conversation.
APART = {"Log out of this browser", "Export as Markdown", "Export as JSON lines", "Delete"}
# Where we are, what is open, what has the keyboard, and what stands there.
SEEN = """() => [location.href, document.querySelectorAll("[aria-expanded=true]").length,
  document.activeElement.tagName + document.activeElement.ariaLabel, document.body.innerText].join()"""


def open_palette(page: Any) -> Any:
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Palette")
    expect(palette).to_be_visible()
    return palette


@pytest.mark.parametrize("scripted", [False, True])
def test_every_suggestion_of_an_empty_conversation_is_answered(
    start: Any, enter: Any, model: Any, scripted: bool
) -> None:
    services = start(scripted=scripted)
    page = enter(services)
    talk = Talk(page)
    expect(page.get_by_role("list", name="Try")).to_be_visible()
    names = page.get_by_role("list", name="Try").get_by_role("button").all_inner_texts()
    assert len(names) >= 3
    for name in names:
        open_palette(page)
        page.keyboard.type("New session")
        page.keyboard.press("Enter")
        page.get_by_role("list", name="Try").get_by_role("button", name=name).click()
        expect(talk.box).to_have_value(name)
        page.keyboard.press("Enter")
        expect(talk.log.get_by_text("The agent said:").first).to_be_attached()
        talk.idle()
        expect(talk.log.get_by_role("alert")).to_have_count(0)
    assert page.watched.errors == []


def test_every_entry_of_the_palette_does_something_that_is_seen(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    model.says("Good morning.")
    talk.say("good morning")
    talk.hears("Good morning.")
    talk.idle()
    home = page.url
    open_palette(page)
    names = [text.split("\n")[0] for text in page.get_by_role("option").all_inner_texts()]
    page.keyboard.press("Escape")
    for name in (name for name in names if name not in APART and name != "good morning"):
        page.goto(home)
        talk.hears("Good morning.")
        settled(page)
        before = page.evaluate(SEEN)
        open_palette(page)
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog", name="Palette")).to_have_count(0)
        until(lambda before=before: page.evaluate(SEEN) != before, name, 20)
    assert page.watched.errors == []


def test_the_palette_opens_again_right_after_it_was_closed(start: Any, enter: Any) -> None:
    page = enter(start())
    expect(Talk(page).box).to_be_focused()
    page.evaluate(
        """() => {
          const press = (key, ctrlKey) => (document.querySelector("dialog[open]") ?? document).dispatchEvent(
            new KeyboardEvent("keydown", { key, ctrlKey, bubbles: true, cancelable: true }));
          press("k", true);
          document.querySelector("dialog[open]").close();
          press("k", true);
        }"""
    )
    expect(page.get_by_role("dialog", name="Palette")).to_be_visible()
    page.keyboard.type("New sess")
    expect(page.get_by_role("option").first).to_contain_text("New session")


def test_who_is_signed_out_has_no_palette(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services)
    expect(Talk(page).box).to_be_focused()
    page.context.clear_cookies()
    page.goto(f"{services.url}/login")
    expect(page.get_by_text("pal dashboard").first).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_models_of_the_configured_provider_are_offered_and_the_chosen_one_answers(
    start: Any, enter: Any, model: Any
) -> None:
    services = start(models={"providers": {"wire": {"baseUrl": model.base_url}}})
    page = enter(services)
    talk = Talk(page)
    chooser = page.get_by_title("Model", exact=True)
    expect(chooser).to_contain_text("test")
    chooser.click()
    own = page.get_by_role("menuitemradio", name=re.compile(r"^test\b"))
    expect(own).to_have_attribute("aria-checked", "true")
    page.get_by_role("menuitemradio", name=re.compile("Scout")).click()
    expect(chooser).to_contain_text("Scout")
    talk.say("Remember that the boat is called Alma.")
    talk.hears(re.compile("Noted"))
    talk.idle()
    assert model.requests == []
    chooser.click()
    own.click()
    expect(chooser).to_contain_text("test")
    model.says("It is I.")
    talk.say("who answers?")
    talk.hears("It is I.")
    assert model.requests[-1]["model"] == "test"
