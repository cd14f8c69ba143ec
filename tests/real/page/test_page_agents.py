"""Agents on the page: each with its picture, which comes through the gateway and from nowhere else."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

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
