"""For everybody: names and roles, focus, contrast in light and dark, no motion for who wants none, no mouse."""

from __future__ import annotations

from typing import Any

import pytest
from page_house import PageHouse
from page_lived import lived_in
from page_looking import check, nameless, tabbed
from page_talk import ADDRESSES, Talk, settled
from playwright.sync_api import expect

pytestmark = pytest.mark.real

PLACES = ("/s/agent:main:main", *ADDRESSES, "/memory?q=boat", "/files?path=SOUL.md&line=2")
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


def visit(page: Any, services: PageHouse, place: str) -> None:
    page.goto(services.url + place)
    page.wait_for_selector("main h1, main h2, [role=log]")
    settled(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_place_is_named_legible_and_whole(start: Any, enter: Any, scheme: str) -> None:
    services = start(prepare=lived_in)
    page = enter(services, color_scheme=scheme)
    wrong: list[str] = []
    for place in PLACES:
        visit(page, services, place)
        found = [
            *nameless(page),
            *(each for name in ("contrast", "structure", "sizes", "reflow") for each in check(page, name)),
        ]
        wrong += [f"{place}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)
    assert page.watched.errors == []


def test_a_phone_shows_every_place_without_scrolling_sideways(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, **PHONE)
    wrong: list[str] = []
    for place in PLACES:
        visit(page, services, place)
        wrong += [f"{place}: {each}" for name in ("reflow", "contrast", "sizes") for each in check(page, name)]
        wrong += [f"{place}: {each}" for each in nameless(page)]
    assert not wrong, "\n".join(wrong)


def test_nothing_moves_for_who_wants_no_motion(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, reduced_motion="reduce")
    wrong: list[str] = []
    for place in PLACES:
        visit(page, services, place)
        wrong += [f"{place}: {each}" for each in check(page, "motion")]
    assert not wrong, "\n".join(wrong)


def test_tab_meets_every_control_in_its_order_and_shows_where_it_is(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, reduced_motion="reduce")  # what fades in is there at once
    wrong: list[str] = []
    for place in PLACES:
        visit(page, services, place)
        met = tabbed(page)
        assert len(met) > 5, place
        wrong += [f"{place}: {each['name']} has no mark of focus" for each in met if not each["ring"]]
        wrong += [f"{place}: {each['name']} is met and not seen" for each in met if not each["visible"]]
        wrong += [f"{place}: {each['name']} comes after what stands behind it" for each in met[1:] if not each["after"]]
    assert not wrong, "\n".join(wrong)


def test_a_conversation_needs_no_mouse(start: Any, enter: Any, model: Any) -> None:
    """New session, message, reply, another place and back: by the keyboard alone."""
    services = start(prepare=lived_in)
    page = enter(services)
    talk = Talk(page)
    expect(talk.box).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.type("new sess")
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(f"{services.url}/s/agent:main:main")
    expect(talk.box).to_be_focused()
    model.says("Heard by the keyboard.")
    page.keyboard.type("no mouse today")
    page.keyboard.press("Enter")
    talk.hears("Heard by the keyboard.")
    where = page.url
    page.keyboard.press("Control+k")
    page.keyboard.type("usage")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{services.url}/usage")
    page.go_back()
    expect(page).to_have_url(where)
    talk.hears("Heard by the keyboard.")
