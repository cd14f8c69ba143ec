"""The page's own door under attack: codes that are guessed, cookies that are made up, reports without end."""

from __future__ import annotations

import asyncio
import json

import pytest
from besieged import Besieged, siege
from doors import PAGE, routes
from serving import PATIENCE, Visitor, request

pytestmark = pytest.mark.slow

JSON = {"Content_Type": "application/json"}


async def post(here: Besieged, path: str, body: object, **headers: str) -> int:
    said = {"Origin": here.url, **JSON} | headers
    return (await request(here.port, path, method="POST", body=json.dumps(body).encode(), **said)).status


async def test_guessing_codes_is_noise(gateway: Besieged) -> None:
    async with siege(gateway):
        for _ in range(10):
            tries = [post(gateway, "/page/login", {"code": f"guess-{number}"}) for number in range(20)]
            assert set(await asyncio.gather(*tries)) <= {401, 429}


async def test_made_up_cookies_open_nothing(gateway: Besieged) -> None:
    cookie = f"pal-{gateway.port}={gateway.token}; pal-{gateway.port}=pal_x; __Host-pal-{gateway.port}={gateway.token}"
    async with siege(gateway):
        for key in ("", "x" * 10_000, gateway.token):
            headers = {"Cookie": cookie}
            page = await Visitor.arrive(f"{gateway.ws}ws", origin=gateway.url, additional_headers=headers)
            told = await page.connect(auth={"bootstrapToken": key})
            assert told.code in ("UNAUTHORIZED", "RATE_LIMITED")
            await page.leave()
        for verb, path in (("GET", "/metrics"), ("POST", "/tools/invoke")):
            said = {"Cookie": cookie, "Origin": gateway.url, "Sec_Fetch_Site": "same-origin"}
            assert (await request(gateway.port, path, method=verb, body=b"{}", **said, **JSON)).status == 401


async def test_reports_without_end_are_one_line(gateway: Besieged) -> None:
    report = {"csp-report": {"violated-directive": "x" * 5_000, "blocked-uri": "\n\x1b[2J" * 100}}
    async with siege(gateway):
        for _ in range(10):
            told = await asyncio.gather(*(post(gateway, "/page/csp-report", report) for _ in range(20)))
            assert set(told) == {204}
    assert len(gateway.logged("a browser blocked something on the dashboard")) == 1


async def test_no_page_elsewhere_draws_the_page_in_or_asks_its_door(gateway: Besieged) -> None:
    drawn = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"}
    async with siege(gateway):
        for _, verb, path in routes(PAGE):
            asked = path.replace("{key:path}", "x").replace("{name:path}", "app.js")
            for said in ({"Origin": "https://evil.example"}, {"Origin": "null"}, drawn, {"Host": "evil.example"}):
                told = await request(gateway.port, asked, method=verb, body=b"{}", **JSON, **said)
                assert told.status in (403, 421), (path, said)
                assert "set-cookie" not in told.headers


async def test_a_body_that_drips_or_lies_about_its_length_holds_nobody_up(gateway: Besieged) -> None:
    head = f"POST /page/login HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nOrigin: {gateway.url}\r\n"
    async with siege(gateway):
        dripping = []
        for length in ("Content-Length: 100", "Transfer-Encoding: chunked"):
            for _ in range(50):
                reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                writer.write(f"{head}Content-Type: application/json\r\n{length}\r\n\r\n".encode())
                dripping.append((reader, writer))
        large = {"code": "x" * 20_000}
        assert await post(gateway, "/page/login", large) == 413
        for reader, writer in dripping:
            answer = await asyncio.wait_for(reader.read(64), PATIENCE * 2)
            assert b" 408 " in answer or answer == b""
            writer.close()
