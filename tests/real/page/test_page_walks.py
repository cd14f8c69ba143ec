"""What people do on the page, each in a real browser against a real gateway with a scripted model."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from page_house import until
from page_lived import lived_in
from page_talk import Talk, settled
from playwright.sync_api import expect

from support.behaviours import Calls, Hangs, Says

pytestmark = pytest.mark.real

ASKING = {"agents": {"defaults": {"model": "wire/test", "sandbox": {"mode": "off"}}}}


@pytest.mark.shows("Chromium", "the dashboard: chat")
def test_a_reply_streams_into_the_conversation_and_is_there_after_a_reload(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    model.says(Says("The first words, and **bold** ones, and the very last.", chunks=20, delay=0.05))
    talk.say("tell me something")
    talk.hears("The first words")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    talk.hears("the very last.")
    talk.idle()
    expect(talk.log.locator("strong")).to_have_text("bold")
    page.reload()
    talk.hears("tell me something")
    talk.hears("the very last.")
    expect(talk.log.get_by_text("tell me something")).to_have_count(1)
    assert page.watched.errors == []


def test_a_typo_is_answered_with_what_was_meant_and_no_model_is_asked(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    talk.say("/hlep me")
    talk.hears("unknown command /hlep; did you mean /help?")
    talk.say("/model nosuch")
    talk.hears("'nosuch' is not a model")
    talk.idle()
    assert model.requests == []
    model.says("Here I am.")
    talk.say("/etc/hosts is empty")
    talk.hears("Here I am.")
    assert len(model.requests) == 1


def test_a_tool_is_shown_between_the_words_around_it_and_is_not_glued_to_them(
    start: Any, enter: Any, model: Any
) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    model.says(Calls(("ls", {"path": "."}), text="let me look"), "done now")
    talk.say("look around")
    talk.hears("done now")
    talk.idle()
    expect(talk.log).to_contain_text("ls")
    expect(talk.log.get_by_text("let me look", exact=True)).to_be_visible()
    expect(talk.log.get_by_text("done now", exact=True)).to_be_visible()


def test_esc_stops_a_reply_that_does_not_end(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    model.says(Hangs("It begins and goes on "))
    talk.say("go on forever")
    talk.hears("It begins and")
    talk.box.press("Escape")
    talk.idle()
    until(lambda: model.server.departed == 1, "the model was let go")
    model.says("Here again.")
    talk.say("still there?")
    talk.hears("Here again.")


@pytest.mark.shows("Chromium", "the dashboard: approvals")
def test_a_command_waits_for_a_yes_and_runs_once_it_has_it(start: Any, enter: Any, model: Any) -> None:
    services = start(**ASKING)
    page = enter(services)
    talk = Talk(page)
    model.says(Calls(("exec", {"command": "printf approved > proof.txt"})), "It is written.")
    talk.say("write the proof")
    expect(talk.log).to_contain_text("printf approved > proof.txt")
    assert not (services.workspace / "proof.txt").exists()
    page.get_by_role("button", name=re.compile("Allow once")).first.click()
    talk.hears("It is written.")
    assert (services.workspace / "proof.txt").read_text() == "approved"
    expect(page.get_by_role("button", name=re.compile("Allow once"))).to_have_count(0)


def test_a_command_that_is_denied_never_runs(start: Any, enter: Any, model: Any) -> None:
    services = start(**ASKING)
    page = enter(services)
    talk = Talk(page)
    model.says(Calls(("exec", {"command": "printf denied > proof.txt"})), "Then I will not.")
    talk.say("write the proof")
    deny = page.get_by_role("button", name=re.compile("Deny")).first
    deny.focus()
    page.keyboard.press("n")
    talk.hears("Then I will not.")
    talk.hears("Denied")
    assert not (services.workspace / "proof.txt").exists()


@pytest.mark.shows("Chromium", "the dashboard: memory")
def test_memory_is_searched_and_the_citation_opens_at_its_lines(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, "/memory")
    page.get_by_role("searchbox", name="Search memory").fill("which berth does the boat lie in")
    found = page.get_by_role("link", name="memory/2026-11-15.md").first
    found.click()
    cited = page.locator(".cited")
    expect(cited.first).to_contain_text("berth 12")
    expect(cited.first).to_be_in_viewport()
    page.goto(f"{services.url}/files?path=memory/2026-11-15.md&line=3")
    expect(page.locator(".cited").first).to_contain_text("Low tide")


def test_a_citation_in_a_reply_is_a_chip_that_opens_the_file(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services)
    talk = Talk(page)
    model.says("It lies in berth 12. Source: memory/2026-11-15.md#L3-L3")
    talk.say("where is the boat?")
    talk.hears("It lies in berth 12.")
    page.locator("a[href*='/files?path=memory']").last.click()
    expect(page.locator(".cited").first).to_contain_text("berth 12")


def test_soul_is_edited_with_a_diff_and_the_next_reply_is_given_it(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, "/files?path=SOUL.md")
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_label("Text of SOUL.md").fill("# Soul\n\nSpeaks like a pilot in fog.\n")
    page.get_by_role("button", name="Review changes").click()
    expect(page.get_by_text("Speaks like a pilot in fog.")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert (services.workspace / "SOUL.md").read_text() == "# Soul\n\nSpeaks like a pilot in fog.\n"
    page.get_by_role("link", name=re.compile("The harbour")).first.click()
    talk = Talk(page)
    model.says("Slowly now.")
    talk.say("who are you?")
    talk.hears("Slowly now.")
    assert "pilot in fog" in json.dumps(model.requests[-1])


def test_an_old_version_is_put_back_from_the_history(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, "/files?path=SOUL.md")
    expect(page.get_by_label("History")).to_contain_text("The first notes")
    page.get_by_role("button", name="Restore").last.click()
    page.get_by_role("button", name="Restore").last.click()
    until(lambda: "a little dry" not in (services.workspace / "SOUL.md").read_text(), "the old SOUL.md")


def test_another_model_is_chosen_and_answers(start: Any, enter: Any, model: Any) -> None:
    provider = {
        "baseUrl": model.base_url,
        "models": [
            {"id": "test", "contextWindow": 200_000},
            {"id": "other", "name": "The other one", "contextWindow": 100_000},
        ],
    }
    services = start(models={"providers": {"wire": provider}})
    page = enter(services)
    talk = Talk(page)
    talk.say("hello")
    talk.hears("hello")
    talk.idle()
    page.get_by_title("Model", exact=True).click()
    page.get_by_role("menuitemradio", name=re.compile("The other one")).click()
    expect(page.get_by_title("Model", exact=True)).to_contain_text("The other one")
    model.says("The other one speaks.")
    talk.say("and you?")
    talk.hears("The other one speaks.")
    assert model.requests[-1]["model"] == "other"


def test_a_conversation_is_summed_up_and_says_so(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services)
    talk = Talk(page)
    talk.hears("Three things are on today")
    page.keyboard.press("Control+k")
    page.keyboard.type("compact")
    page.keyboard.press("Enter")
    talk.hears("Compacted", timeout=60_000)
    page.reload()
    talk.hears("Compacted")


def test_a_conversation_is_renamed_found_and_ended(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services)
    nav = page.get_by_role("navigation", name="Agents and sessions")
    expect(nav.get_by_role("link", name=re.compile("The harbour"))).to_be_visible()
    nav.get_by_role("searchbox").fill("anna")
    expect(nav.get_by_role("link", name=re.compile("The harbour"))).to_have_count(0)
    nav.get_by_role("searchbox").fill("")
    page.keyboard.press("Control+k")
    page.keyboard.type("rename")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("textbox").fill("Harbour & tides")
    page.keyboard.press("Enter")
    expect(nav.get_by_role("link", name=re.compile("Harbour & tides"))).to_be_visible()
    assert "Harbour & tides" in services.pal("sessions", "list", "--json")


def test_a_conversation_is_taken_away_as_a_file(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services)
    Talk(page).hears("Three things are on today")
    page.keyboard.press("Control+k")
    page.keyboard.type("export")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert "Three things are on today" in download.value.path().read_text()


def test_a_gateway_that_is_killed_in_mid_reply_comes_back_and_nothing_is_lost_or_doubled(
    start: Any, enter: Any, model: Any
) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    model.says(Hangs("The first half and more "))
    talk.say("tell me everything")
    talk.hears("The first half and")
    services.kill()
    expect(page.get_by_text("Reconnecting…").first).to_be_visible()
    talk.say("said while nobody was there")
    expect(page.get_by_text(re.compile("queued")).first).to_be_visible()
    model.says(Says("the second half, whole."), Says("heard that too."))
    services.start()
    talk.hears("the second half, whole.", timeout=60_000)
    talk.hears("heard that too.", timeout=60_000)
    talk.idle()
    for said in ("tell me everything", "said while nobody was there", "heard that too."):
        expect(talk.log.get_by_text(said, exact=True)).to_have_count(1)
    page.reload()
    talk.hears("heard that too.")
    for said in ("tell me everything", "said while nobody was there"):
        expect(talk.log.get_by_text(said, exact=True)).to_have_count(1)
    shown = services.pal("sessions", "show", "agent:main:main")
    assert shown.count("said while nobody was there") == 1


def test_first_run_without_a_model_offers_a_key_a_server_or_scout(start: Any, enter: Any) -> None:
    services = start(scripted=False)
    page = enter(services, "/welcome")
    settled(page)
    for name in ("Add an API key", "Use a local server", "Continue with scout"):
        expect(page.get_by_role("heading", name=name)).to_be_visible()
    secret = "sk-first-run-0123456789abcdef"
    page.get_by_label("API key", exact=True).fill(secret)
    page.get_by_role("button", name="Save and test").click()
    until((services.root / "credentials.json").exists, "the stored key")
    assert secret in (services.root / "credentials.json").read_text()
    assert (services.root / "credentials.json").stat().st_mode & 0o777 == 0o600
    expect(page.get_by_label("API key", exact=True)).to_have_value("")
    assert secret not in page.content()
    assert secret not in page.evaluate("() => JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert secret not in services.log


def test_the_config_is_edited_and_what_no_call_may_change_says_why(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, "/config")
    settled(page)
    expect(page.get_by_text("it decides which folder an agent can write to").first).to_be_attached()
    page.get_by_label("userTimezone", exact=True).fill("Europe/Berlin")
    page.get_by_role("button", name="Review and save").click()
    expect(page.get_by_text("Review changes")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    until(lambda: "Europe/Berlin" in (services.root / "palinurus.json").read_text(), "the saved config")


def test_signing_out_shows_how_to_come_in_again(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services)
    Talk(page).hears("")
    page.context.clear_cookies()
    page.goto(services.url)
    expect(page).to_have_url(f"{services.url}/login")
    expect(page.get_by_text("pal dashboard").first).to_be_visible()
