"""A loopback sign-in server: gives tokens for codes, devices and refresh tokens, and checks what it is asked.

    async with SignInServer() as server:
        config = {"oauth": server.options}

A browser that opens the address for signing in is sent back at once, as if a person had said yes. A device is let in
after `pending` polls. A refresh token serves once: each renewal gives another and takes the old one back.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import json
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

CLIENT_ID = "palinurus-test"
Form = dict[str, str]


class SignInServer:
    def __init__(self, *, expires_in: int = 3600, pending: int = 1) -> None:
        self.expires_in = expires_in
        self.pending = pending
        self.asked: list[tuple[str, Form]] = []  # path and fields of each request
        self.refuses = ""  # an error code with which tokens are refused
        self.status = 400  # with which it is
        self.renewable: set[str] = set()
        self.heard = asyncio.Event()  # somebody has asked for tokens
        self.hold: asyncio.Event | None = None  # answers to renewals wait for it
        self._codes: dict[str, Form] = {}
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def base_url(self) -> str:
        if self._server is None:
            raise RuntimeError("the server is not open")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def options(self) -> dict[str, Any]:
        """What `models.providers.<id>.oauth` says."""
        base = self.base_url
        urls = {"authorizeUrl": f"{base}/authorize", "deviceUrl": f"{base}/device", "tokenUrl": f"{base}/token"}
        return {"clientId": CLIENT_ID, "scopes": ["models", "offline"], **urls}

    def tokens(self) -> dict[str, Any]:
        """A pair that was not given before."""
        number = next(self._numbers)
        self.renewable.add(f"refresh-token-{number}")
        pair = {"access_token": f"access-token-{number}", "refresh_token": f"refresh-token-{number}"}
        return {**pair, "token_type": "Bearer", "expires_in": self.expires_in}

    @property
    def grants(self) -> list[str]:
        """The kinds of grants that tokens were asked for with."""
        return [fields["grant_type"].rpartition(":")[2] for path, fields in self.asked if path == "/token"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0
            )
            body = (await reader.readexactly(length)).decode()
            method, target = head.split(" ", 2)[:2]
            address = urlsplit(target)
            fields = {name: values[0] for name, values in parse_qs(body if method == "POST" else address.query).items()}
            self.asked.append((address.path, fields))
            writer.write(await self._answer(address.path, fields))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, fields: Form) -> bytes:
        if path == "/authorize":
            return self._authorize(fields)
        if path == "/device" and fields.get("client_id") == CLIENT_ID:
            told = {"device_code": "device-1", "user_code": "WDJB-MJHT", "verification_uri": f"{self.base_url}/enter"}
            return _json(200, {**told, "expires_in": 600, "interval": 0.01})
        if path == "/token":
            self.heard.set()
            return await self._token(fields)
        return _json(404, {})

    def _authorize(self, fields: Form) -> bytes:
        back = {"state": fields["state"]}
        if self.refuses:
            back["error"] = self.refuses
        else:
            back["code"] = f"code-{next(self._numbers)}"
            self._codes[back["code"]] = fields
        return f"HTTP/1.1 302 Found\r\nLocation: {fields['redirect_uri']}?{urlencode(back)}\r\n\r\n".encode()

    async def _token(self, fields: Form) -> bytes:
        if self.refuses or fields.get("client_id") != CLIENT_ID:
            return _json(self.status, {"error": self.refuses or "invalid_client", "error_description": "no, not you"})
        match fields["grant_type"].rpartition(":")[2]:
            case "authorization_code":
                good = self._is_proven(fields)
            case "refresh_token":
                if self.hold is not None:
                    await self.hold.wait()
                good = fields["refresh_token"] in self.renewable
                self.renewable.discard(fields["refresh_token"])
            case _:
                self.pending -= 1
                if self.pending >= 0:
                    return _json(400, {"error": "authorization_pending"})
                good = fields["device_code"] == "device-1"
        return _json(200, self.tokens()) if good else _json(400, {"error": "invalid_grant"})

    def _is_proven(self, fields: Form) -> bool:
        """PKCE: whoever brings the code must know what its challenge was made of."""
        asked = self._codes.pop(fields["code"], {})
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return asked.get("code_challenge") == challenge and asked.get("redirect_uri") == fields["redirect_uri"]


def _json(status: int, value: dict[str, Any]) -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
