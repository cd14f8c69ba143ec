"""Logins at MCP servers that want one: our client on our own gateway, and on servers that lie."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp_clients import Flow, address
from serving import PATIENCE, Running

from palinurus.config.home import Home
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.extensions.mcp.connection import load_package
from palinurus.extensions.mcp.logins import FILE, ServerLogins, check_address, log_in
from palinurus.extensions.mcp.servers import McpServers
from palinurus.extensions.mcp.settings import ServerSettings

CLOCK = SystemClock()


@pytest.fixture(scope="module", autouse=True)
def _client_library() -> None:
    import mcp.client.auth
    import mcp.client.streamable_http  # noqa: F401  takes long, and that is not ours


@pytest.fixture
def guest(tmp_path: Path) -> Home:
    """The home of another pal, whose agent uses the gateway."""
    root = tmp_path / "guest"
    root.mkdir()
    return Home(root, root / "palinurus.json", user_home=tmp_path)


@pytest.fixture
def logins(guest: Home) -> ServerLogins:
    return ServerLogins(guest, CLOCK, lambda: "")


@pytest.fixture
async def servers(guest: Home, logins: ServerLogins, served: Running) -> AsyncIterator[McpServers]:
    await load_package()
    made = McpServers([of(served)], guest.root / "listings", CLOCK, first_seconds=60.0, logins=logins)
    yield made
    await made.close()


def of(served: Running) -> ServerSettings:
    return ServerSettings("far", url=address(served), timeout_seconds=60.0)


def person(served: Running, tasks: list[asyncio.Task[None]]) -> Callable[[str, str], None]:
    """Who opens the address, says yes, and is sent back."""

    async def allow(where: str) -> None:
        told = await Flow(served).consent(urlsplit(where).query, allow=True, scopes=["read", "write"])
        async with httpx2.AsyncClient(trust_env=False) as browser:
            assert (await browser.get(told.json["redirect"])).status_code == 200

    return lambda where, _: tasks.append(asyncio.create_task(allow(where)))


async def log_in_as_a_person(served: Running, logins: ServerLogins) -> None:
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.timeout(PATIENCE):
        await log_in(of(served), logins, CLOCK, person(served, tasks))
        await asyncio.gather(*tasks)


async def test_an_agent_uses_a_server_after_a_login(
    served: Running, servers: McpServers, logins: ServerLogins, guest: Home
) -> None:
    with pytest.raises(PalinurusError, match=r"it wants a login.*pal mcp login far"):
        await servers.test("far")
    await log_in_as_a_person(served, logins)
    path = guest.root / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (await servers.test("far")).state == "connected"
    tools = {tool.spec.name for tool in await servers.tools()}
    assert {"far__message_send", "mcp__read_resource"} <= tools
    (program,) = [each for each in served.register.devices() if each.kind == "program"]
    assert program.name == "Palinurus"
    before = await logins.token(of(served))

    await served.register.revoke_token(
        next(each.id for each in served.register.tokens() if each.audience == address(served))
    )
    assert (await servers.test("far")).state == "connected"  # a refused token is renewed
    assert await logins.token(of(served)) != before

    await served.register.revoke_device(program.id)
    with pytest.raises(PalinurusError, match=r"its login has ended.*pal mcp login far"):
        await servers.test("far")
    logins.remove("far")
    assert await logins.token(of(served)) == ""


async def test_a_login_counts_only_for_its_address(served: Running, logins: ServerLogins) -> None:
    await log_in_as_a_person(served, logins)
    assert await logins.token(of(served))
    assert await logins.token(ServerSettings("far", url="http://127.0.0.1:1/mcp")) == ""
    assert await logins.token(ServerSettings("other", url=address(served))) == ""


async def test_a_login_is_sealed_where_there_is_a_passphrase(served: Running, guest: Home) -> None:
    sealed = ServerLogins(guest, CLOCK, lambda: "correct horse")
    await log_in_as_a_person(served, sealed)
    token = await sealed.token(of(served))
    assert token
    assert token not in (guest.root / FILE).read_text()


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "no login wanted": ({}, "does not ask for a login"),
    "tokens of another": ({"resource": "https://elsewhere.example/mcp"}, "for another server"),
    "another issuer": ({"issuer": "https://evil.example"}, "cannot be logged in to"),
    "a plain address": ({"token_endpoint": "http://evil.example/token"}, "not a secure address"),
    "a script": ({"authorization_endpoint": "javascript:alert(1)"}, "(not a secure address|does not say where)"),
    "no PKCE": ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    "no registration": ({"registration_endpoint": None}, "registers no clients"),
    "huge": ({"x": "y" * 9_000_000}, "cannot be logged in to|longer than"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_that_lies_about_its_logins_is_one_clear_error(lie: str, logins: ServerLogins) -> None:
    changes, said = LIES[lie]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        base = f"http://127.0.0.1:{port}"
        status, body = 404, b""
        if path == "/mcp":
            status = 200 if not changes else 401
        elif "oauth-protected-resource" in path:
            status, body = 200, {"resource": changes.get("resource", f"{base}/mcp"), "authorization_servers": [base]}
        elif "oauth-authorization-server" in path:
            known = {
                "issuer": base, "authorization_endpoint": f"{base}/a", "token_endpoint": f"{base}/t",
                "registration_endpoint": f"{base}/r", "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }  # fmt: skip
            status, body = 200, {name: value for name, value in (known | changes).items() if value is not None}
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(sent)}\r\nConnection: close\r\n\r\n".encode() + sent)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = ServerSettings("liar", url=f"http://127.0.0.1:{port}/mcp")
    async with server, asyncio.timeout(PATIENCE):
        with pytest.raises(PalinurusError, match=said):
            await log_in(settings, logins, CLOCK, lambda where, _: pytest.fail(f"asked a person for {where}"))


def test_only_a_server_on_this_machine_may_send_us_to_this_machine() -> None:
    check_address("https://login.example/token", "https://far.example/mcp")
    check_address("http://127.0.0.1:9/token", "http://localhost:8/mcp")
    for url in ("http://127.0.0.1:9/token", "http://login.example/", "ftp://x/", "//x", ""):
        with pytest.raises(BadRequest, match="not a secure address"):
            check_address(url, "https://far.example/mcp")
