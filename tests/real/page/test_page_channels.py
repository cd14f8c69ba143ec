"""Channels on the dashboard: one is set up, tried and removed, people are let in, and what is wrong is said."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from page_house import PageHouse, until
from page_looking import check, nameless, tabbed
from page_talk import settled
from playwright.sync_api import Locator, Page, expect

from support.telegram_server import TelegramServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


@pytest.fixture
def telegram() -> Iterator[TelegramServer]:
    with TelegramServer() as server:
        yield server


def account(page: Page, name: str = "Telegram") -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def saved(services: PageHouse) -> Any:
    return json.loads((services.root / "palinurus.json").read_text()).get("channels", {}).get("telegram")


def add(page: Page, token: str) -> None:
    press(page, "Add a channel")
    page.get_by_label("Network", exact=True).select_option("telegram")
    page.get_by_label("Token that @BotFather gave you").fill(token)
    press(page, "Test and save")


def shoot(page: Page, name: str) -> None:
    if folder := os.environ.get("PAGE_SHOTS"):
        settled(page)
        high = page.evaluate("() => document.querySelector('.panel').scrollHeight + 120")
        size = page.viewport_size
        page.set_viewport_size({"width": size["width"], "height": max(size["height"], high)})
        page.screenshot(path=f"{folder}/{name}.png", animations="disabled", caret="hide")
        page.set_viewport_size(size)


@pytest.mark.shows("Chromium", "the dashboard: channels")
def test_telegram_is_set_up_a_person_is_let_in_and_answered_and_it_is_removed(
    start: Any, enter: Any, model: Any, telegram: TelegramServer
) -> None:
    session = {"dmScope": "per-channel-peer"}
    services = start(channels={"telegram": {"enabled": False, "apiRoot": telegram.url}}, session=session)
    page = enter(services)
    page.keyboard.press("Control+k")
    page.keyboard.type("channels")
    page.keyboard.press("Enter")
    page.wait_for_url("**/channels")
    expect(account(page)).to_contain_text("off")
    press(page, "Add a channel")
    expect(page.get_by_label("Network", exact=True)).to_be_focused()
    expect(page.get_by_text("In Telegram, write /newbot to @BotFather")).to_be_visible()
    secret = page.get_by_label("Token that @BotFather gave you")
    expect(secret).to_have_attribute("type", "password")
    secret.fill(telegram.token)
    secret.press("Enter")
    expect(page.get_by_text("Telegram is set up.")).to_be_visible()
    expect(account(page)).to_contain_text("connected")
    expect(account(page)).to_contain_text("@pal_bot")
    assert telegram.token not in page.content()
    assert saved(services)["botToken"] == telegram.token

    telegram.write("hello")
    asked = page.get_by_role("article", name=re.compile("Pairing of 42 on telegram"))
    expect(asked).to_contain_text("Ada")
    expect(account(page)).to_contain_text("1 sender waits for pairing")
    code = re.search(r"[A-Z2-9]{8}", until(telegram.sent, "the code")[0].text)
    assert code is not None
    expect(asked).to_contain_text(code[0])
    shoot(page, "pairing")
    asked.get_by_role("button", name="Let in").click()
    expect(page.get_by_role("table", name="Senders let in")).to_contain_text("Ada")
    model.says("Good day, Ada.")
    telegram.write("hello again")
    until(lambda: "Good day, Ada." in [each.text for each in telegram.sent()], "the reply")
    expect(account(page)).to_contain_text("2 messages received")
    expect(page.get_by_role("navigation").locator(".rail-row")).to_contain_text(re.compile("Ada.*telegram"))

    account(page).get_by_role("button", name="Test Telegram").click()
    expect(account(page)).to_contain_text("Telegram works.")
    shoot(page, "tested")
    account(page).get_by_role("button", name="Remove Telegram").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    account(page).get_by_role("button", name="Remove Telegram").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No channel is set up.")).to_be_visible()
    assert saved(services) is None
    assert page.watched.errors == []
    assert page.watched.refused == []


def test_a_wrong_token_says_so_and_saves_nothing(start: Any, enter: Any, telegram: TelegramServer) -> None:
    services = start(channels={"telegram": {"apiRoot": telegram.url}})
    page = enter(services, "/channels")
    expect(account(page)).to_contain_text("failed")  # it has no token
    before = saved(services)
    telegram.network.refuse_token()
    add(page, "4242:wrong")
    form = page.get_by_role("form", name="Set up a channel")
    expect(form.get_by_role("list", name="Checks")).to_contain_text("failed")
    expect(form).to_contain_text("Nothing was saved.")
    assert saved(services) == before
    shoot(page, "wrong")
    telegram.network.refuse_token(False)
    page.get_by_label("Token that @BotFather gave you").fill(telegram.token)
    press(page, "Test and save")
    expect(account(page)).to_contain_text("connected")


def test_an_account_that_is_lost_and_found_shows_it(start: Any, enter: Any, telegram: TelegramServer) -> None:
    services = start(channels={"telegram": telegram.network.config()})
    page = enter(services, "/channels")
    expect(account(page)).to_contain_text("connected")
    services.pal("config", "set", "channels.telegram.enabled", "false")
    expect(account(page)).to_contain_text("off", timeout=60_000)


def test_a_rejected_sender_waits_no_more(start: Any, enter: Any, telegram: TelegramServer) -> None:
    services = start(channels={"telegram": telegram.network.config()})
    page = enter(services, "/channels")
    expect(account(page)).to_contain_text("connected")
    telegram.write("hello", sender="7", sender_name="Mallory")
    asked = page.get_by_role("article", name=re.compile("Pairing of 7 on telegram"))
    asked.get_by_role("button", name="Reject").click()
    expect(asked).to_have_count(0)
    expect(account(page)).not_to_contain_text("waits for pairing")


def test_the_address_opens_the_form_of_a_network(start: Any, enter: Any) -> None:
    page = enter(start(), "/channels?add=slack", permissions=["clipboard-read", "clipboard-write"])
    expect(page.get_by_label("Bot token, xoxb-…")).to_be_visible()
    press(page, "Copy the manifest")
    expect(page.get_by_text("The manifest was copied.")).to_be_visible()
    copied = json.loads(page.evaluate("() => navigator.clipboard.readText()"))
    assert copied["settings"]["socket_mode_enabled"] is True
    press(page, "Test and save")  # a field is empty
    expect(page.get_by_label("Bot token, xoxb-…")).to_be_focused()
    press(page, "Cancel")
    expect(page.get_by_role("button", name="Add a channel")).to_be_focused()
    expect(page).to_have_url(re.compile("/channels$"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_named_legible_and_reached_by_the_keyboard(
    start: Any, enter: Any, telegram: TelegramServer, scheme: str
) -> None:
    services = start(channels={"telegram": telegram.network.config(), "discord": {"dmPolicy": "pairing"}})
    page = enter(services, "/channels", color_scheme=scheme, reduced_motion="reduce")
    expect(account(page)).to_contain_text("connected")
    telegram.write("hello")
    expect(page.get_by_role("article")).to_be_visible()
    account(page).get_by_role("button", name="Test Telegram").click()
    expect(account(page)).to_contain_text("Telegram works.")
    press(page, "Add a channel")
    page.get_by_label("Network", exact=True).select_option("slack")
    wrong = looked_over(page)
    shoot(page, f"all-{scheme}")
    met = [each["name"] for each in tabbed(page, 200)]
    for name in ("Add a channel", "Let in", "Reject", "Test", "Remove", "Test and save"):
        assert any(f"“{name}”" in each for each in met), (name, met)
    assert not wrong, "\n".join(wrong)
    assert page.watched.errors == []


def test_a_phone_shows_it_without_scrolling_sideways(start: Any, enter: Any, telegram: TelegramServer) -> None:
    services = start(channels={"telegram": telegram.network.config()})
    page = enter(services, "/channels", **PHONE)
    expect(account(page)).to_contain_text("connected")
    telegram.write("hello")
    expect(page.get_by_role("article")).to_be_visible()
    wrong = looked_over(page)
    shoot(page, "phone")
    press(page, "Add a channel")
    wrong += looked_over(page)
    shoot(page, "phone-form")
    assert not wrong, "\n".join(wrong)


def looked_over(page: Page) -> list[str]:
    settled(page)
    found = (each for name in ("contrast", "structure", "sizes", "reflow") for each in check(page, name))
    return [*nameless(page), *found]
