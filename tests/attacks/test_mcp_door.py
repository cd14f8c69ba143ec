"""/mcp of a real gateway under attack: floods of registrations, messages that are none, senders that are slow."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from besieged import Besieged, siege
from serving import PATIENCE, request

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))
from mcp_clients import CALLBACK, FORM, INITIALIZE, JSON

pytestmark = pytest.mark.slow

ACCEPT = {"Accept": "application/json, text/event-stream"} | JSON
WRONG: list[Any] = [
    {}, [], None, 7, "x", {"jsonrpc": "1.0"}, {"jsonrpc": "2.0", "id": 1}, {"jsonrpc": "2.0", "id": {}, "method": 3},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, {"jsonrpc": "2.0", "id": 1, "method": "x" * 10_000},
    {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "method": "notifications/cancelled"},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "status", "arguments": [1]}},
    [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * 1_000,
]  # fmt: skip


async def sent(gateway: Besieged, body: bytes, **more: str) -> int:
    said = ACCEPT | {"Authorization": f"Bearer {gateway.token}"} | more
    return (await request(gateway.port, "/mcp", method="POST", body=body, **said)).status


async def opened(gateway: Besieged) -> str:
    """A session; the package is loaded with the first."""
    said = ACCEPT | {"Authorization": f"Bearer {gateway.token}"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
    return (await request(gateway.port, "/mcp", method="POST", body=body, **said)).headers["mcp-session-id"]


async def test_what_is_no_message_is_refused_and_the_session_goes_on(gateway: Besieged) -> None:
    session = await opened(gateway)
    async with siege(gateway):
        for wrong in WRONG:
            for more in ({}, {"Mcp_Session_Id": session}, {"Mcp_Protocol_Version": "2026-07-28"}):
                status = await sent(gateway, json.dumps(wrong).encode(), **more)
                assert status in (200, 202, 400, 404, 406), (wrong, more, status)
        for body in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"0" * 500_000):
            assert await sent(gateway, body) == 400, body[:20]
            assert await sent(gateway, body, Mcp_Session_Id=session) == 400, body[:20]
        assert await sent(gateway, b"x" * 10, Content_Length="99999999") == 413
        ping = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "ping"}).encode()
        assert await sent(gateway, ping, Mcp_Session_Id=session) == 200


async def test_a_flood_of_registrations_and_requests_leaves_nothing(gateway: Besieged) -> None:
    await opened(gateway)
    body = json.dumps({"redirect_uris": [CALLBACK], "client_name": "flood " + "x" * 5_000}).encode()
    async with siege(gateway):
        for _ in range(20):
            told = await asyncio.gather(
                *(request(gateway.port, "/mcp/register", method="POST", body=body, **JSON) for _ in range(25)),
                *(request(gateway.port, f"/mcp/authorize?state={'y' * 2_000}") for _ in range(5)),
            )
            assert {each.status for each in told} == {200, 201}
        guesses = [
            await request(
                gateway.port, "/mcp/token", method="POST", body=b"grant_type=refresh_token&refresh_token=x", **FORM
            )
            for _ in range(30)
        ]
        assert guesses[-1].status == 429
        for odd in (b"&" * 16_000, b"a=1&a=2", b"%ff%fe=1", b"=" * 100, b"grant_type=" + b"x" * 15_000):
            told_odd = await request(gateway.port, "/mcp/token", method="POST", body=odd, **FORM)
            assert told_odd.status in (400, 429), odd[:20]
        assert (await request(gateway.port, "/mcp/token", method="POST", body=b"x" * 20_000, **FORM)).status == 413


async def test_slow_senders_and_listeners_hold_up_nobody(gateway: Besieged) -> None:
    session = await opened(gateway)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {gateway.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    writers = []
    async with siege(gateway):
        try:
            for _ in range(50):
                _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", gateway.port), PATIENCE)
                writer.write(head.encode())
                writers.append(writer)
            call = {"name": "status", "arguments": {}}
            body = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}).encode()
            assert await sent(gateway, body, Mcp_Session_Id=session) == 200
        finally:
            for writer in writers:
                writer.close()
