"""Screenshots for the docs: taken by `SCREENSHOTS=1 pytest tests/real/page/test_page_shots.py` into docs/dashboard/.

Without the variable they are taken all the same, to see that nothing in them is empty or huge.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from page_lived import lived_in
from page_talk import Talk, settled
from playwright.sync_api import expect

from support.behaviours import Calls, Says

pytestmark = pytest.mark.real

DOCS = Path(__file__).parents[3] / "docs" / "dashboard"
MOST_BYTES = 150_000
WIDE = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
COUNTED = {"prompt_tokens": 8_460, "completion_tokens": 12, "prompt_tokens_details": {"cached_tokens": 7_900}}
ASKING = {"agents": {"defaults": {"model": "wire/test", "sandbox": {"mode": "off"}}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = DOCS if os.environ.get("SCREENSHOTS") else tmp_path / "shots"
    place.mkdir(parents=True, exist_ok=True)
    return place


def shoot(page: Any, folder: Path, name: str) -> None:
    settled(page)
    page.evaluate("() => document.fonts.ready")
    file = folder / f"{name}.png"
    page.screenshot(path=file, animations="disabled", caret="hide")
    assert 8_000 < file.stat().st_size <= MOST_BYTES, f"{name}: {file.stat().st_size:,} bytes"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_light_and_dark(start: Any, enter: Any, model: Any, folder: Path, scheme: str) -> None:
    services = start(prepare=lived_in, **ASKING)
    page = enter(services, color_scheme=scheme, **WIDE)
    talk = Talk(page)
    talk.hears("Three things are on today")
    shoot(page, folder, f"chat-{scheme}")
    model.says(Calls(("exec", {"command": "git -C ~/boats pull --rebase"})), Says("Done.", usage=COUNTED))
    talk.say("Fetch the newest tide tables, please.")
    expect(page.get_by_role("button", name=re.compile("Allow once")).first).to_be_visible()
    shoot(page, folder, f"approval-{scheme}")
    page.get_by_role("button", name=re.compile("^Deny")).first.click()
    talk.hears("Done.")
    for name, address in (
        ("memory", "/memory?q=where does the boat lie"),
        ("context", "/context"),
        ("usage", "/usage"),
        ("files", "/files?path=SOUL.md"),
    ):
        page.goto(services.url + address)
        page.wait_for_selector(".panel")
        shoot(page, folder, f"{name}-{scheme}")


def test_the_page_on_a_phone(start: Any, enter: Any, folder: Path) -> None:
    services = start(prepare=lived_in)
    page = enter(services, **PHONE)
    Talk(page).hears("Three things are on today")
    shoot(page, folder, "chat-phone")
    page.get_by_role("button", name="Agents and sessions").click()
    shoot(page, folder, "rail-phone")


def test_the_first_run(start: Any, enter: Any, folder: Path) -> None:
    services = start(scripted=False)
    page = enter(services, "/welcome", **WIDE)
    page.wait_for_selector(".choices")
    shoot(page, folder, "welcome-light")
