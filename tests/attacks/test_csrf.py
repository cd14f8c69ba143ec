"""A page elsewhere has a browser speak to the gateway. With authentication off, this is all that stands in its way.

A page can send forms and simple requests without asking, and follow them up with any it was allowed; it cannot forge
Origin, and cannot send application/json without a preflight, which nobody here answers with a yes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from besieged import Besieged, besieged, siege
from doors import methods, routes
from serving import PATIENCE, Visitor, request, upgrade

pytestmark = pytest.mark.slow

FOREIGN = ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost:3000", "https://127.0.0.1:{port}")
SIMPLE = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/json")
MUTATING = routes("write", "approvals", "pairing", "admin")
BODY = b'{"messages": [{"role": "user", "content": "forged"}], "input": "forged", "tool": "session_status"}'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with besieged(tmp_path_factory.mktemp("open"), gateway={"auth": {"mode": "none"}}) as here:
        yield here


async def test_an_open_door_is_open_to_programs_of_this_machine(gateway: Besieged) -> None:
    """Otherwise the rest of this file would show nothing."""
    told = await request(
        gateway.port, "/v1/chat/completions", method="POST", body=BODY, Content_Type="application/json"
    )
    assert told.status == 200
    guest = await Visitor.arrive(gateway.ws)
    assert (await guest.connect()).ok
    async with asyncio.timeout(PATIENCE):  # what is told about the run is written when it is over
        while not (await guest.ask("runs.list")).payload["runs"]:
            await asyncio.sleep(0.01)
    await guest.leave()


async def test_no_route_with_effects_takes_a_request_of_another_page(gateway: Besieged) -> None:
    assert len(MUTATING) >= 4
    async with siege(gateway):
        for _, verb, path in MUTATING:
            for origin in FOREIGN:
                named = origin.replace("{port}", str(gateway.port))
                for kind in (*SIMPLE, "application/json"):
                    told = await request(
                        gateway.port, path, method=verb, body=BODY, Origin=named, Content_Type=kind or "-"
                    )
                    assert told.status == 403, (path, origin, kind)
    assert len(gateway.logged(": 403 in ")) == 1


async def test_no_route_with_effects_takes_a_form(gateway: Besieged) -> None:
    """An old browser, or an extension, that leaves the Origin out."""
    async with siege(gateway):
        for _, verb, path in MUTATING:
            for kind in SIMPLE:
                told = await request(gateway.port, path, method=verb, body=BODY, Content_Type=kind or "-")
                assert told.status == 415, (path, kind)
            for site in ("cross-site", "same-site"):
                said = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "cors", "Content_Type": "application/json"}
                assert (await request(gateway.port, path, method=verb, body=BODY, **said)).status == 403


async def test_no_route_with_effects_is_reached_by_another_verb(gateway: Besieged) -> None:
    """What a link, a picture or a method override can do."""
    override = {"X_HTTP_Method_Override": "POST", "X_Method_Override": "POST", "Content_Type": "application/json"}
    async with siege(gateway):
        for _, _, path in MUTATING:
            for verb in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
                address = f"{path}?_method=POST&message=forged"
                told = await request(gateway.port, address, method=verb, body=BODY, **override)
                assert told.status == 405, (verb, path)


async def test_nobody_is_told_yes_by_a_preflight(gateway: Besieged) -> None:
    own = f"http://127.0.0.1:{gateway.port}"
    async with siege(gateway):
        for _, verb, path in routes():
            for origin in (*FOREIGN, own, "-"):
                asked = {"Access_Control_Request_Method": verb, "Access_Control_Request_Headers": "authorization"}
                asked |= {"Access_Control_Request_Private_Network": "true"}
                told = await request(gateway.port, path, method="OPTIONS", Origin=origin, **asked)
                assert told.status == (405 if origin in (own, "-") else 403)
                allowed = [name for name in told.headers if name.startswith("access-control") or name == "set-cookie"]
                assert allowed == []


async def test_no_answer_can_be_read_framed_or_sniffed_by_another_page(gateway: Besieged) -> None:
    for _, verb, path in routes():
        told = await request(gateway.port, path, method=verb, body=b"{}", Content_Type="application/json")
        assert told.headers["x-content-type-options"] == "nosniff"
        assert told.headers["x-frame-options"] == "DENY"
        assert told.headers["cross-origin-resource-policy"] == "same-origin"
        assert told.headers["cache-control"] == "no-store"
        assert not [name for name in told.headers if name.startswith("access-control") or name == "set-cookie"]


async def test_no_method_is_reached_by_the_socket_of_another_page(gateway: Besieged) -> None:
    """The upgrade is refused, so none of them can be called; and none is a route of HTTP."""
    async with siege(gateway):
        for origin in FOREIGN:
            named = origin.replace("{port}", str(gateway.port))
            for path in ("/", "/ws", "//", "/ws/", "/%77s"):
                told = await upgrade(gateway.port, Path=path, Origin=named)
                assert told.status in (400, 403), (origin, path)
        served = {path for _, _, path in routes()}
        for _, name in methods("write", "approvals", "pairing", "admin"):
            for path in {f"/{name}", f"/{name.replace('.', '/')}", f"/ws/{name}"} - served:
                told = await request(gateway.port, path, method="POST", body=BODY, Content_Type="application/json")
                assert told.status == 404, path
