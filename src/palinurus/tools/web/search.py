"""Queries the search engine that the owner has configured: SearXNG, or one with Brave's format.

The endpoint is the owner's choice and may be private, so it alone is exempt from the guard. Redirects are not followed,
because the key would be sent along. The key is sent in a header and never appears in a message.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from msgspec import MsgspecError, Struct, json, structs

from palinurus.domain.errors import AddressRefused, WebError
from palinurus.domain.messages import harmless, wrapped
from palinurus.domain.tool import ToolOutput
from palinurus.tools.settings import SearchSettings
from palinurus.tools.web.client import Client, Connector, HttpReply
from palinurus.tools.web.guard import AddressGuard, Resolver, WebAddress, outside_output, parse_address

MAX_BYTES = 2_000_000
MAX_QUERY = 400
BRAVE = "https://api.search.brave.com"
UNSET = (
    "no search engine is set; the owner can set one: `pal config set tools.web.search.baseUrl"
    " http://127.0.0.1:8888/search` for a SearXNG, or tools.web.search.apiKey for Brave"
)

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class _Result(Struct, frozen=True):
    url: str = ""
    title: str | None = ""
    content: str | None = ""  # SearXNG's name for the snippet
    description: str | None = ""  # Brave's


class _Results(Struct, frozen=True):
    results: list[_Result] = []


class _Reply(_Results, frozen=True):
    """SearXNG has its results at the top level, Brave under `web`."""

    web: _Results | None = None


class SearchFormat(Struct, frozen=True):
    """How one kind of engine is called."""

    path: str  # default path of the endpoint
    query: Callable[[str, int], Mapping[str, str]]
    headers: Callable[[str], Mapping[str, str]]
    refused: str  # hint for status 401 or 403


FORMATS = {
    "searxng": SearchFormat(
        "/search",
        lambda words, _: {"q": words, "format": "json"},
        lambda key: {"Authorization": f"Bearer {key}"},
        "its settings.yml must list json under search.formats",
    ),
    "brave": SearchFormat(
        "/res/v1/web/search",
        lambda words, count: {"q": words, "count": str(count)},
        lambda key: {"X-Subscription-Token": key},
        "check tools.web.search.apiKey",
    ),
}


class Searcher:
    """Searches with the configured engine. Invalid settings fail at the first search."""

    def __init__(
        self, settings: SearchSettings, *, api_key: str, resolver: Resolver | None, connector: Connector
    ) -> None:
        self.settings, self._key = settings, api_key
        self.resolver, self.connector = resolver, connector

    async def answer(self, query: str, count: int) -> ToolOutput:
        """Returns the result of one web_search call. A failure is a result."""
        try:
            host, found = await self.search(query, count)
        except WebError as error:
            return outside_output(harmless(f"web_search: {error}"), "web_search", is_error=True)
        lines = [f"{number}. {each}" for number, each in enumerate(found, start=1)]
        text = wrapped(host, "\n".join(lines)) if found else f"nothing was found for {query!r}"
        return outside_output(text, "web_search")

    async def search(self, words: str, count: int) -> tuple[str, list[str]]:
        """Returns the queried host and its results: title, address and snippet, a line each. Raises WebError."""
        chosen, target = self._endpoint()
        words = " ".join(words.split())
        if not words or len(words) > MAX_QUERY:
            raise WebError(f"the query has {len(words)} characters; 1 to {MAX_QUERY} are allowed")
        seconds = self.settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._ask(chosen, target, chosen.query(words, count))
        except TimeoutError:
            raise WebError(f"the search engine {target.host} took longer than {seconds:g} seconds") from None
        return target.host, _results(target, body)[:count]

    def _endpoint(self) -> tuple[SearchFormat, WebAddress]:
        settings = self.settings
        if not (settings.base_url or self._key):
            raise WebError(UNSET)
        name = settings.provider.lower() or ("brave" if self._key else "searxng")
        chosen = FORMATS.get(name)
        if chosen is None:
            raise WebError(f"tools.web.search.provider is {name[:40]!r}", hint=f"one of: {', '.join(FORMATS)}")
        if not settings.base_url and name != "brave":
            raise WebError(UNSET)
        try:
            target = parse_address(settings.base_url or BRAVE)
        except AddressRefused as error:
            raise WebError(f"tools.web.search.baseUrl is invalid: {error.message}", hint=error.hint) from None
        return chosen, target if target.path != "/" else structs.replace(target, path=chosen.path)

    async def _ask(self, chosen: SearchFormat, target: WebAddress, query: Mapping[str, str]) -> bytes:
        if not (self._key.isascii() and (self._key.isprintable() or not self._key)):
            said = "tools.web.search.apiKey contains characters that are not allowed in a key"
            raise WebError(said, hint="paste the key again")
        mark = "&" if "?" in target.path else "?"
        asked = structs.replace(target, path=f"{target.path}{mark}{urlencode(query, quote_via=quote)}")
        client = Client(AddressGuard((target.authority,), resolver=self.resolver), connector=self.connector)
        headers = {"Accept": "application/json", **(chosen.headers(self._key) if self._key else {})}
        async with client.get(asked, headers, most=MAX_BYTES) as reply:
            if reply.status != 200:
                raise _refusal(chosen, target, reply)
            return await reply.body(MAX_BYTES)


def _refusal(chosen: SearchFormat, target: WebAddress, reply: HttpReply) -> WebError:
    hint = ""
    if reply.status in (401, 403):
        hint = chosen.refused
    elif reply.status == 429:
        wait = reply.header("retry-after")
        hint = f"it asks to wait {wait} seconds" if wait.isdecimal() and len(wait) < 6 else "wait a while"
    elif 300 <= reply.status < 400:
        hint = "it redirects, which is not followed: correct tools.web.search.baseUrl"
    elif reply.status == 404:
        hint = "check the path in tools.web.search.baseUrl"
    return WebError(f"the search engine {target.host} answered {reply.status} instead of results", hint=hint)


def _results(target: WebAddress, body: bytes) -> list[str]:
    try:
        reply = json.decode(body, type=_Reply)
    except MsgspecError:
        said = f"the search engine {target.host} did not answer with results"
        raise WebError(said, hint="check tools.web.search.provider and baseUrl") from None
    found = reply.web.results if reply.web else reply.results
    lines = []
    for each in (each for each in found if each.url.startswith(("http://", "https://"))):
        snippet = _plain(each.content or each.description or "", 600)
        lines.append(f"{_plain(each.title or '', 200)}\n   {each.url[:2_000]}\n   {snippet}")
    return lines


def _plain(text: str, most: int) -> str:
    """Removes markup: snippets mark the matched words."""
    words = " ".join(html.unescape(_TAG.sub("", text[: most * 10])).split())
    return words if len(words) <= most else f"{words[:most]}…"
