"""The official client on the gateway's /mcp, and what a browser and an OAuth client do there."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
from serving import Answer, Running, request

CALLBACK = "http://127.0.0.1:7777/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
FORM = {"Content_Type": "application/x-www-form-urlencoded"}
JSON = {"Content_Type": "application/json"}


def address(served: Running) -> str:
    return f"http://127.0.0.1:{served.port}/mcp"


@contextlib.asynccontextmanager
async def client(served: Running, token: str = "", **options: Any) -> AsyncIterator[Any]:
    """A client that is connected, with a token or what else httpx2 takes: `auth`."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    mode = options.pop("mode", "auto")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60, **options) as http,
        Client(streamable_http_client(address(served), http_client=http), mode=mode) as connected,
    ):
        yield connected


class Flow:
    """A program that asks for access step by step, and an owner with the gateway's token who answers."""

    def __init__(self, served: Running) -> None:
        self.served = served
        self.base = f"http://127.0.0.1:{served.port}"
        self.client_id = ""

    async def register(self, *addresses: str, **metadata: Any) -> Answer:
        said = {"redirect_uris": addresses or (CALLBACK,), "client_name": "A test"} | metadata
        told = await request(self.served.port, "/mcp/register", method="POST", body=json.dumps(said).encode(), **JSON)
        self.client_id = told.json.get("client_id", "")
        return told

    def query(self, **changes: str) -> str:
        said = {
            "response_type": "code", "client_id": self.client_id, "redirect_uri": CALLBACK, "state": "s-1",
            "code_challenge": CHALLENGE, "code_challenge_method": "S256", "resource": f"{self.base}/mcp",
        } | changes  # fmt: skip
        return urlencode({name: value for name, value in said.items() if value})

    async def consent(self, query: str = "", token: str = "", **said: Any) -> Answer:
        body = json.dumps({"query": query or self.query(), **said}).encode()
        sent = {"Origin": self.base, "Authorization": f"Bearer {token or self.served.token}"} | JSON
        return await request(self.served.port, "/mcp/consent", method="POST", body=body, **sent)

    async def code(self, *scopes: str, **changes: str) -> str:
        told = await self.consent(self.query(**changes), allow=True, scopes=scopes or ("read", "write"))
        assert told.status == 200, told
        answer = dict(parse_qsl(urlsplit(told.json["redirect"]).query))
        assert (answer["state"], answer["iss"]) == ("s-1", self.base)
        return answer["code"]

    async def token(self, code: str, **changes: str) -> Answer:
        said = {
            "grant_type": "authorization_code", "code": code, "client_id": self.client_id, "redirect_uri": CALLBACK,
            "code_verifier": VERIFIER,
        }  # fmt: skip
        return await self.post("token", **(said | changes))

    async def renew(self, token: str, **changes: str) -> Answer:
        said = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.client_id}
        return await self.post("token", **(said | changes))

    async def post(self, what: str, **fields: str) -> Answer:
        body = urlencode({name: value for name, value in fields.items() if value}).encode()
        return await request(self.served.port, f"/mcp/{what}", method="POST", body=body, **FORM)

    async def tokens(self, *scopes: str) -> dict[str, Any]:
        """All of it."""
        await self.register()
        told = await self.token(await self.code(*scopes))
        assert told.status == 200, told
        return dict(told.json)

    async def status(self, token: str, path: str = "/mcp", **more: str) -> int:
        """How a request with this token is answered."""
        said = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"} | JSON | more
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
        return (await request(self.served.port, path, method="POST", body=body, **said)).status


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
