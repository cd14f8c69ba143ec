"""How a browser comes in: a code for a cookie and a key, and what neither of them is good for."""

from __future__ import annotations

import json

import pytest
from browsing import JSON, Browser
from serving import Visitor, configure, request, running, upgrade

from palinurus.config.home import Home
from palinurus.gateway.auth.guard import GUESSES, MOST_CODES, LoginCodes, cookie_name, set_cookie
from palinurus.operations.gateway import list_devices
from palinurus.testing.fakes import FakeClock

ALL = {"operator.read", "operator.write", "operator.approvals", "operator.pairing", "operator.admin"}


async def test_a_code_lets_one_browser_in_that_may_then_do_everything(browser: Browser) -> None:
    told = await browser.login(User_Agent="Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
    assert told.status == 200
    cookie = told.headers["set-cookie"]
    assert cookie.startswith(f"pal-{browser.here.port}=pal_")
    assert cookie.endswith("; Max-Age=2592000; Path=/; HttpOnly; SameSite=Strict")
    page = await browser.open()
    assert page.hello is not None
    assert set(page.hello.payload["auth"]["scopes"]) == ALL
    devices = (await page.ask("devices.list")).payload["devices"]
    assert [(each["name"], each["kind"], each["status"]) for each in devices] == [
        ("Firefox on Linux", "browser", "paired")
    ]
    assert browser.cookie.partition("=")[2] not in json.dumps(devices)
    await page.leave()


async def test_a_code_is_good_once(browser: Browser) -> None:
    code = browser.code()
    assert (await browser.login(code)).status == 200
    again = await browser.login(code)
    assert (again.status, again.json["code"]) == (401, "UNAUTHORIZED")
    assert "set-cookie" not in again.headers


def test_a_code_is_good_for_five_minutes_and_cannot_be_guessed(clock: FakeClock) -> None:
    codes = LoginCodes(clock)
    early, until = codes.make(("read",))
    assert until - clock.now_ms() == 300_000
    assert len(early) == 22  # 128 bits
    late, _ = codes.make(("read",))
    clock.advance(minutes=4, seconds=59)
    assert codes.take(early) == ("read",)
    clock.advance(seconds=1)
    assert codes.take(late) == ()
    assert codes.take("") == ()


def test_of_codes_that_nobody_uses_only_the_newest_are_kept(clock: FakeClock) -> None:
    codes = LoginCodes(clock)
    made = [codes.make(("read",))[0] for _ in range(MOST_CODES + 1)]
    assert codes.take(made[0]) == ()
    assert codes.take(made[1]) == ("read",)


async def test_wrong_codes_are_counted_and_a_right_one_still_passes(browser: Browser) -> None:
    statuses = [(await browser.login(f"guess-{number}")).status for number in range(GUESSES + 2)]
    assert statuses == [401] * GUESSES + [429] * 2
    assert (await browser.login()).status == 200
    assert (await request(browser.here.port, "/v1/models", Authorization="Bearer wrong")).status == 429


@pytest.mark.parametrize("path", ["/login?code=x", "/page/login?code=x", "/login?CODE=", "/page/login?token=x"])
async def test_a_code_in_the_address_is_refused(browser: Browser, path: str) -> None:
    method = "POST" if path.startswith("/page") else "GET"
    told = await request(browser.here.port, path, method=method, body=b"{}", Origin=browser.origin, **JSON)
    assert (told.status, told.json["code"]) == (400, "TOKEN_IN_URL")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "-"},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:{port}"},  # a page of ours, but not this one
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "-", "Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "cross-site", "Origin": "-"},
    ],
)
async def test_only_the_page_itself_can_use_a_code_or_end_a_session(browser: Browser, headers: dict[str, str]) -> None:
    said = {name: value.replace("{port}", str(browser.here.port)) for name, value in headers.items()}
    code = browser.code()
    await browser.login()
    for path in ("/page/login", "/page/logout"):
        told = await browser.post(path, {"code": code}, **said)
        assert (told.status, told.json["code"]) == (403, "WRONG_ORIGIN")
        assert "set-cookie" not in told.headers
    assert (await browser.open()).hello.ok  # type: ignore[union-attr]  # connected above
    assert (await browser.login(code)).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "-"])
async def test_a_form_is_no_login(browser: Browser, kind: str) -> None:
    assert (await browser.login(Content_Type=kind)).status == 415


async def test_a_name_that_was_made_to_point_here_gets_nothing(browser: Browser) -> None:
    await browser.login()
    rebound = f"evil.example:{browser.here.port}"
    said = {"Cookie": browser.cookie, "Origin": f"http://{rebound}"}
    for path in ("/", "/page/login.js"):
        assert (await request(browser.here.port, path, host=rebound, Cookie=browser.cookie)).status == 421
    told = await request(
        browser.here.port, "/page/login", method="POST", host=rebound, body=b'{"code": "x"}', **said, **JSON
    )
    assert told.status == 421
    assert (await upgrade(browser.here.port, Path="/ws", Host=rebound, **said)).status == 421


async def test_the_cookie_does_not_count_on_a_socket_of_another_page(browser: Browser) -> None:
    await browser.login()
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        assert (await upgrade(browser.here.port, Path="/ws", Origin=origin, Cookie=browser.cookie)).status == 403
    other = await browser.open(origin=f"http://localhost:{browser.here.port}")
    assert other.hello is not None
    assert other.hello.detail == "AUTH_TOKEN_MISSING"
    bare = await Visitor.arrive(f"ws://127.0.0.1:{browser.here.port}/ws", additional_headers={"Cookie": browser.cookie})
    assert (await bare.connect(auth={"bootstrapToken": browser.key})).detail == "AUTH_TOKEN_MISSING"


async def test_the_cookie_is_nothing_without_the_key_of_the_page(browser: Browser) -> None:
    """Browsers send a cookie to every port of a machine; whoever listens at another one must not come in by it."""
    await browser.login()
    for key in ("", "wrong", browser.cookie.partition("=")[2]):
        assert (await browser.open(key=key)).hello.detail == "AUTH_TOKEN_MISMATCH"  # type: ignore[union-attr]
    key, browser.cookie = browser.key, ""
    assert (await browser.open(key=key)).hello.detail == "AUTH_TOKEN_MISSING"  # type: ignore[union-attr]


async def test_the_secret_of_a_cookie_is_no_token(browser: Browser) -> None:
    await browser.login()
    secret = browser.cookie.partition("=")[2]
    for bearer in (secret, browser.key):
        told = await request(browser.here.port, "/v1/models", Authorization=f"Bearer {bearer}")
        assert told.status == 401
    for auth in ({"token": secret}, {"deviceToken": secret}, {"password": secret}):
        guest = await Visitor.arrive(browser.here.ws)
        assert (await guest.connect(auth={"bootstrapToken": browser.key, **auth})).detail == "AUTH_TOKEN_MISMATCH"


async def test_no_other_route_looks_at_cookies(browser: Browser) -> None:
    await browser.login()
    said = {"Cookie": browser.cookie, "Origin": browser.origin, "Sec_Fetch_Site": "same-origin"}
    assert (await request(browser.here.port, "/metrics", **said)).status == 401
    for path in ("/v1/chat/completions", "/v1/responses", "/tools/invoke"):
        assert (await request(browser.here.port, path, method="POST", body=b"{}", **said, **JSON)).status == 401


async def test_a_browser_that_is_revoked_is_out_at_once(browser: Browser) -> None:
    await browser.login()
    page = await browser.open()
    [device] = browser.here.register.devices()
    await browser.here.register.revoke_device(device.code)
    assert await page.closed() == (1008, "this credential is no longer valid")
    assert (await browser.open()).hello.detail == "AUTH_TOKEN_MISMATCH"  # type: ignore[union-attr]
    assert browser.here.register.devices() == []


async def test_all_browsers_and_codes_die_with_the_owners_secret(browser: Browser, home: Home) -> None:
    await browser.login()
    page = await browser.open()
    waiting = browser.code()
    (home.root / "gateway.token").write_text("pal_another-secret-of-the-owner-entirely\n")
    assert await page.closed() == (1008, "this credential is no longer valid")
    assert (await browser.login(waiting)).status == 401
    assert (await browser.open()).hello.detail == "AUTH_TOKEN_MISMATCH"  # type: ignore[union-attr]


async def test_a_browser_stays_in_when_the_gateway_is_started_again(home: Home) -> None:
    async with running(home) as first:
        before = Browser(first)
        await before.login()
    async with running(home) as second:
        after = Browser(second)
        after.cookie = f"pal-{second.port}={before.cookie.partition('=')[2]}"
        after.key = before.key
        assert (await after.open()).hello.ok  # type: ignore[union-attr]


async def test_a_session_ends_after_thirty_days(home: Home) -> None:
    async with running(home) as here:
        clock = FakeClock()
        here.register._clock = clock
        browser = Browser(here)
        await browser.login()
        clock.advance(days=29, hours=23)
        page = await browser.open()
        assert page.hello is not None
        assert page.hello.ok
        clock.advance(hours=2)
        assert (await page.ask("status")).code == "UNAUTHORIZED"
        assert (await browser.open()).hello.detail == "AUTH_TOKEN_MISMATCH"  # type: ignore[union-attr]
        assert here.register.devices() == []


async def test_logging_out_ends_the_session_and_takes_the_cookie(browser: Browser) -> None:
    await browser.login()
    page = await browser.open()
    told = await browser.post("/page/logout")
    assert told.status == 200
    assert f"pal-{browser.here.port}=; Max-Age=0;" in told.headers["set-cookie"]
    assert await page.closed() == (1008, "this credential is no longer valid")
    assert (await browser.post("/page/logout")).status == 200


async def test_a_browser_that_comes_in_again_is_one_browser(browser: Browser) -> None:
    await browser.login()
    await browser.login()
    assert len(browser.here.register.devices()) == 1
    assert (await browser.open()).hello.ok  # type: ignore[union-attr]
    assert len((await list_devices(browser.here.runtime.services)).devices) == 1


async def test_the_secret_of_a_browser_cannot_be_made_into_a_token(browser: Browser) -> None:
    await browser.login()
    page = await browser.open()
    [token] = (await page.ask("gateway.tokens.list")).payload["tokens"]
    assert (await page.ask("gateway.tokens.rotate", token=token["id"])).code == "INVALID_REQUEST"
    assert (await page.ask("device.token.rotate", deviceId=token["deviceId"])).code == "INVALID_REQUEST"
    assert (await browser.open()).hello.ok  # type: ignore[union-attr]


async def test_a_link_may_grant_less_than_everything(browser: Browser) -> None:
    url = browser.here.gateway.link(scopes=("read",)).url
    await browser.login(url.partition("#code=")[2])
    page = await browser.open()
    assert page.hello is not None
    assert page.hello.payload["auth"]["scopes"] == ["operator.read"]
    assert (await page.ask("config.get")).code == "FORBIDDEN"


async def test_with_an_open_door_nobody_needs_a_code(home: Home) -> None:
    configure(home, gateway={"auth": {"mode": "none"}})
    async with running(home) as here:
        assert here.gateway.link().url == f"{here.gateway.url}/"
        assert (await Browser(here).open()).hello.ok  # type: ignore[union-attr]
        assert (await upgrade(here.port, Path="/ws", Origin="http://evil.example")).status == 403


async def test_what_a_stranger_sends_is_small(browser: Browser) -> None:
    told = await browser.post("/page/login", {"code": "x" * 20_000})
    assert told.status == 413
    assert (await browser.post("/page/login", {"code": 1})).status == 400
    assert (await browser.post("/page/login", {})).status == 400


async def test_what_a_browser_forbids_the_page_is_told_once(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    report = {"csp-report": {"violated-directive": "script-src", "blocked-uri": "inline\x1b[31m?secret"}}
    for _ in range(3):
        assert (await browser.post("/page/csp-report", report, Content_Type="application/csp-report")).status == 204
    told = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert told == ["a browser blocked something on the dashboard: script-src inline[31m - (0 more before)"]
    for body in ([1], "x", {"csp-report": 1}, {"else": {}}):
        assert (await browser.post("/page/csp-report", body)).status == 400


def test_behind_a_proxy_with_tls_the_cookie_is_for_secure_pages_only() -> None:
    assert cookie_name("https://pal.example") == "__Host-pal"
    assert cookie_name("HTTPS://192.168.1.5:18791") == "__Host-pal-18791"
    assert set_cookie("https://pal.example", "x").endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
