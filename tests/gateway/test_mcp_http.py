"""MCP over streamable HTTP from a real gateway, asked by the client of the official package."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp_clients import INITIALIZE, address, client
from serving import PATIENCE, Running, request, running

from palinurus.config.home import Home

READING = {
    *("conversations_list", "messages_read", "messages_search", "run_wait", "status"),
    *("memory_search", "memory_get"),
}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}


@pytest.fixture(scope="module", autouse=True)
def _client_library() -> None:
    import mcp.client.streamable_http  # noqa: F401  takes long, and that is not ours


async def names(connected: Any) -> set[str]:
    return {tool.name for tool in (await connected.list_tools()).tools}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_with_a_token_talks_with_the_agent(served: Running, mode: str) -> None:
    async with asyncio.timeout(PATIENCE), client(served, served.token, mode=mode) as connected:
        assert await names(connected) == READING | {"message_send", "run_stop"}
        told = await connected.call_tool("message_send", {"message": "remember that my bicycle is green"})
        assert told.structured_content["status"] == "ok"
        assert "bicycle is green" in told.structured_content["reply"]
        found = await connected.call_tool("messages_search", {"query": "bicycle"})
        assert "bicycle" in found.content[0].text


async def test_a_token_gets_the_tools_of_its_scopes(served: Running) -> None:
    for scopes, more in (
        (("read",), set()),
        (("write",), {"message_send", "run_stop"}),
        (("write", "approvals"), {"message_send", "run_stop", "approvals_list", "approvals_answer"}),
        (("admin",), {"message_send", "run_stop"}),  # approvals only where they are named
    ):
        _, secret = await served.register.make_token("-".join(scopes), scopes)
        async with asyncio.timeout(PATIENCE), client(served, secret) as connected:
            assert await names(connected) == READING | more
    _, secret = await served.register.make_token("asks", ("approvals",))
    told = await post(served, secret)
    assert told.status == 403
    assert 'error="insufficient_scope", scope="read"' in told.headers["www-authenticate"]


async def post(served: Running, token: str, *, message: Any = None, **more: str) -> Any:
    said = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE} if message is None else message
    headers = ACCEPT | ({"Authorization": f"Bearer {token}"} if token else {}) | more
    return await request(served.port, "/mcp", method="POST", body=json.dumps(said).encode(), **headers)


async def test_whoever_has_no_token_learns_where_to_get_one(served: Running) -> None:
    told = await post(served, "")
    metadata = f"http://127.0.0.1:{served.port}/.well-known/oauth-protected-resource/mcp"
    assert (told.status, told.headers["www-authenticate"]) == (401, f'Bearer resource_metadata="{metadata}"')
    told = await post(served, "wrong")
    assert told.status == 401
    assert 'error="invalid_token"' in told.headers["www-authenticate"]
    found = (await request(served.port, "/.well-known/oauth-protected-resource/mcp")).json
    assert found["resource"] == address(served)
    assert found["authorization_servers"] == [f"http://127.0.0.1:{served.port}"]


async def test_pages_of_other_sites_and_forged_names_are_refused(served: Running) -> None:
    assert (await post(served, served.token, Origin="https://evil.example")).status == 403
    assert (await post(served, served.token, Host="evil.example")).status == 421
    own = f"http://127.0.0.1:{served.port}"
    assert (await post(served, served.token, Origin=own)).status == 200


async def test_a_session_belongs_to_the_credential_that_began_it(served: Running) -> None:
    _, other = await served.register.make_token("other", ("write",))
    session = (await post(served, served.token)).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert (await post(served, served.token, message=ping, Mcp_Session_Id=session)).status == 200
    assert (await post(served, other, message=ping, Mcp_Session_Id=session)).status == 404
    assert (await post(served, served.token, message=ping, Mcp_Session_Id="0" * 32)).status == 404


async def test_sessions_are_bounded_and_bodies_too(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from palinurus.extensions.mcp import endpoint

    monkeypatch.setattr(endpoint, "MAX_SESSIONS", 2)
    assert [(await post(served, served.token)).status for _ in range(3)] == [200, 200, 503]
    assert (await post(served, served.token, Content_Length=str(endpoint.MAX_BODY + 1))).status == 413


async def test_a_revoked_token_ends_its_open_stream(served: Running) -> None:
    token, secret = await served.register.make_token("listens", ("read",))
    session = (await post(served, secret)).headers["mcp-session-id"]
    async with listening(served, secret, session) as reader:
        await served.register.revoke_token(token.id)
        await asyncio.wait_for(reader.read(), PATIENCE)  # to the end
    assert (await post(served, secret)).status == 401


class listening:  # noqa: N801
    """A client that has opened the stream of its session."""

    def __init__(self, served: Running, token: str, session: str, **more: str) -> None:
        said = {"Host": f"127.0.0.1:{served.port}", "Accept": "text/event-stream", "Mcp-Session-Id": session}
        said |= {"Authorization": f"Bearer {token}"} | {name.replace("_", "-"): value for name, value in more.items()}
        lines = ["GET /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
        self._head, self._port = "\r\n".join([*lines, "", ""]).encode(), served.port

    async def __aenter__(self) -> asyncio.StreamReader:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(self._head)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert b" 200 " in head.splitlines()[0], head
        return reader

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()


async def test_the_gateway_leaves_at_once_while_clients_listen(home: Home) -> None:
    async with running(home) as served:
        session = (await post(served, served.token)).headers["mcp-session-id"]
        listener = listening(served, served.token, session)
        reader = await listener.__aenter__()
    await asyncio.wait_for(reader.read(), PATIENCE)
    await listener.__aexit__()


async def test_a_client_whose_connection_broke_gets_what_it_missed(served: Running) -> None:
    """The result of a call whose stream was cut after its first event."""
    version = {"Mcp_Protocol_Version": "2025-11-25"}
    session = (await post(served, served.token)).headers["mcp-session-id"]
    said = {"Mcp_Session_Id": session} | version
    await post(served, served.token, message={"jsonrpc": "2.0", "method": "notifications/initialized"}, **said)
    call = {"name": "status", "arguments": {}}
    whole = await post(
        served, served.token, message={"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}, **said
    )
    first = next(line for line in whole.body.decode().splitlines() if line.startswith("id: "))
    async with listening(served, served.token, session, Last_Event_ID=first[4:], **version) as reader:
        again = b""
        while b'"id":7' not in again:
            again += await asyncio.wait_for(reader.read(65_536), PATIENCE)
    other = (await post(served, served.token)).headers["mcp-session-id"]
    async with listening(served, served.token, other, Last_Event_ID=first[4:], **version) as reader:
        assert await asyncio.wait_for(reader.read(), PATIENCE) in (b"", b"0\r\n\r\n")  # events of another session


async def test_files_transcripts_and_skills_can_be_read(served: Running, home: Home, workspace: Path) -> None:
    from mcp import MCPError

    async with asyncio.timeout(PATIENCE), client(served, served.token) as connected:
        await connected.call_tool("message_send", {"message": "remember that my bicycle is green"})
        found = {each.name: each.uri for each in (await connected.list_resources()).resources}
        assert {"main: AGENTS.md", "session agent:main:main"} <= set(found)
        assert any(name.startswith("main: memory/") for name in found)
        read = await connected.read_resource(found["main: AGENTS.md"])
        assert read.contents[0].text == (workspace / "AGENTS.md").read_text()
        said = await connected.read_resource(found["session agent:main:main"])
        assert "my bicycle is green" in said.contents[0].text
        templates = (await connected.list_resource_templates()).resource_templates
        assert len(templates) == 2
        (workspace / "link.md").symlink_to(home.root / "gateway.token")
        for wrong in ("../gateway.token", "..%2Fgateway.token", "link.md", ".git/config", "none.md", "%00"):
            with pytest.raises(MCPError):
                await connected.read_resource(f"palinurus://workspace/main/{wrong}")
        for wrong in ("file:///etc/passwd", "palinurus://sessions/none", "palinurus://", f"x:{'y' * 5000}"):
            with pytest.raises(MCPError):
                await connected.read_resource(wrong)
        prompts = {each.name: each for each in (await connected.list_prompts()).prompts}
        name = next(iter(prompts))
        prompt = await connected.get_prompt(name, {"words": "about boats"})
        assert prompt.messages[0].content.text.endswith("about boats")
        with pytest.raises(MCPError, match="no skill"):
            await connected.get_prompt("none")
