"""Fetch one web page and make text of it: redirects by hand, each through the guard, everything within limits.

Who asks may be held to certain hosts. Then each address on the way is one of these, or nothing is sent there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus

from msgspec import Struct

from palinurus.config.handling import FetchSettings
from palinurus.domain.errors import AddressRefused, WebError
from palinurus.tools.web.charset import decode
from palinurus.tools.web.client import Client, Reply
from palinurus.tools.web.reader import Page, PageReader
from palinurus.tools.web.target import Target, parse_target

HEADERS = {"Accept": "text/markdown, text/html;q=0.9, application/json;q=0.8, text/*;q=0.8, */*;q=0.5"}
REDIRECTS = (301, 302, 303, 307, 308)
HTML = ("text/html", "application/xhtml+xml")
TEXTS = frozenset(
    f"application/{name}"
    for name in ("json", "xml", "javascript", "yaml", "x-yaml", "toml", "x-ndjson", "jsonl", "sql", "x-sh")
)
_TYPE = re.compile(r"\s*([a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,60})\s*(?:;|,|$)", re.IGNORECASE)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_.:-]{1,40})", re.IGNORECASE)
MAX_ERROR_BYTES = 64 * 1024
MAX_ERROR_CHARACTERS = 1_000

Beyond = Callable[[str], str]
"""Why an address may not be asked on somebody's behalf, and who says so; empty when it may."""


def anywhere(_: str) -> str:
    return ""


class Fetched(Struct, frozen=True):
    """What a server answered, as text."""

    url: str  # where the answer came from in the end
    host: str
    status: int
    kind: str  # the content type
    page: Page

    @property
    def failure(self) -> str:
        """The status in words, if it is not that of a success. The server's own words for it are not repeated."""
        if 200 <= self.status < 300:
            return ""
        known = {each.value: each.phrase for each in HTTPStatus}
        return f"{self.status} {known.get(self.status, '')}".rstrip()


class Fetcher:
    """Fetches pages. The client holds the guard; the reader makes markdown of HTML."""

    def __init__(self, settings: FetchSettings, client: Client, reader: PageReader) -> None:
        self._settings = settings
        self._client = client
        self._reader = reader

    async def fetch(self, url: str, *, most: int, raw: bool = False, beyond: Beyond = anywhere) -> Fetched:
        """At most `most` characters of a page, as markdown, or as they are. Raises WebError."""
        seconds = self._settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(parse_target(url), most, raw, beyond)
        except TimeoutError:
            raise WebError(
                f"{url[:200]} took longer than {seconds:g} seconds", hint="try later, or another source"
            ) from None

    async def _follow(self, target: Target, most: int, raw: bool, beyond: Beyond) -> Fetched:
        if why := beyond(target.url):
            raise AddressRefused(f"{target.host} may not be asked here: {why}")
        for _ in range(self._settings.max_redirects + 1):
            answer = await self._request(target, most, raw)
            if isinstance(answer, Fetched):
                return answer
            _check_downgrade(target, answer)
            if why := beyond(answer.url):
                raise AddressRefused(f"{target.host} redirects to {answer.host}, which may not be asked here: {why}")
            target = answer
        raise WebError(
            f"{target.host} redirects again and again; {self._settings.max_redirects} redirects are followed",
            hint="ask for the page that you want in the end",
        )

    async def _request(self, target: Target, most: int, raw: bool) -> Fetched | Target:
        async with self._client.get(target, HEADERS, most=self._settings.max_response_bytes) as reply:
            location = reply.header("location")
            if reply.status in REDIRECTS and location:
                return target.join(location)
            kind, charset = content_type(reply.header("content-type"))
            if not 200 <= reply.status < 300:
                page = await self._excerpt(target, reply, kind, charset)
                return Fetched(target.url, target.host, reply.status, kind, page)
            _check_kind(target, reply, kind)
            body = await reply.body(self._settings.max_response_bytes)
        kind = kind or _guessed(target, body)
        page = await self._page(body, target, kind, charset, most, raw)
        return Fetched(target.url, target.host, reply.status, kind, page)

    async def _excerpt(self, target: Target, reply: Reply, kind: str, charset: str) -> Page:
        """What a server says beside a status that is no success; the status counts even if this cannot be read."""
        try:
            body = await reply.beginning(MAX_ERROR_BYTES)
            return await self._page(body, target, kind or _guessed(target, body), charset, MAX_ERROR_CHARACTERS, False)
        except WebError as error:
            return Page("", f"[{error.message}]", 0)

    async def _page(self, body: bytes, target: Target, kind: str, charset: str, most: int, raw: bool) -> Page:
        if kind in HTML and not raw:
            return await self._reader.read(body, url=target.url, charset=charset, most=most)
        if not _is_text(kind):
            return Page("", f"[{kind}, not shown]", 0)
        text = decode(body[: most * 4 + 4], charset)  # no charset takes more than four bytes for a character
        rest = len(body) - (most * 4 + 4)
        return Page("", text[:most], len(text) + max(rest, 0))


def content_type(header: str) -> tuple[str, str]:
    """The type, and the charset or nothing; nothing for what is no type."""
    kind, charset = _TYPE.match(header[:500]), _CHARSET.search(header[:500])
    return kind[1].lower() if kind else "", charset[1].lower() if charset else ""


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in TEXTS or kind in HTML or kind.endswith(("+json", "+xml"))


def _check_kind(target: Target, reply: Reply, kind: str) -> None:
    if not kind or _is_text(kind):
        return
    size = f"{reply.length:,} bytes" if reply.length is not None else "of unknown size"
    what = "an image" if kind.startswith("image/") else "a file"
    raise WebError(f"{target.url[:200]} is {what} ({kind}, {size}): web_fetch reads text", hint="find a page about it")


def _guessed(target: Target, body: bytes) -> str:
    """What a body is of which the server does not say it."""
    start = body[:1024].lstrip().lower()
    if b"\0" in start:
        raise WebError(f"{target.url[:200]} is a file of unknown type ({len(body):,} bytes): web_fetch reads text")
    return "text/html" if start.startswith((b"<!doctype html", b"<html")) else "text/plain"


def _check_downgrade(old: Target, new: Target) -> None:
    if old.scheme == "https" and new.scheme == "http":
        raise AddressRefused(
            f"{old.host} redirects from https to plain http, to {new.url[:200]}", hint="ask for that address yourself"
        )
