"""Talking by the page: what a person looks for on it, by role and name and not by our own class names."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Locator, Page, expect

ADDRESSES = (
    "/memory",
    "/context",
    "/files",
    "/approvals",
    "/usage",
    "/runs",
    "/subagents",
    "/plugins",
    "/schedule",
    "/channels",
    "/logs",
    "/config",
    "/agents",
    "/welcome",
)
SECONDS = 60_000


class Talk:
    """A conversation on the screen."""

    def __init__(self, page: Page) -> None:
        self.page = page

    @property
    def box(self) -> Locator:
        return self.page.get_by_label("Message", exact=True)

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log")

    def say(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def hears(self, text: str | re.Pattern[str], timeout: float = SECONDS) -> None:
        """The newest words in the conversation hold this."""
        expect(self.log).to_contain_text(text, timeout=timeout)

    def idle(self) -> None:
        """Nothing runs: there is nothing to stop."""
        expect(self.page.get_by_role("button", name="Stop", exact=True)).to_have_count(0, timeout=SECONDS)


def settled(page: Page) -> None:
    """What the place had to ask for has come."""
    page.wait_for_function("() => !document.querySelector('.skeleton, [aria-busy=true]')", timeout=SECONDS)


def marked(page: Page) -> Any:
    return page.evaluate("() => window.__pwned ?? null")
