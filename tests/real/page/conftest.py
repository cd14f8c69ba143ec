"""A real browser for the page: Debian's Chromium, one for the whole run; each test has a context of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_house import Model, PageHouse

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), "")
PATIENCE_MS = 60_000
playwright.expect.set_options(timeout=PATIENCE_MS)  # only spent when something is wrong

Start = Callable[..., PageHouse]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not CHROMIUM:
        missing = "Chromium is not installed: `make packages` does it on Debian"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    yield made
    made.close()


@pytest.fixture
def start(tmp_path: Path, model: Model) -> Iterator[Start]:
    """Makes a house and starts its gateway; `scripted=False`: with no model but scout."""
    made: list[PageHouse] = []

    def begin(*, scripted: bool = True, prepare: Callable[[PageHouse], None] | None = None, **config: Any) -> PageHouse:
        services = PageHouse(tmp_path / f"house-{len(made)}", model if scripted else None, **config)
        made.append(services)
        if prepare is not None:
            prepare(services)
        services.start()
        return services

    yield begin
    for services in made:
        services.stop()


class Watched:
    """What happened in a browser behind the screen: requests, errors, what the policy refused."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.console: list[str] = []

    def follow(self, page: Any) -> None:
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.console.append(f"{said.type}: {said.text}"))

    @property
    def refused(self) -> list[str]:
        return [line for line in self.console if "Content Security Policy" in line or "TrustedHTML" in line]


Enter = Callable[..., Any]


@pytest.fixture
def enter(browser: Any) -> Iterator[Enter]:
    """Opens a browser window that is logged in, at an address of the page. Its `watched` says what happened."""
    contexts: list[Any] = []

    def come_in(services: PageHouse, address: str = "/", **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.watched = Watched()
        page.watched.follow(page)
        page.goto(services.link())
        page.wait_for_url("**/s/**")
        if address != "/":
            page.goto(services.url + address)
        return page

    yield come_in
    for context in contexts:
        context.close()
