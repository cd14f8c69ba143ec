"""Requests to Discord's REST API, each with the truth about what became of it.

discord.py's own client of this API is not used: it repeats requests after 5xx, which can double a message, and waits as
long as a 429 says. Here one attempt is one request, and only what certainly did nothing is tried again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from discord.gateway import DiscordClientWebSocketResponse

from palinurus.dispatch.channels import ChannelContext, OutgoingFile, RequestRetry, retry_request
from palinurus.domain.errors import JobFailed, JobRefused, PalinurusError

USER_AGENT = "DiscordBot (palinurus, 1)"  # Discord refuses requests without one of this form
LOGIN_HINT = (
    "in Discord's developer portal (discord.com/developers/applications) choose the app, Bot, Reset Token; "
    "then set channels.discord.token or DISCORD_BOT_TOKEN"
)
ANSWER_SECONDS = 30.0
UPLOAD_SPEED = 50_000  # bytes a second: how slow the line may be before an upload is given up
TOO_MANY_CHATS_OPENED = 40003  # a 403, but one that passes
HINTS = {
    10003: "the channel was deleted, or the bot cannot see it",
    50001: "let the bot see the channel: channel settings, Permissions, View Channel",
    50007: "the person must share a server with the bot and allow direct messages from its members",
    50013: "give the bot's role the missing permission: server settings, Roles",
}


class BotTokenRefused(JobFailed):
    """Discord does not accept the token. What was sent waits until there is a good one."""


class DiscordApi:
    """One account's requests. They need `opened`."""

    def __init__(self, context: ChannelContext, root: str, token: str, retry: RequestRetry) -> None:
        self._context = context
        self._root = root.rstrip("/")
        self._token = token
        self._retry = retry
        self._session: aiohttp.ClientSession | None = None
        self._barred_until = 0  # Discord wants no request at all before, in milliseconds

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise JobFailed("the account is not connected to Discord")
        return self._session

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(cookie_jar=jar, ws_response_class=DiscordClientWebSocketResponse) as session:
            self._session = session
            try:
                yield
            finally:
                self._session = None

    async def request(self, method: str, path: str, body: Any = None, file: OutgoingFile | None = None) -> Any:
        """Returns the decoded answer; None if it is empty. Raises JobFailed or JobRefused if Discord certainly did
        nothing, another PalinurusError if nobody can know."""
        return await retry_request(self._context, self._retry, lambda: self._attempt(method, path, body, file))

    async def _attempt(self, method: str, path: str, body: Any, file: OutgoingFile | None) -> Any:
        if (pause := self._barred_until - self._context.clock.now_ms()) > 0:
            raise JobFailed("Discord wants fewer requests", retry_after=pause / 1000)
        limit = aiohttp.ClientTimeout(ANSWER_SECONDS + (len(file.data) / UPLOAD_SPEED if file else 0), sock_connect=10)
        headers = {"Authorization": f"Bot {self._token}", "User-Agent": USER_AGENT}
        content: dict[str, Any] = {} if body is None else {"json": body}
        if file is not None:
            content = {"data": _form(body, file)}
        try:
            async with self.session.request(
                method, self._root + path, headers=headers, timeout=limit, allow_redirects=False, **content
            ) as answer:
                raw = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise JobFailed(f"Discord cannot be reached ({type(error).__name__})") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            name = type(error).__name__
            raise PalinurusError(f"the connection to Discord broke before its answer came ({name})") from error
        return self._result(answer.status, answer.headers.get("Retry-After"), raw)

    def _result(self, status: int, pause: str | None, raw: bytes) -> Any:
        try:
            said = msgspec.json.decode(raw) if raw else None
        except msgspec.DecodeError as error:
            if 200 <= status < 300:
                raise PalinurusError(
                    "Discord's answer cannot be read; the request may have been carried out"
                ) from error
            said = None  # Cloudflare answers with a page
        if 200 <= status < 300:
            return said
        said = said if isinstance(said, dict) else {}
        if status == 429:
            seconds = _number(said.get("retry_after")) or _number(pause)
            if said.get("global") is True:
                self._barred_until = self._context.clock.now_ms() + int(seconds * 1000)
            raise JobFailed("Discord wants fewer requests", retry_after=seconds or None)
        raise _error(status, said)

    async def pieces(self, url: str) -> AsyncIterator[bytes]:
        """A file from Discord's storage: its address is a secret of its own and gets no token."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=ANSWER_SECONDS)
        try:
            async with self.session.get(url, timeout=limit, allow_redirects=False) as answer:
                if answer.status != 200:
                    kind = JobRefused if 400 <= answer.status < 500 else JobFailed
                    raise kind(f"Discord does not give the file (HTTP {answer.status})")
                async for piece in answer.content.iter_chunked(65_536):
                    yield piece
        except (aiohttp.ClientError, TimeoutError) as error:
            raise JobFailed(f"the file could not be fetched from Discord ({type(error).__name__})") from error


def _form(body: Any, file: OutgoingFile) -> aiohttp.FormData:
    name = "".join(each for each in file.name if each.isprintable())[-200:] or "file"
    form = aiohttp.FormData(quote_fields=False)  # Discord wants files[0] as it stands
    described = {**body, "attachments": [{"id": 0, "filename": name}]}
    form.add_field("payload_json", json.dumps(described), content_type="application/json")
    form.add_field(
        "files[0]", file.data, filename=name, content_type=file.mime_type.strip() or "application/octet-stream"
    )
    return form


def _error(status: int, said: dict[str, Any]) -> PalinurusError:
    code, about = said.get("code"), str(said.get("message") or f"HTTP {status}")[:200]
    if status >= 500:
        return PalinurusError(f"Discord is in trouble (HTTP {status}); it may have done what it was asked for")
    if status == 401:
        return BotTokenRefused("Discord does not accept the bot's token", hint=LOGIN_HINT, retry_after=60)
    if code == TOO_MANY_CHATS_OPENED:
        return JobFailed(f"Discord refuses for now: {about}", retry_after=60)
    hint = HINTS.get(code, "") if isinstance(code, int) else ""
    return JobRefused(f"Discord refuses: {about} (code {code})" if code else f"Discord refuses: {about}", hint=hint)


def _number(value: Any) -> float:
    try:
        return max(float(value), 0.0)
    except (TypeError, ValueError):
        return 0.0
