"""What people do in the panels, in a real browser: nothing is written unseen, nothing secret stays in the browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from page_house import PageHouse
from page_lived import lived_in
from page_talk import Talk, settled
from playwright.sync_api import Page, expect

from palinurus.testing.behaviours import Calls

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

ASKING = {"agents": {"defaults": {"model": "wire/test", "sandbox": {"mode": "off"}}}}
MEMORY = "memory/2026-11-15.md"


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def text_box(page: Page, path: str) -> Any:
    return page.get_by_label(f"Text of {path}")


def kept_in_browser(page: Page) -> str:
    return str(page.evaluate("() => JSON.stringify([{...sessionStorage}, {...localStorage}])"))


def config_of(house: PageHouse) -> Any:
    return json.loads((house.root / "palinurus.json").read_text())


def test_a_file_that_changed_meanwhile_is_not_written_over_in_silence(start: Any, enter: Any) -> None:
    house = start(prepare=lived_in)
    page = enter(house, "/files?path=MEMORY.md")
    press(page, "Edit")
    box = text_box(page, "MEMORY.md")
    box.fill(box.input_value() + "- mine\n")
    file = house.workspace / "MEMORY.md"
    file.write_text(file.read_text() + "- theirs\n")
    box.press("Control+s")
    press(page, "Save")
    expect(page.get_by_text("changed meanwhile")).to_be_visible()
    expect(page.locator(".diff-removed")).to_contain_text("theirs")
    assert "mine" not in file.read_text()
    press(page, "Save mine over it")
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert file.read_text().endswith("- mine\n")
    assert "theirs" not in file.read_text()


def test_what_was_typed_outlives_a_reload(start: Any, enter: Any) -> None:
    house = start(prepare=lived_in)
    page = enter(house, f"/files?path={MEMORY}")
    press(page, "Edit")
    text_box(page, MEMORY).fill("# half a thought")
    page.reload()
    expect(page.get_by_text("changes that were not saved")).to_be_visible()
    press(page, "Go on editing")
    expect(text_box(page, MEMORY)).to_have_value("# half a thought")


def test_a_file_with_the_line_ends_of_windows_keeps_them(start: Any, enter: Any) -> None:
    house = start(prepare=lived_in)
    file: Path = house.workspace / "memory" / "old.md"
    file.write_bytes(b"# One\r\ntwo\r\nthree\r\n")
    page = enter(house, "/files?path=memory/old.md")
    press(page, "Edit")
    box = text_box(page, "memory/old.md")
    box.fill(box.input_value().replace("two", "2"))
    press(page, "Review changes")
    expect(page.locator(".diff-added")).to_have_count(1)
    press(page, "Save")
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert file.read_bytes() == b"# One\r\n2\r\nthree\r\n"


def test_a_file_goes_back_to_what_it_was(start: Any, enter: Any) -> None:
    house = start(prepare=lived_in)
    before = (house.workspace / "SOUL.md").read_text()
    page = enter(house, "/files?path=SOUL.md")
    press(page, "What changed")
    expect(page.locator(".history .diff").first).to_contain_text("Calm, brief")
    page.get_by_role("button", name="Restore", exact=True).last.click()
    page.locator(".sure").get_by_role("button", name="Restore", exact=True).last.click()
    expect(page.get_by_text("Restored.")).to_be_visible()
    assert (house.workspace / "SOUL.md").read_text() != before


def test_a_rule_is_tried_on_the_past_before_it_is_given_and_is_taken_back(start: Any, enter: Any, model: Any) -> None:
    house = start(**ASKING)
    page = enter(house)
    model.says(Calls(("exec", {"command": "git status --short"})), "Looked.")
    Talk(page).say("look at git")
    page.get_by_role("button", name=re.compile("Allow once")).first.click()
    Talk(page).hears("Looked.")
    page.goto(f"{house.url}/approvals?tab=grants")
    give = page.get_by_role("button", name="Give this grant")
    expect(give).to_be_disabled()
    page.get_by_label("Rule", exact=True).fill("git status **")
    expect(page.locator(".trial")).to_contain_text("would have let through")
    give.click()
    expect(page.get_by_text("Given.", exact=True)).to_be_visible()
    expect(give).to_be_disabled()
    press(page, "Revoke")
    page.locator(".sure").get_by_role("button", name="Revoke", exact=True).first.click()
    expect(page.get_by_text("Nothing is allowed for longer than once.")).to_be_visible()


def test_the_record_is_shown_and_verified_and_leads_to_the_run(start: Any, enter: Any, model: Any) -> None:
    house = start(prepare=lived_in)
    page = enter(house)
    model.says(Calls(("read", {"path": "SOUL.md"})), "Read.")
    Talk(page).say("read your soul")
    Talk(page).hears("Read.")
    page.goto(f"{house.url}/approvals?tab=audit")
    press(page, "Verify the chain")
    expect(page.get_by_text("The chain is whole")).to_be_visible()
    page.get_by_label("Session", exact=True).fill("agent:main:direct:nobody")
    expect(page.get_by_text("Nothing has been done yet.")).to_be_visible()
    page.get_by_label("Session", exact=True).fill("")
    page.locator("td a[href^='/runs?id=']").first.click()
    expect(page.get_by_role("img", name=re.compile("Step by step"))).to_be_visible()
    page.get_by_text("Show as a table").click()
    expect(page.get_by_role("table", name="Steps of the run")).to_contain_text("read")


def test_why_somebody_may_not_use_a_tool_is_told_layer_by_layer(start: Any, enter: Any) -> None:
    house = start()
    page = enter(house, "/approvals?tab=tools")
    page.get_by_label("Somebody else").fill("telegram:42")
    expect(page.get_by_text("not allowed").first).to_be_visible()
    page.locator("td summary").first.click()
    expect(page.locator(".chain li").first).to_contain_text("profile")
    page.get_by_label("Session", exact=True).fill("agent:main:telegram:group:-1001")
    expect(page.get_by_text("In agent:main:telegram:group:-1001")).to_be_visible()


def test_a_setting_is_checked_and_shown_before_it_is_written(start: Any, enter: Any) -> None:
    house = start()
    page = enter(house, "/config?q=maxConcurrent")
    box = page.get_by_label("maxConcurrent", exact=True).first
    box.fill("0")
    expect(page.get_by_text("should be at least 1")).to_be_visible()
    expect(page.get_by_role("button", name="Review and save")).to_be_disabled()
    box.fill("6")
    press(page, "Review and save")
    expect(page.get_by_text("This will be written")).to_be_visible()
    assert "maxConcurrent" not in config_of(house)["agents"]["defaults"]
    press(page, "Save")
    expect(page.get_by_text("Saved; it holds")).to_be_visible()
    assert config_of(house)["agents"]["defaults"]["maxConcurrent"] == 6


def test_a_config_that_changed_meanwhile_keeps_both_changes(start: Any, enter: Any) -> None:
    house = start()
    page = enter(house, "/config?q=maxConcurrent")
    page.get_by_label("maxConcurrent", exact=True).first.fill("5")
    house.pal("config", "set", "agents.defaults.timeoutSeconds", "300")
    press(page, "Review and save")
    press(page, "Read it again, keep my changes")
    press(page, "Review and save")
    press(page, "Save")
    expect(page.get_by_text("Saved; it holds")).to_be_visible()
    defaults = config_of(house)["agents"]["defaults"]
    assert (defaults["maxConcurrent"], defaults["timeoutSeconds"]) == (5, 300)


def test_what_no_call_may_change_is_read_only_and_says_why(start: Any, enter: Any) -> None:
    house = start()
    page = enter(house, "/config?section=gateway")
    expect(page.get_by_text("it decides who may come in").first).to_be_visible()
    expect(page.get_by_label("port", exact=True)).to_be_disabled()
    page.get_by_role("searchbox", name="Search settings").fill("agents.defaults workspace")
    expect(page.get_by_label("workspace", exact=True).first).to_be_disabled()


def test_a_key_is_kept_as_a_secret_and_never_in_the_browser(start: Any, enter: Any, model: Any) -> None:
    key = "sk-a-key-nobody-sees-0123456789"
    house = start(scripted=False, models={"providers": {"groq": {"baseUrl": model.base_url}}})
    page = enter(house, "/welcome")
    settled(page)
    page.get_by_label("Provider").select_option("groq")
    page.get_by_role("textbox", name="Key").fill(key)
    press(page, "Keep it and try")
    expect(page.locator(".choice .notice").first).to_contain_text("answered in")
    assert key not in kept_in_browser(page)
    assert key not in page.content()
    assert model.server.headers[-1]["authorization"] == f"Bearer {key}"
    listed = house.pal("gateway", "call", "credentials.list")
    assert "groq:default" in listed
    assert key not in listed
    assert str(config_of(house)["agents"]["defaults"]["model"]).startswith("groq/")


def test_the_index_is_rebuilt_and_compared_with_the_disk(start: Any, enter: Any) -> None:
    house = start(prepare=lived_in)
    page = enter(house, "/memory")
    press(page, "Rebuild")
    page.locator(".sure").get_by_role("button", name="Rebuild", exact=True).click()
    expect(page.locator(".health-told")).to_contain_text("compared")
    press(page, "Check every file")
    expect(page.get_by_text("the same as the disk")).to_be_visible()


def test_the_log_is_followed_and_filtered(start: Any, enter: Any, model: Any) -> None:
    house = start()
    page = enter(house, "/logs")
    lines = page.get_by_role("log", name="Log lines")
    expect(lines).to_contain_text("the gateway listens")
    page.get_by_label("Filter the log").fill("run end")
    expect(lines).to_contain_text("No line fits")
    house.pal(
        "gateway",
        "call",
        "chat.send",
        "--params",
        '{"sessionKey": "agent:main:main", "message": "hi", "idempotencyKey": "1"}',
    )
    expect(lines).to_contain_text("run end after")


def test_use_is_drawn_and_told_in_tables(start: Any, enter: Any) -> None:
    house = start(prepare=lived_in)
    page = enter(house, "/usage")
    expect(page.get_by_role("img", name=re.compile("Tokens per day"))).to_be_visible()
    page.get_by_text("Show as a table").first.click()
    expect(page.get_by_role("table", name="Tokens per day")).to_be_visible()
    page.get_by_role("tab", name="By model").press("ArrowRight")
    expect(page.get_by_role("tab", name="By agent")).to_be_focused()
    expect(page.get_by_role("table", name="Use by agent")).to_contain_text("main")


def test_differences_are_the_shortest_and_areas_are_to_scale(start: Any, enter: Any) -> None:
    """The two pieces of arithmetic in the panels, on thousands of random cases."""
    page = enter(start())
    assert page.evaluate((Path(__file__).parent / "page_arithmetic.js").read_text()) == {"diffs": 0, "areas": 0}
