"""Fetches one web page as text: redirects are followed one by one through the guard, everything within limits.

A run may be restricted to certain hosts. Then every address on the way must be one of them, or no request is sent. HTML
is converted to markdown in a process that is killed if it takes too long: see worker.py.
"""

from __future__ import annotations

import asyncio
import codecs
import importlib.util
import json
import re
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.domain.errors import AddressRefused, WebError
from palinurus.domain.events import Plan
from palinurus.domain.messages import harmless, wrapped
from palinurus.domain.tool import PreparedCall, ToolOutput, ToolRun, beyond
from palinurus.tools.settings import FetchSettings
from palinurus.tools.web.addresses import addresses_of, is_held, not_named
from palinurus.tools.web.client import Client, HttpReply
from palinurus.tools.web.guard import WebAddress, outside_output, parse_address
from palinurus.tools.worker import run_worker

_KNOWN = re.compile(
    r"utf-?8|utf-?16([lb]e)?|(windows|cp)-?(125[0-8]|874|932|949)|iso-?8859-?\d{1,2}|latin-?1|(us-)?ascii|koi8-[ru]"
    r"|gbk|gb2312|gb18030|big5(-hkscs)?|euc-(jp|kr)|iso-2022-jp|shift[_-]?jis|sjis|ibm866|macintosh|mac-?roman|tis-620",
    re.IGNORECASE,
)
"""Charsets used on the web. Python knows more, and some of those take forever."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(rb"<\?xml[^>]{0,80}encoding=[\"']([A-Za-z0-9_-]{1,30})[\"']")
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252"}  # what servers mean by these names
SECONDS = 10.0
AT_ONCE = 2
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
RefuseAddress = Callable[[str], str]
"""Returns why an address may not be fetched for this run, and which rule says so; empty if it may."""


def decode(data: bytes, declared: str = "") -> str:
    """Decodes a body. What cannot be decoded becomes the replacement character; raises nothing."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    written = _DECLARED.match(data[:200])
    if name := _codec(declared) or (_codec(written[1].decode("ascii")) if written else ""):
        return data.decode(name, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        cut_short = error.start > len(data) - 4  # the bytes end inside a character
        return data.decode("utf-8" if cut_short else "cp1252", "replace")


def _codec(name: str) -> str:
    if not _KNOWN.fullmatch(name):
        return ""
    try:
        found = codecs.lookup({"macintosh": "mac-roman", "windows-874": "cp874"}.get(name.lower(), name)).name
    except LookupError:
        return ""
    return _WIDER.get(found, found)


class PageText(Struct, frozen=True):
    title: str
    text: str
    total: int  # characters in all; `text` has the first of them


class PageReader:
    """Converts pages, a few at the same time."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._room = asyncio.Semaphore(AT_ONCE)

    async def read(self, html: bytes, *, url: str, charset: str, most: int) -> PageText:
        """Returns the page as markdown. Raises WebError if it exceeds the time or memory limit."""
        request = json.dumps({"url": url, "charset": charset, "most": most}).encode() + b"\n" + html
        try:
            async with self._room:
                answer = await run_worker("page", _library(), request, self._seconds)
        except TimeoutError:
            raise _unreadable(f"it takes longer than {self._seconds:g} seconds") from None
        try:
            return msgspec.json.decode(answer, type=PageText)
        except msgspec.DecodeError:
            raise _unreadable("its reader process failed") from None


@cache
def _library() -> str:
    found = importlib.util.find_spec("turbohtml")
    if found is None or found.origin is None:
        raise WebError("the package turbohtml is not installed", hint="install palinurus again, or ask with raw=true")
    return str(Path(found.origin).parent.parent)


def _unreadable(why: str) -> WebError:
    return WebError(f"the page's HTML cannot be read: {why}", hint="ask with raw=true for the source")


class FetchedPage(Struct, frozen=True):
    """A server's response as text."""

    url: str  # the final address after redirects
    host: str
    status: int
    page: PageText


class Fetcher(Struct, frozen=True):
    """Fetches pages. The client contains the guard; the reader converts HTML to markdown."""

    settings: FetchSettings
    client: Client
    reader: PageReader

    async def fetch(
        self, url: str, *, most: int, raw: bool = False, refuse: RefuseAddress = lambda _: ""
    ) -> FetchedPage:
        """Returns at most `most` characters of a page, as markdown or as the source. Raises WebError."""
        seconds = self.settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(parse_address(url), most, raw, refuse)
        except TimeoutError:
            said = f"{url[:200]} took longer than {seconds:g} seconds"
            raise WebError(said, hint="try later, or another source") from None

    async def _follow(self, target: WebAddress, most: int, raw: bool, refuse: RefuseAddress) -> FetchedPage:
        if why := refuse(target.url):
            raise AddressRefused(f"{target.host} may not be reached here: {why}")
        for _ in range(self.settings.max_redirects + 1):
            answer = await self._request(target, most, raw)
            if isinstance(answer, FetchedPage):
                return answer
            if target.scheme == "https" and answer.scheme == "http":
                where = f"{target.host} redirects from https to plain http, to {answer.url[:200]}"
                raise AddressRefused(where, hint="fetch that address directly")
            if why := refuse(answer.url):
                raise AddressRefused(f"{target.host} redirects to {answer.host}, which may not be reached here: {why}")
            target = answer
        said = f"{target.host} redirects too often; at most {self.settings.max_redirects} redirects are followed"
        raise WebError(said, hint="fetch the final page directly")

    async def _request(self, target: WebAddress, most: int, raw: bool) -> FetchedPage | WebAddress:
        async with self.client.get(target, HEADERS, most=self.settings.max_response_bytes) as reply:
            location = reply.header("location")
            if reply.status in REDIRECTS and location:
                return target.join(location)
            kind, charset = content_type(reply.header("content-type"))
            if not 200 <= reply.status < 300:
                page = await self._excerpt(target, reply, kind, charset)
                return FetchedPage(target.url, target.host, reply.status, page)
            _check_kind(target, reply, kind)
            body = await reply.body(self.settings.max_response_bytes)
        page = await self._page(body, target, kind, charset, most, raw)
        return FetchedPage(target.url, target.host, reply.status, page)

    async def _excerpt(self, target: WebAddress, reply: HttpReply, kind: str, charset: str) -> PageText:
        """Returns the start of a body with an error status; the status counts even if the body cannot be read."""
        try:
            body = await reply.beginning(MAX_ERROR_BYTES)
            return await self._page(body, target, kind, charset, MAX_ERROR_CHARACTERS, False)
        except WebError as error:
            return PageText("", f"[{error.message}]", 0)

    async def _page(self, body: bytes, target: WebAddress, kind: str, charset: str, most: int, raw: bool) -> PageText:
        kind = kind or _guessed(target, body)
        if kind in HTML and not raw:
            return await self.reader.read(body, url=target.url, charset=charset, most=most)
        if not _is_text(kind):
            return PageText("", f"[{kind}, not shown]", 0)
        text = decode(body[: most * 4 + 4], charset)  # no charset needs more than four bytes per character
        rest = len(body) - (most * 4 + 4)
        return PageText("", text[:most], len(text) + max(rest, 0))


def content_type(header: str) -> tuple[str, str]:
    """Returns the type and the charset; empty for an invalid type."""
    kind, charset = _TYPE.match(header[:500]), _CHARSET.search(header[:500])
    return kind[1].lower() if kind else "", charset[1].lower() if charset else ""


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in TEXTS or kind in HTML or kind.endswith(("+json", "+xml"))


def _check_kind(target: WebAddress, reply: HttpReply, kind: str) -> None:
    if not kind or _is_text(kind):
        return
    size = f"{reply.length:,} bytes" if reply.length is not None else "of unknown size"
    what = "an image" if kind.startswith("image/") else "a file"
    raise WebError(f"{target.url[:200]} is {what} ({kind}, {size}): web_fetch reads text", hint="find a page about it")


def _guessed(target: WebAddress, body: bytes) -> str:
    """Guesses the type of a body for which the server declares none."""
    start = body[:1024].lstrip().lower()
    if b"\0" in start:
        raise WebError(f"{target.url[:200]} is a file of unknown type ({len(body):,} bytes): web_fetch reads text")
    return "text/html" if start.startswith((b"<!doctype html", b"<html")) else "text/plain"


async def prepare_fetch(run: ToolRun, fetcher: Fetcher, url: str, most: int, *, raw: bool) -> PreparedCall:
    known = await addresses_of(run) if is_held(run) else None
    standing = known.standing(url) if known else "exact"
    try:
        target = parse_address(url)
        address, host = target.url, target.host
    except AddressRefused:  # the fetch itself reports the reason
        address, host = url, ""

    def refuse(address: str) -> str:
        # The gate has seen the requested address; redirect targets are known only here.
        why = beyond(run.restrictions, "web_fetch", {"url": address})
        astray = known is not None and standing == "host" and not known.standing(address)
        return why or (not_named(address) if astray else "")

    async def fetch() -> ToolOutput:
        try:
            return _render(await fetcher.fetch(url, most=most, raw=raw, refuse=refuse))
        except WebError as error:
            return outside_output(harmless(f"web_fetch: {error}"), host, is_error=True)

    plan = Plan("web_fetch", f"read {address}", arguments={"url": address}, network=True)
    return PreparedCall(plan, fetch, when_untrusted="" if standing else not_named(address), lasting=True)


def _render(found: FetchedPage) -> ToolOutput:
    page = found.page
    lines = [f"Title: {page.title}"] if page.title else []
    text = wrapped(found.host, "\n".join([*lines, f"URL: {found.url}", "", page.text or "[no text]"]))
    if not 200 <= found.status < 300:  # the server's own words for the status are not repeated
        known = {each.value: each.phrase for each in HTTPStatus}
        status = f"{found.status} {known.get(found.status, '')}".rstrip()
        return outside_output(f"web_fetch: the server answered {status}\n{text}", found.host, is_error=True)
    if page.total > len(page.text):
        text += f"\n[the first {len(page.text):,} characters of about {page.total:,}]"
    return outside_output(text, found.host)
