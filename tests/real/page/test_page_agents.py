"""Agents on the page: each with its picture, which comes through the gateway and from nowhere else."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.real

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
AGENTS = {
    "agents": {
        "defaults": {"model": "wire/test"},
        "list": [
            {"id": "main", "default": True, "identity": {"name": "Ada", "avatar": "me.png"}},
            {"id": "work", "name": "Work", "identity": {"emoji": "🔧", "avatar": "http://127.0.0.1:9/far.png"}},
        ],
    }
}


def test_a_picture_in_the_workspace_is_shown_and_an_address_is_not_asked(start: Any, enter: Any) -> None:
    def prepare(services: Any) -> None:
        (services.workspace / "me.png").write_bytes(DOT)

    page = enter(start(prepare=prepare, **AGENTS))
    people = page.get_by_role("navigation", name="Agents and sessions").locator(".rail-agents a")
    expect(people).to_have_count(2)
    expect(people.nth(0)).to_contain_text("Ada")
    expect(people.nth(0).locator("img")).to_have_js_property("naturalWidth", 1)
    expect(people.nth(1)).to_contain_text("🔧")
    expect(people.nth(1).locator("img")).to_have_count(0)
    assert not [url for url in page.watched.requests if "127.0.0.1:9/" in url]
    assert page.watched.errors == []
    assert page.watched.refused == []


def test_an_agent_is_added_described_made_default_and_removed(start: Any, enter: Any) -> None:
    services = start(agents={"defaults": {"model": "wire/test"}})
    page = enter(services, "/agents")
    page.get_by_label("Name", exact=True).last.fill("Sea Captain")
    page.get_by_label("Template").select_option("coder")
    page.get_by_role("button", name="Add agent").click()
    captain = page.get_by_role("region", name="Sea Captain")
    expect(captain).to_be_visible()
    people = page.get_by_role("navigation", name="Agents and sessions").locator(".rail-agents a")
    expect(people).to_have_count(2)
    expect(page.get_by_role("status").filter(has_text="workspace-sea-captain")).to_be_visible()

    captain.get_by_role("button", name="Edit").click()
    captain.get_by_label("Emoji").fill("⚓")
    captain.get_by_label("Vibe").fill("salty")
    captain.get_by_role("button", name="Save").click()
    named = page.get_by_role("region", name="⚓ Sea Captain")
    expect(named).to_contain_text("salty")
    expect(people.nth(1)).to_contain_text("⚓")

    named.get_by_role("button", name="Make default").click()
    expect(named.get_by_text("Default", exact=True)).to_be_visible()
    main = page.get_by_role("region", name="main")
    main.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    main.get_by_role("button", name="Make default").click()
    expect(main.get_by_text("Default", exact=True)).to_be_visible()

    people.nth(1).click()
    page.wait_for_url("**/s/agent:sea-captain:main")
    page.goto(services.url + "/agents")
    named.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(named).to_have_count(0)
    expect(people.nth(0)).to_be_hidden()

    page.get_by_label("Name", exact=True).last.fill("!!!")
    page.get_by_role("button", name="Add agent").click()
    expect(page.get_by_role("alert")).to_contain_text("No id can be made of")
    assert page.watched.errors == []
    assert page.watched.refused == []
