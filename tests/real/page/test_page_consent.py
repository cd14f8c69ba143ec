"""The page on which the owner lets a program in to /mcp, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from page_house import PageHouse
from playwright.sync_api import expect

CALLBACK = "http://127.0.0.1:7777/callback"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"  # both of RFC 7636
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
pytestmark = pytest.mark.real


@pytest.fixture
def http() -> Any:
    with httpx2.Client(trust_env=False, timeout=60) as client:
        yield client


def asks(services: PageHouse, http: Any, name: str = "A <b>program</b>") -> dict[str, str]:
    metadata = {"client_name": name, "redirect_uris": [CALLBACK]}
    client_id = http.post(f"{services.url}/mcp/register", json=metadata).json()["client_id"]
    return {
        "response_type": "code", "client_id": client_id, "redirect_uri": CALLBACK, "state": "s",
        "code_challenge": CHALLENGE, "code_challenge_method": "S256", "scope": "read write approvals",
    }  # fmt: skip


def answer(page: Any) -> dict[str, list[str]]:
    page.wait_for_url(f"{CALLBACK}?**")
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.shows("Chromium", "the page of the consent to an MCP client")
def test_the_owner_lets_a_program_in_with_fewer_rights(
    start: Callable[..., PageHouse], enter: Callable[..., Any], http: Any
) -> None:
    services = start(scripted=False)
    asked = asks(services, http)
    page = enter(services)
    page.route(f"{CALLBACK}**", lambda route: route.fulfill(body="done"))
    page.goto(f"{services.url}/mcp/authorize?{urlencode(asked)}")
    expect(page.locator("#name")).to_have_text("A <b>program</b>")
    expect(page.locator("#to")).to_have_text(CALLBACK)
    page.get_by_label("answer approvals for you").uncheck()
    page.get_by_role("button", name="Allow").click()
    told = answer(page)
    assert (told["state"], told["iss"]) == (["s"], [services.url])
    form = {
        "grant_type": "authorization_code", "code": told["code"][0], "client_id": asked["client_id"],
        "redirect_uri": CALLBACK, "code_verifier": VERIFIER,
    }  # fmt: skip
    assert http.post(f"{services.url}/mcp/token", data=form).json()["scope"] == "read write"
    page.goto(f"{services.url}/mcp/authorize?{urlencode(asked)}")
    page.get_by_role("button", name="Deny").click()
    assert answer(page)["error"] == ["access_denied"]
    assert (page.watched.errors, page.watched.refused) == ([], [])


def test_a_browser_that_is_not_logged_in_needs_the_token(
    start: Callable[..., PageHouse], browser: Any, http: Any
) -> None:
    services = start(scripted=False)
    token = (services.root / "gateway.token").read_text().strip()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.route(f"{CALLBACK}**", lambda route: route.fulfill(body="done"))
        page.goto(f"{services.url}/mcp/authorize?{urlencode(asks(services, http))}")
        expect(page.locator("#ask")).to_be_hidden()
        page.get_by_label("Token of the gateway").fill("wrong")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#said")).to_contain_text("credential")
        page.get_by_label("Token of the gateway").fill(token)
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Allow").click()
        assert "code" in answer(page)
        page.goto(f"{services.url}/mcp/authorize?client_id=forged&redirect_uri=https://evil.example/")
        page.get_by_label("Token of the gateway").fill(token)
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#said")).to_contain_text("not known here")
        expect(page.locator("#ask")).to_be_hidden()
    finally:
        context.close()
