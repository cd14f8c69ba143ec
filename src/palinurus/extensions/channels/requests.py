"""HTTP requests of adapters, each with the truth about what became of it.

One call is one request: nothing is repeated here, and no redirect is followed. JobFailed means that nothing was sent;
WebError that nobody can know what the other side did. Errors name no address, as some have a token in them.
"""

from __future__ import annotations

import io
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2
from msgspec import Struct

from palinurus.dispatch.channels import OutgoingFile
from palinurus.domain.errors import JobFailed, WebError

CONNECT_SECONDS, ANSWER_SECONDS, FILE_SECONDS = 10.0, 30.0, 60.0
MOST_ANSWER = 32 * 1024 * 1024  # bytes
PIECE = 64 * 1024
LONGEST_NAME = 200  # of a file
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
_PLAIN = {"Accept-Encoding": "identity"}


class NetworkAnswer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # found in any case of their letters
    body: bytes


class NetworkClient:
    """The connections of one account. They are there while it is `opened`."""

    def __init__(self, title: str, root: str, *, connections: int = 100, **more: Any) -> None:
        """`more` as aiohttp's session takes it. The first one for https takes 0.2 s: not on the event loop."""
        self.title = title
        self.root = root.rstrip("/")
        is_https = self.root.startswith("https:")
        self._options = {"trust_env": is_https, **more}  # a proxy cannot reach our loopback
        self._tls = _certificates() if is_https else True
        self._size = connections
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise JobFailed(f"the account is not connected to {self.title}")
        return self._session

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Whoever leaves last closes the connections."""
        self._users += 1
        if self._session is None:
            connector, jar = aiohttp.TCPConnector(limit=self._size, ssl=self._tls), aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, **self._options)
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                session, self._session = self.session, None
                await session.close()

    async def ask(
        self,
        method: str,
        url: str,
        *,
        seconds: float = ANSWER_SECONDS,
        most: int = MOST_ANSWER,
        headers: Mapping[str, str] | None = None,
        **content: Any,
    ) -> NetworkAnswer:
        """`seconds`: in which some of the answer must come; `content` as aiohttp takes it."""
        session, body = self.session, bytearray()
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=seconds)
        try:
            async with session.request(
                method, url, headers={**_PLAIN, **(headers or {})}, timeout=limit, allow_redirects=False, **content
            ) as answer:
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > most:
                        raise WebError(f"the answer of {self.title} is too long")
                return NetworkAnswer(answer.status, answer.headers, bytes(body))
        except _UNSENT as error:
            raise JobFailed(f"{self.title} cannot be reached ({type(error).__name__})") from None
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            why = type(error).__name__
            if isinstance(error.__cause__, aiohttp.ClientConnectionResetError):  # it was not written to its end
                raise JobFailed(f"the connection to {self.title} was closed ({why})") from None
            raise WebError(f"the connection to {self.title} broke before its answer came ({why})") from None

    async def pieces(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        redirects: int = 0,
        refuses: str = "",
        hint: str = "",
    ) -> AsyncIterator[bytes]:
        """A file. `refuses`: the type of what the network shows instead of one that it does not give; `hint`: what to
        do then."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=FILE_SECONDS)
        try:
            async with self.session.get(
                url,
                headers={**_PLAIN, **(headers or {})},
                timeout=limit,
                allow_redirects=redirects > 0,
                max_redirects=max(redirects, 1),
            ) as answer:
                if answer.status != 200 or answer.content_type == refuses:
                    raise WebError(f"{self.title} does not give the file (HTTP {answer.status})", hint=hint)
                async for piece in answer.content.iter_chunked(PIECE):
                    yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise WebError(f"a file of {self.title} could not be fetched ({type(error).__name__})") from None

    def is_own(self, url: str, hosts: str) -> bool:
        """Whether an address is the network's, so that the token may go there: its root, or by https one of `hosts`, a
        regular expression."""
        there = origin_of(url)
        if there is None:
            return False
        return there == origin_of(self.root) or bool(
            there[0] == "https" and there[2] == 443 and re.fullmatch(hosts, there[1])
        )


@cache
def _certificates() -> ssl.SSLContext:
    """The same ones as for models: not every machine has its own."""
    return httpx2.create_ssl_context()


def file_form(field: str, file: OutgoingFile, mime_type: str = "") -> tuple[aiohttp.FormData, str]:
    """A form with a file, and the name that the file has there."""
    form = aiohttp.FormData(quote_fields=False)  # names stand there as they are
    name = "".join(each for each in file.name if each.isprintable())[-LONGEST_NAME:] or "file"
    kind = mime_type or file.mime_type.strip() or "application/octet-stream"
    form.add_field(field, io.BytesIO(file.data), filename=name, content_type=kind)
    return form, name


def seconds_of(header: Any, otherwise: float = 0.0) -> float:
    """A pause that a network asks for."""
    try:
        return max(float(header), 0.0)
    except (TypeError, ValueError):
        return otherwise


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None for what is no plain web address."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError:
        return None
    odd = "@" in parts.netloc or "\\" in url or not url.isprintable()
    return None if odd or not parts.hostname or not port else (parts.scheme, parts.hostname, port)
