"""Subagents on the dashboard: a tree that follows what they do, from which one is opened, steered and stopped."""

from __future__ import annotations

import os
from typing import Any

import pytest
from page_talk import Talk
from playwright.sync_api import expect

from support.behaviours import Behaviour, Calls, Json, Says

pytestmark = pytest.mark.real
SPAWN = [("sessions_spawn", {"task": f"read the {name} offer", "label": f"{name} offer"}) for name in ("red", "blue")]


def test_subagents_are_seen_while_they_work_steered_and_stopped(start: Any, enter: Any, model: Any) -> None:
    def answer(body: Json) -> Behaviour:
        text = str(body["messages"][-1]["content"])
        if "You are a subagent" in str(body["messages"][0]["content"]):
            return Says("The red one costs 12.") if "red" in text else Says("never", delay=60.0)
        return Calls(*SPAWN) if "compare" in text else Says("They are at work.")

    model.otherwise(answer)
    services = start()
    page = enter(services)
    Talk(page).say("compare the offers")
    Talk(page).hears("They are at work.")
    page.goto(services.url + "/subagents")
    red, blue = (page.locator("[data-subagent]").filter(has_text=f"{name} offer") for name in ("red", "blue"))
    expect(red).to_contain_text("success")
    expect(red).to_contain_text("The red one costs 12.")
    expect(blue).to_contain_text("running")
    if folder := os.environ.get("PAGE_SHOTS"):
        page.screenshot(path=f"{folder}/subagents.png")
    blue.get_by_label("Message to blue offer").fill("hurry up")
    blue.get_by_role("button", name="Send").click()
    expect(blue.get_by_label("Message to blue offer")).to_have_value("")
    blue.get_by_role("button", name="Stop").click()
    blue.get_by_role("button", name="Stop").last.click()
    expect(blue).to_contain_text("stopped")
    blue.get_by_role("link", name="blue offer").click()
    page.wait_for_url("**/s/agent:main:subagent:**")
    assert page.watched.errors == []
    assert page.watched.refused == []
