"""Requests to Slack's Web API, and what their failures say of the thing that was asked for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from palinurus.dispatch.channels import ChannelContext, RequestRetry, retry_request
from palinurus.domain.errors import JobFailed, JobRefused, PalinurusError
from palinurus.extensions.channels.requests import NetworkClient, seconds_of
from palinurus.extensions.channels.settings import SlackSettings

ONCE = RequestRetry(attempts=1)
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
BAD_TOKEN = frozenset(
    ("account_inactive", "invalid_auth", "not_allowed_token_type", "not_authed", "token_expired", "token_revoked")
)
BAD_MARKUP = frozenset(("invalid_blocks", "invalid_blocks_format"))
MAY_HAVE_ACTED = frozenset(("fatal_error", "internal_error"))  # as the documents of each method say
HINTS = {
    "channel_not_found": "the chat is gone, or private and without the bot: /invite it there",
    "is_archived": "unarchive the channel in Slack",
    "not_in_channel": "invite the bot: /invite @name in the channel",
}
WHERE_TOKENS_ARE = (
    "open api.slack.com/apps, choose the app; OAuth & Permissions shows the bot's token (xoxb-…), Basic Information the"
    " signing secret and, under App-Level Tokens, the one for Socket Mode (xapp-…, scope connections:write)"
)
WAIT_FOR_TOKEN = 600.0  # seconds; a message waits while a person renews the token

# The library logs every request with its text as soon as its own logger has no level.
library_log = logging.getLogger("slack_sdk")
library_log.setLevel(logging.WARNING)


class SlackRefusal(JobRefused):
    """Slack understood the request and says no."""

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class SlackTokenRefusal(JobFailed):
    """Slack does not know the token, or no longer."""


class SlackApi(NetworkClient):
    """The Web API with the token of one bot, while it is `opened`. The library repeats nothing: what may be repeated is
    decided here."""

    def __init__(self, context: ChannelContext, settings: SlackSettings, token: str) -> None:
        super().__init__("Slack", settings.api_root, timeout=TIMEOUT)
        self.token = token
        self._context = context
        self._policy = settings.retry.policy()

    async def call(
        self,
        method: str,
        arguments: Mapping[str, object] | None = None,
        *,
        posts: bool = False,
        once: bool = False,
        done: str = "",
        token: str = "",
    ) -> dict[str, Any]:
        """One request with its retries. `posts`: it shows something to people, so when it is not known whether it was
        done, the error is neither JobFailed nor JobRefused. `done`: the refusal that says that it was done before."""
        form = {
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in (arguments or {}).items()
        }
        try:
            return await retry_request(
                self._context,
                ONCE if once else self._policy,
                lambda: self._attempt(method, form, token or self.token, posts),
            )
        except SlackRefusal as error:
            if error.code == done:
                return {}
            raise

    async def _attempt(self, method: str, form: dict[str, str], token: str, posts: bool) -> dict[str, Any]:
        try:
            client = AsyncWebClient(token, self.root, session=self.session, retry_handlers=[], logger=library_log)
            client.proxy = None  # it takes the environment's without regard to NO_PROXY; the session does better
            answer = await client.api_call(method, data=form)
        except SlackApiError as error:
            raise _failure_of(error, posts) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise JobFailed(f"Slack cannot be reached: {error}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unclear(type(error).__name__, posts) from None
        said = answer.data if isinstance(answer.data, dict) else {}
        return said | {"granted": answer.headers.get("X-OAuth-Scopes", "")}


def _failure_of(error: SlackApiError, posts: bool) -> PalinurusError:
    answer = error.response
    status = int(getattr(answer, "status_code", 0) or getattr(answer, "status", 0))
    said = getattr(answer, "data", None)
    said = said if isinstance(said, dict) else {}
    code = str(said.get("error") or "")
    if status == 429 or code in ("ratelimited", "rate_limited"):
        return JobFailed(
            "Slack asks for fewer requests", retry_after=seconds_of(answer.headers.get("Retry-After")) or 30.0
        )
    if status >= 500 or not code or code in MAY_HAVE_ACTED:
        return _unclear(f"{status} {code}".strip(), posts)
    if code in BAD_TOKEN:
        return SlackTokenRefusal(f"Slack refuses the token: {code}", hint=WHERE_TOKENS_ARE, retry_after=WAIT_FOR_TOKEN)
    if code == "missing_scope":
        needed = str(said.get("needed") or "unknown")
        return SlackRefusal(f"Slack's app lacks the scope {needed}", hint=scope_hint(needed), code=code)
    return SlackRefusal(f"Slack refuses it: {code}", hint=HINTS.get(code, ""), code=code)


def _unclear(what: str, posts: bool) -> PalinurusError:
    if posts:
        return PalinurusError(f"Slack gave no clear answer ({what}), so the message may have arrived")
    return JobFailed(f"Slack gave no clear answer ({what})")


def scope_hint(scopes: str) -> str:
    if scopes == "connections:write":  # of the other token
        return WHERE_TOKENS_ARE
    return (
        f"open api.slack.com/apps, choose the app, add {scopes} under OAuth & Permissions > Bot Token Scopes,"
        " then press Reinstall to Workspace"
    )
