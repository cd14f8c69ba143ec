"""Host and Origin, on HTTP and on the upgrade: pages elsewhere and names that were made to point here get nothing."""

from __future__ import annotations

import asyncio

import pytest
from besieged import Besieged, exchange, siege, statuses
from serving import Visitor, request, upgrade

from palinurus.gateway.auth.guard import server_address
from palinurus.gateway.protocol import Refused

pytestmark = pytest.mark.slow

# {port} is ours. A name that somebody else owns may resolve to 127.0.0.1; what counts is that we are not called so.
GOOD_HOSTS = ("127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "LocalHost:{port}", "[::1]:{port}")
WRONG_HOSTS = (
    "rebound.example",
    "rebound.example:{port}",
    "127.0.0.1.rebound.example:{port}",
    "127-0-0-1.rebound.example:{port}",
    "localhost.rebound.example:{port}",
    "rebound.localhost:{port}",
    "localhost.:{port}",
    "127.0.0.1.:{port}",
    "localhost",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1:{port}0",
    "127.0.0.1:0{port}",
    "127.0.0.1:{port}:{port}",
    "127.1:{port}",
    "2130706433:{port}",
    "0x7f000001:{port}",
    "0177.0.0.1:{port}",
    "0.0.0.0:{port}",
    "127.0.0.2:{port}",
    "192.168.1.5:{port}",
    "[::]:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "[0:0:0:0:0:0:0:1]:{port}",
    "[::1%25lo]:{port}",
    "::1:{port}",
    "[::1]",
    "user@127.0.0.1:{port}",
    "user:secret@127.0.0.1:{port}",
    "127.0.0.1:{port}@rebound.example",
    "rebound.example#127.0.0.1:{port}",
    "rebound.example/127.0.0.1:{port}",
    "127.0.0.1:{port}/",
    "127.0.0.1:{port},rebound.example",
    "127.0.0.1:{port} rebound.example",
    "http://127.0.0.1:{port}",
    "xn--lcalhost-75a:{port}",
    "l\xf6calhost:{port}",
    "\xef\xbd\x8cocalhost:{port}",
    "*",
    "null",
    "-",
)  # "-" is left out altogether
GOOD_ORIGINS = ("http://127.0.0.1:{port}", "http://localhost:{port}", "http://[::1]:{port}", "HTTP://LOCALHOST:{port}")
WRONG_ORIGINS = (
    "https://evil.example",
    "http://evil.example:{port}",
    "http://127.0.0.1.evil.example:{port}",
    "http://localhost.evil.example:{port}",
    "http://evil.example/http://127.0.0.1:{port}",
    "http://127.0.0.1:{port}@evil.example",
    "http://user@127.0.0.1:{port}",
    "http://127.0.0.1:{port}.evil.example",
    "http://127.0.0.1:{port}/",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "http://127.0.0.1:{port}0",
    "https://127.0.0.1:{port}",
    "ws://127.0.0.1:{port}",
    "http://0.0.0.0:{port}",
    "http://localhost.:{port}",
    "http://127.0.0.1:{port} https://evil.example",
    "http://127.0.0.1:{port}, https://evil.example",
    "127.0.0.1:{port}",
    "null",
    "file://",
    "chrome-extension://abcdefghijklmnop",
    "vscode-webview://abc",
    "*",
)


async def test_requests_that_name_another_host_or_come_from_another_page_get_nothing(gateway: Besieged) -> None:
    port, said = gateway.port, {"Authorization": f"Bearer {gateway.token}"}
    async with siege(gateway):
        for host in WRONG_HOSTS:
            named = host.replace("{port}", str(port))
            told = await request(port, "/v1/models", host=named, **said)
            assert (told.status, told.json["code"]) == (421, "WRONG_HOST"), host
            assert (await request(port, "/healthz", host=named)).status == 421, host  # open, and still not for them
        for origin in WRONG_ORIGINS:
            named = origin.replace("{port}", str(port))
            told = await request(port, "/v1/models", Origin=named, **said)
            assert (told.status, told.json["code"]) == (403, "WRONG_ORIGIN"), origin
            assert not [name for name in told.headers if name.startswith("access-control")]
    assert gateway.logged(": 421 in ")  # and not twice: that is for `siege` to see
    assert gateway.logged(": 403 in ")


async def test_the_upgrade_is_refused_to_them_as_well(gateway: Besieged) -> None:
    port = gateway.port
    async with siege(gateway):
        for path in ("/", "/ws"):
            for host in WRONG_HOSTS[:-1]:
                named = host.replace("{port}", str(port))
                assert (await upgrade(port, Path=path, Host=named)).status == 421, host
            for origin in WRONG_ORIGINS:
                named = origin.replace("{port}", str(port))
                assert (await upgrade(port, Path=path, Origin=named)).status == 403, origin


async def test_our_own_names_and_pages_come_in(gateway: Besieged) -> None:
    port, said = gateway.port, {"Authorization": f"Bearer {gateway.token}"}
    for host in GOOD_HOSTS:
        named = host.replace("{port}", str(port))
        assert (await request(port, "/v1/models", host=named, **said)).status == 200
        assert (await upgrade(port, Host=named)).status == 101
    for origin in GOOD_ORIGINS:
        named = origin.replace("{port}", str(port))
        assert (await request(port, "/v1/models", Origin=named, **said)).status == 200
        assert (await upgrade(port, Origin=named)).status == 101


async def test_a_program_has_no_origin_and_comes_in_by_its_token_alone(gateway: Besieged) -> None:
    assert (await upgrade(gateway.port)).status == 101
    guest = await gateway.guest()
    assert (await guest.ask("health")).ok
    await guest.leave()
    nobody = await Visitor.arrive(gateway.ws, additional_headers={"Cookie": f"token={gateway.token}"})
    assert (await nobody.connect()).code == "UNAUTHORIZED"
    await nobody.closed()
    bearer = await Visitor.arrive(gateway.ws, additional_headers={"Authorization": f"Bearer {gateway.token}"})
    assert (await bearer.connect()).code == "UNAUTHORIZED"  # on a socket the credential is in the connect frame
    await bearer.closed()


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization"])
async def test_a_request_with_two_of_them_is_refused(gateway: Besieged, name: str) -> None:
    good = {
        "Host": f"127.0.0.1:{gateway.port}",
        "Origin": f"http://127.0.0.1:{gateway.port}",
        "Authorization": f"Bearer {gateway.token}",
    }
    bad = {"Host": "evil.example", "Origin": "https://evil.example", "Authorization": "Bearer wrong"}
    for second in (good[name], bad[name]):
        lines = [*(f"{key}: {value}" for key, value in good.items()), f"{name}: {second}", "Connection: close"]
        for order in (lines, lines[::-1]):
            head = "\r\n".join(["GET /v1/models HTTP/1.1", *order, "", ""])
            assert statuses(await exchange(gateway.port, head.encode())) == [400]


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/v1/models",
        "http://127.0.0.1/v1/models",
        "https://x@y/v1/models",
        "//evil.example",
        "*",
        "x:1",
    ],
)
async def test_only_a_path_is_a_target(gateway: Besieged, target: str) -> None:
    head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nConnection: close\r\n\r\n"
    assert statuses(await exchange(gateway.port, head.encode())) in ([400], [404])


async def test_the_ipv6_loopback_is_this_machine_too(gateway: Besieged) -> None:
    try:
        told = await request(gateway.port, "/healthz", host=f"[::1]:{gateway.port}", address="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert told.status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "same-origin", "websocket", "navigate", ""])
async def test_what_a_page_elsewhere_draws_in_without_an_origin_is_refused(
    gateway: Besieged, site: str, mode: str
) -> None:
    """<img>, <script> and frames send no Origin; a browser says all the same where they come from."""
    said = {"Authorization": f"Bearer {gateway.token}", "Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode or "-"}
    assert (await request(gateway.port, "/v1/models", **said, Sec_Fetch_Dest="iframe")).status == 403
    visit = await request(gateway.port, "/healthz", **said, Sec_Fetch_Dest="document")
    assert visit.status == (200 if mode == "navigate" else 403)  # somebody who follows a link
    assert visit.headers["cross-origin-resource-policy"] == "same-origin"


def test_on_a_network_names_stay_refused_and_addresses_are_welcome() -> None:
    """Bound to all addresses: any address is ours, and no name is that DNS could be made to say."""
    place = server_address(8, ["pal.lan"], any_address=True)
    for host in ("192.168.1.5:8", "[fe80::1]:8", "127.0.0.1:8", "pal.lan", "pal.lan:8"):
        place.check({"host": host, "origin": f"http://{host}"})
    for host in ("rebound.example:8", "192.168.1.5.rebound.example:8", "192.168.1.5", "192.168.1.5:9", "localhost.:8"):
        with pytest.raises(Refused, match="does not have the name"):
            place.check({"host": host})
    for origin in ("http://192.168.1.6:8", "http://rebound.example:8", "https://192.168.1.5:8", "null"):
        with pytest.raises(Refused, match="may not use"):
            place.check({"host": "192.168.1.5:8", "origin": origin})


async def test_a_thousand_rebound_requests_at_once_are_one_line_and_no_stall(gateway: Besieged) -> None:
    async with siege(gateway):
        for _ in range(10):
            asked = (request(gateway.port, "/v1/models", host="rebound.example") for _ in range(100))
            assert {told.status for told in await asyncio.gather(*asked)} == {421}
