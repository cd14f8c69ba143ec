"""What people do in the panels, in a real browser: nothing is written unseen, nothing secret stays in the browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from page_house import PageHouse
from page_lived import lived_in
from page_looking import nameless
from page_talk import Talk, settled
from playwright.sync_api import Page, expect

from palinurus.dispatch.delivery import OutboundMessage
from palinurus.dispatch.pairing import Pairing, PairingStore, put_pairing
from palinurus.domain.clock import SystemClock
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, JobQueue, State
from support.behaviours import Calls

pytestmark = pytest.mark.real

ASKING = {"agents": {"defaults": {"model": "wire/test", "sandbox": {"mode": "off"}}}}
MEMORY = "memory/2026-11-15.md"
NOW = SystemClock().now_ms()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def text_box(page: Page, path: str) -> Any:
    return page.get_by_label(f"Text of {path}")


def kept_in_browser(page: Page) -> str:
    return str(page.evaluate("() => JSON.stringify([{...sessionStorage}, {...localStorage}])"))


def config_of(services: PageHouse) -> Any:
    return json.loads((services.root / "palinurus.json").read_text())


def test_a_file_that_changed_meanwhile_is_not_written_over_in_silence(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, "/files?path=MEMORY.md")
    press(page, "Edit")
    box = text_box(page, "MEMORY.md")
    box.fill(box.input_value() + "- mine\n")
    file = services.workspace / "MEMORY.md"
    file.write_text(file.read_text() + "- theirs\n")
    box.press("Control+s")
    press(page, "Save")
    expect(page.get_by_text("changed on disk")).to_be_visible()
    expect(page.locator(".diff-removed")).to_contain_text("theirs")
    assert "mine" not in file.read_text()
    press(page, "Overwrite with mine")
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert file.read_text().endswith("- mine\n")
    assert "theirs" not in file.read_text()


def test_a_proposal_is_accepted_with_other_words(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    for day in ("2026-11-01", "2026-11-02"):
        note = services.workspace / "memory" / f"{day}.md"
        note.write_text("## Retain\n\n- W @Alma: The Alma lies at berth 12.\n", encoding="utf-8")
    page = enter(services)
    page.goto(f"{services.url}/memory")
    page.evaluate("async () => (await import('/page/wire.js')).wire.call('memory.reflect', { since: '90d' })")
    page.reload()
    box = page.get_by_label("Words of the proposal").first
    expect(box).to_have_value("Alma: The Alma lies at berth 12.")
    if folder := os.environ.get("SHOT"):
        page.screenshot(path=folder)
    box.fill("The Alma lies at berth 12, all year.")
    press(page, "Accept")
    expect(page.get_by_label("Words of the proposal")).to_have_count(0)
    assert "- The Alma lies at berth 12, all year." in (services.workspace / "MEMORY.md").read_text()


def test_what_was_typed_outlives_a_reload(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, f"/files?path={MEMORY}")
    press(page, "Edit")
    text_box(page, MEMORY).fill("# half a thought")
    page.reload()
    expect(page.get_by_text("You have unsaved changes")).to_be_visible()
    press(page, "Continue editing")
    expect(text_box(page, MEMORY)).to_have_value("# half a thought")


def test_a_file_with_the_line_ends_of_windows_keeps_them(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    file: Path = services.workspace / "memory" / "old.md"
    file.write_bytes(b"# One\r\ntwo\r\nthree\r\n")
    page = enter(services, "/files?path=memory/old.md")
    press(page, "Edit")
    box = text_box(page, "memory/old.md")
    box.fill(box.input_value().replace("two", "2"))
    press(page, "Review changes")
    expect(page.locator(".diff-added")).to_have_count(1)
    press(page, "Save")
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert file.read_bytes() == b"# One\r\n2\r\nthree\r\n"


def test_a_file_goes_back_to_what_it_was(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    before = (services.workspace / "SOUL.md").read_text()
    page = enter(services, "/files?path=SOUL.md")
    press(page, "What changed")
    expect(page.locator(".history .diff").first).to_contain_text("Calm, brief")
    page.get_by_role("button", name="Restore", exact=True).last.click()
    page.locator(".sure").get_by_role("button", name="Restore", exact=True).last.click()
    expect(page.get_by_text("Restored.")).to_be_visible()
    assert (services.workspace / "SOUL.md").read_text() != before


def test_a_rule_is_tried_on_the_past_before_it_is_given_and_is_taken_back(start: Any, enter: Any, model: Any) -> None:
    services = start(**ASKING)
    page = enter(services)
    model.says(Calls(("exec", {"command": "git status --short"})), "Looked.")
    Talk(page).say("look at git")
    page.get_by_role("button", name=re.compile("Allow once")).first.click()
    Talk(page).hears("Looked.")
    page.goto(f"{services.url}/approvals?tab=grants")
    give = page.get_by_role("button", name="Grant", exact=True)
    expect(give).to_be_disabled()
    page.get_by_label("Rule", exact=True).fill("git status **")
    expect(page.locator(".trial")).to_contain_text("would have allowed")
    give.click()
    expect(page.get_by_text("Granted.", exact=True)).to_be_visible()
    expect(give).to_be_disabled()
    press(page, "Revoke")
    page.locator(".sure").get_by_role("button", name="Revoke", exact=True).first.click()
    expect(page.get_by_text("No grants yet.")).to_be_visible()


def test_the_record_is_shown_and_verified_and_leads_to_the_run(start: Any, enter: Any, model: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services)
    model.says(Calls(("read", {"path": "SOUL.md"})), "Read.")
    Talk(page).say("read your soul")
    Talk(page).hears("Read.")
    page.goto(f"{services.url}/approvals?tab=audit")
    press(page, "Verify chain")
    expect(page.get_by_text("The chain is intact")).to_be_visible()
    page.get_by_label("Session", exact=True).fill("agent:main:direct:nobody")
    expect(page.get_by_text("The audit log is empty.")).to_be_visible()
    page.get_by_label("Session", exact=True).fill("")
    page.locator("td a[href^='/runs?id=']").first.click()
    expect(page.get_by_role("img", name=re.compile("Timeline"))).to_be_visible()
    page.get_by_text("Show as a table").click()
    expect(page.get_by_role("table", name="Steps of the run")).to_contain_text("read")


def test_why_somebody_may_not_use_a_tool_is_told_layer_by_layer(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services, "/approvals?tab=tools")
    page.get_by_label("Sender").fill("telegram:42")
    expect(page.get_by_text("not allowed").first).to_be_visible()
    page.locator("td summary").first.click()
    expect(page.locator(".chain li").first).to_contain_text("profile")
    page.get_by_label("Session", exact=True).fill("agent:main:telegram:group:-1001")
    expect(page.get_by_text("In agent:main:telegram:group:-1001")).to_be_visible()


def test_a_setting_is_checked_and_shown_before_it_is_written(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services, "/config?q=agents.defaults.maxConcurrent")
    box = page.get_by_label("maxConcurrent", exact=True).first
    box.fill("0")
    expect(page.get_by_text("must be at least 1")).to_be_visible()
    expect(page.get_by_role("button", name="Review and save")).to_be_disabled()
    box.fill("6")
    press(page, "Review and save")
    expect(page.get_by_text("Review changes")).to_be_visible()
    assert "maxConcurrent" not in config_of(services)["agents"]["defaults"]
    press(page, "Save")
    expect(page.get_by_text("Saved. It takes effect")).to_be_visible()
    assert config_of(services)["agents"]["defaults"]["maxConcurrent"] == 6


def test_a_config_that_changed_meanwhile_keeps_both_changes(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services, "/config?q=agents.defaults.maxConcurrent")
    page.get_by_label("maxConcurrent", exact=True).first.fill("5")
    services.pal("config", "set", "agents.defaults.timeoutSeconds", "300")
    press(page, "Review and save")
    press(page, "Reload and keep my changes")
    press(page, "Review and save")
    press(page, "Save")
    expect(page.get_by_text("Saved. It takes effect")).to_be_visible()
    defaults = config_of(services)["agents"]["defaults"]
    assert (defaults["maxConcurrent"], defaults["timeoutSeconds"]) == (5, 300)


def test_what_no_call_may_change_is_read_only_and_says_why(start: Any, enter: Any) -> None:
    services = start()
    page = enter(services, "/config?section=gateway")
    expect(page.get_by_text("it decides who may come in").first).to_be_visible()
    expect(page.get_by_label("port", exact=True)).to_be_disabled()
    page.get_by_role("searchbox", name="Search settings").fill("agents.defaults workspace")
    expect(page.get_by_label("workspace", exact=True).first).to_be_disabled()


def test_a_key_is_kept_as_a_secret_and_never_in_the_browser(start: Any, enter: Any, model: Any) -> None:
    key = "sk-a-key-nobody-sees-0123456789"
    services = start(scripted=False, models={"providers": {"groq": {"baseUrl": model.base_url}}})
    page = enter(services, "/welcome")
    settled(page)
    page.get_by_label("Provider").select_option("groq")
    page.get_by_role("textbox", name="API key").fill(key)
    press(page, "Save and test")
    expect(page.locator(".choice .notice").first).to_contain_text("answered in")
    assert key not in kept_in_browser(page)
    assert key not in page.content()
    assert model.server.headers[-1]["authorization"] == f"Bearer {key}"
    listed = services.pal("gateway", "call", "credentials.list")
    assert "groq:default" in listed
    assert key not in listed
    assert str(config_of(services)["agents"]["defaults"]["model"]).startswith("groq/")


def test_the_index_is_rebuilt_and_compared_with_the_disk(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, "/memory")
    press(page, "Rebuild")
    page.locator(".sure").get_by_role("button", name="Rebuild", exact=True).click()
    expect(page.locator(".health-told")).to_contain_text("compared")
    press(page, "Check every file")
    expect(page.get_by_text("matches the disk")).to_be_visible()


def test_the_log_is_followed_and_filtered(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services, "/logs")
    lines = page.get_by_role("log", name="Log lines")
    expect(lines).to_contain_text("the gateway listens")
    page.get_by_label("Filter the log").fill("run end")
    expect(lines).to_contain_text("No lines match")
    services.pal(
        "gateway",
        "call",
        "chat.send",
        "--params",
        '{"sessionKey": "agent:main:main", "message": "hi", "idempotencyKey": "1"}',
    )
    expect(lines).to_contain_text("run end after")


def test_use_is_drawn_and_told_in_tables(start: Any, enter: Any) -> None:
    services = start(prepare=lived_in)
    page = enter(services, "/usage")
    expect(page.get_by_role("img", name=re.compile("Tokens per day"))).to_be_visible()
    page.get_by_text("Show as a table").first.click()
    expect(page.get_by_role("table", name="Tokens per day")).to_be_visible()
    page.get_by_role("tab", name="By model").press("ArrowRight")
    expect(page.get_by_role("tab", name="By agent")).to_be_focused()
    expect(page.get_by_role("table", name="Usage by agent")).to_contain_text("main")


def test_differences_are_the_shortest_and_areas_are_to_scale(start: Any, enter: Any) -> None:
    """The two pieces of arithmetic in the panels, on thousands of random cases."""
    page = enter(start())
    assert page.evaluate((Path(__file__).parent / "page_arithmetic.js").read_text()) == {"diffs": 0, "areas": 0}


def test_a_message_that_is_stuck_is_sent_again_or_dropped_on_the_page(start: Any, enter: Any) -> None:
    def prepare(services: Any) -> None:
        async def keep() -> None:
            database = Database(services.root / "home.sqlite", "home")
            stuck: list[tuple[str, State, str]] = [("a1", "ambiguous", "cut off"), ("f1", "failed", "no such chat")]
            for name, state, trouble in stuck:
                said = OutboundMessage("telegram", name, f"<b>Hello {name}</b>", "agent:main:main")
                job = Job(
                    name, "delivery:telegram", name, name, Raw(msgspec.json.encode(said)), added_at=NOW, due_at=NOW
                )
                await JobQueue(database).add(msgspec.structs.replace(job, state=state, trouble=trouble))
            await database.close()

        with ThreadPoolExecutor(1) as pool:  # the browser's loop runs in this thread
            pool.submit(asyncio.run, keep()).result()

    services = start(prepare=prepare)
    page = enter(services, "/approvals")
    unsure, failed = (page.get_by_label(f"Message to {name} on telegram") for name in ("a1", "f1"))
    expect(unsure).to_contain_text("may have arrived")
    expect(unsure).to_contain_text("<b>Hello a1</b>")
    expect(unsure).to_contain_text("Cut off.")
    expect(failed).to_contain_text("No such chat.")
    expect(page.get_by_role("tab", name=re.compile("Waiting"))).to_contain_text("2")
    assert nameless(page) == []
    unsure.get_by_role("button", name="Send again").click()
    expect(unsure).to_contain_text("It may arrive twice.")
    unsure.get_by_role("button", name="Send again").click()
    expect(unsure).to_have_count(0)
    failed.get_by_role("button", name="Drop").click()
    expect(failed).to_have_count(0)
    listed = json.loads(services.pal("delivery", "list", "--all", "--json"))["parcels"]
    assert {each["id"]: each["state"] for each in listed} == {"a1": "waiting", "f1": "dropped"}
    assert page.watched.errors == []


def test_a_sender_is_let_in_rejected_and_removed_on_the_page(start: Any, enter: Any) -> None:
    def prepare(services: Any) -> None:
        async def keep() -> None:
            database = Database(services.root / "home.sqlite", "home")
            for sender in ("42", "43"):
                waits = Pairing("telegram", "default", sender, "pending", NOW, f"ABCDEF{sender}", "<b>Eve</b>", NOW)
                await PairingStore(database).change(lambda tx, waits=waits: put_pairing(tx, waits))
            await database.close()

        with ThreadPoolExecutor(1) as pool:  # the browser's loop runs in this thread
            pool.submit(asyncio.run, keep()).result()

    services = start(prepare=prepare)
    page = enter(services, "/approvals")
    card = page.get_by_label("Pairing of 42 on telegram")
    expect(card).to_contain_text("who is called “<b>Eve</b>” there")
    expect(card).to_contain_text("ABCDEF42")
    expect(page.get_by_role("tab", name=re.compile("Waiting"))).to_contain_text("2")
    card.get_by_role("button", name="Let in").click()
    expect(page.get_by_role("table", name="Senders let in")).to_contain_text("42 on telegram")
    services.pal("pairing", "reject", "telegram:43")  # another surface decides, and the page hears of it
    expect(page.get_by_label("Pairing of 43 on telegram")).to_have_count(0)
    press(page, "Remove")
    page.locator(".sure").get_by_role("button", name="Remove", exact=True).first.click()
    expect(page.get_by_role("table", name="Senders let in")).to_have_count(0)
    assert page.watched.errors == []
