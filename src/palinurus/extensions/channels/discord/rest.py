"""Requests to Discord's REST API, each with the truth about what became of it.

discord.py's own client of this API is not used: it repeats requests after 5xx, which can double a message, and waits as
long as a 429 says. Here one attempt is one request, and only what certainly did nothing is tried again.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from discord.gateway import DiscordClientWebSocketResponse

from palinurus.dispatch.channels import ChannelContext, OutgoingFile, RequestRetry, retry_request
from palinurus.domain.errors import JobError, JobFailed, JobRefused, PalinurusError
from palinurus.extensions.channels.requests import NetworkAnswer, NetworkClient, file_form, seconds_of

USER_AGENT = "DiscordBot (palinurus, 1)"  # Discord refuses requests without one of this form
LOGIN_HINT = (
    "in Discord's developer portal (discord.com/developers/applications) choose the app, Bot, Reset Token; "
    "then set channels.discord.token or DISCORD_BOT_TOKEN"
)
TOO_MANY_CHATS_OPENED = 40003  # a 403, but one that passes
HINTS = {
    10003: "the channel was deleted, or the bot cannot see it",
    50001: "let the bot see the channel: channel settings, Permissions, View Channel",
    50007: "the person must share a server with the bot and allow direct messages from its members",
    50013: "give the bot's role the missing permission: server settings, Roles",
}


class BotTokenRefused(JobFailed):
    """Discord does not accept the token. What was sent waits until there is a good one."""


class DiscordApi(NetworkClient):
    """One account's requests. They need `opened`."""

    def __init__(self, context: ChannelContext, root: str, token: str, retry: RequestRetry) -> None:
        super().__init__("Discord", root, ws_response_class=DiscordClientWebSocketResponse)
        self._context = context
        self._headers = {"Authorization": f"Bot {token}", "User-Agent": USER_AGENT}
        self._retry = retry
        self._barred_until = 0  # Discord wants no request at all before, in milliseconds

    async def request(self, method: str, path: str, body: Any = None, file: OutgoingFile | None = None) -> Any:
        """Returns the decoded answer; None if it is empty. Raises JobFailed or JobRefused if Discord certainly did
        nothing, another PalinurusError if nobody can know."""
        return await retry_request(self._context, self._retry, lambda: self._attempt(method, path, body, file))

    async def _attempt(self, method: str, path: str, body: Any, file: OutgoingFile | None) -> Any:
        if (pause := self._barred_until - self._context.clock.now_ms()) > 0:
            raise JobFailed("Discord wants fewer requests", retry_after=pause / 1000)
        content: dict[str, Any] = {} if body is None else {"json": body}
        if file is not None:
            form, name = file_form("files[0]", file)
            described = {**body, "attachments": [{"id": 0, "filename": name}]}
            form.add_field("payload_json", json.dumps(described), content_type="application/json")
            content = {"data": form}
        try:
            return self._result(await self.ask(method, self.root + path, headers=self._headers, **content))
        except JobError:
            raise
        except PalinurusError as error:
            if method != "GET":
                raise
            raise JobFailed(error.message) from error  # to ask changes nothing, so it may be asked again

    def _result(self, answer: NetworkAnswer) -> Any:
        is_done = 200 <= answer.status < 300
        try:
            said = msgspec.json.decode(answer.body) if answer.body else None
        except msgspec.DecodeError:
            if is_done:
                raise PalinurusError("Discord's answer cannot be read; the request may have been done") from None
            said = None  # Cloudflare answers with a page
        if is_done:
            return said
        said = said if isinstance(said, dict) else {}
        if answer.status == 429:
            seconds = seconds_of(said.get("retry_after")) or seconds_of(answer.headers.get("Retry-After"))
            if said.get("global") is True:
                self._barred_until = self._context.clock.now_ms() + int(seconds * 1000)
            raise JobFailed("Discord wants fewer requests", retry_after=seconds or None)
        raise _error(answer.status, said)


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
