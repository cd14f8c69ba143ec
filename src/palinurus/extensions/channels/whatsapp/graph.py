"""Requests to Meta's Graph API for WhatsApp, and what their failures mean for a message.

An error's code decides, as Meta asks; the HTTP status only where there is no code. JobFailed and JobRefused mean that
nothing arrived; a WebError means that nobody can know.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import ConfigError, JobFailed, JobRefused, WebError
from palinurus.extensions.channels.requests import NetworkAnswer, NetworkClient, origin_of
from palinurus.providers.provider import LOOPBACK_HOSTS

MOST_ANSWER = 256 * 1024  # bytes
TOKEN_PAUSE = 60.0  # seconds: until somebody has put in another token
DAY = 86_400.0
MEDIA_HOSTS = r"lookaside\.fbsbx\.com|graph\.facebook\.com"  # besides the API's own; the token is sent to no other

THROTTLED = (4, 80007, 130429, 131048, 131056)
OBSCURE = (1, 2, 131000, 131016)  # "something went wrong", also after the message went out
TOKEN = (0, 190)
PERMISSION = (3, 10, 131005, *range(200, 300))
AUTHORIZE = (
    "make a permanent token: business.facebook.com, Settings, Users, System users, Generate token, with the permissions"
    " whatsapp_business_messaging and whatsapp_business_management; then set accessToken"
)
REFUSALS = {
    100: ("WhatsApp finds a parameter wrong", "look whether phoneNumberId is the one on the app's page API Setup"),
    368: ("Meta has blocked the account for a violation of its policies", "see Account quality in WhatsApp Manager"),
    131026: ("the message cannot be delivered", "the number has no WhatsApp, or its owner does not take messages"),
    131030: ("the number is not on the list of test numbers", "add it on the app's page: WhatsApp, API Setup, To"),
    131031: ("Meta has locked the account", "see Account quality in WhatsApp Manager"),
    131047: ("more than 24 hours have passed since the person last wrote", "they have to write first"),
}


class AccessTokenRefused(JobFailed):
    """The token is wrong or has expired. A message may be sent with the next one."""


class ErrorData(Struct, frozen=True):
    details: str = ""


class GraphError(Struct, frozen=True):
    code: int = -1
    message: str = ""
    error_data: ErrorData | None = None


class GraphMessage(Struct, frozen=True):
    id: str


class GraphAnswer(Struct, frozen=True):
    """What answers of the endpoints that are used here may have."""

    error: GraphError | None = None
    id: str = ""
    messages: tuple[GraphMessage, ...] = ()
    display_phone_number: str = ""
    verified_name: str = ""
    url: str = ""
    webhook_configuration: dict[str, str] = {}


class CallUsage(Struct, frozen=True):
    estimated_time_to_regain_access: float = 0  # minutes


class GraphClient(NetworkClient):
    """One account's requests. They need `opened`."""

    def __init__(self, root: str, token: str) -> None:
        """Raises ConfigError."""
        super().__init__("WhatsApp", root)
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError("the access token of WhatsApp has characters that no token has", hint=AUTHORIZE)
        origin = origin_of(self.root)
        if origin is None or (origin[0] == "http" and origin[1] not in LOOPBACK_HOSTS):
            raise ConfigError(
                f"apiRoot {root!r} is not an https address", hint="such as https://graph.facebook.com/v23.0"
            )
        self._token = token
        self._headers = {"Authorization": f"Bearer {token}"}

    async def get(self, path: str, **params: str) -> GraphAnswer:
        return await self._call("GET", path, params=params)

    async def post(self, path: str, **content: Any) -> GraphAnswer:
        """`content` as aiohttp takes it: json or data."""
        return await self._call("POST", path, **content)

    async def _call(self, method: str, path: str, **content: Any) -> GraphAnswer:
        said = await self.ask(method, f"{self.root}/{path}", headers=self._headers, most=MOST_ANSWER, **content)
        answer = _parsed(said.body)
        if answer is None or answer.error is not None or not 200 <= said.status < 300:
            raise self._failure(said, answer.error if answer else None)
        return answer

    def content(self, url: str) -> AsyncIterator[bytes]:
        """A file in pieces. Raises WebError."""
        if not self.is_own(url, MEDIA_HOSTS):
            raise WebError(
                "WhatsApp names an address for a file that is not Meta's", hint="the token is not sent there"
            )
        return self.pieces(url, self._headers)

    def _failure(self, response: NetworkAnswer, error: GraphError | None) -> Exception:
        status, code = response.status, -1 if error is None else error.code
        said = f" ({code}: {self._said(error)})" if error else f" (HTTP {status})"
        if code in THROTTLED or (error is None and status == 429):
            return JobFailed(f"WhatsApp asks for fewer messages{said}", retry_after=_pause(response.headers))
        if code in TOKEN:
            text = f"WhatsApp refuses the access token ({code})"  # Meta's own sentence may quote it
            return AccessTokenRefused(text, hint=AUTHORIZE, retry_after=TOKEN_PAUSE)
        if code in OBSCURE or status >= 500 or error is None or status < 400:
            return WebError(f"WhatsApp's answer does not tell whether it acted{said}")
        if code in PERMISSION:
            return JobRefused(f"the access token lacks a permission{said}", hint=AUTHORIZE)
        text, hint = REFUSALS.get(code, ("WhatsApp refuses the request", ""))
        return JobRefused(f"{text}{said}", hint=hint)

    def _said(self, error: GraphError) -> str:
        details = error.error_data.details if error.error_data else ""
        return (details or error.message).replace(self._token, "…")[:300]


def _parsed(body: bytes) -> GraphAnswer | None:
    """None: it is not what the API answers."""
    try:
        return msgspec.json.decode(body, type=GraphAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _pause(headers: Mapping[str, str]) -> float | None:
    """For how many seconds Meta wants to get nothing."""
    after = headers.get("retry-after", "")
    if after.isdecimal() and len(after) < 9:
        return min(float(after), DAY)
    try:
        usage = msgspec.json.decode(headers.get("x-business-use-case-usage", "{}"), type=dict[str, list[CallUsage]])
    except (msgspec.DecodeError, RecursionError):
        return None
    minutes = max((each.estimated_time_to_regain_access for kind in usage.values() for each in kind), default=0)
    return min(minutes * 60, DAY) if minutes > 0 else None
