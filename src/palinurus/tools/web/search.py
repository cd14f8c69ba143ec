"""Ask a search engine that the owner has named: SearXNG, or anything that speaks Brave's format.

The endpoint is the owner's choice and may be private, so it alone is exempt from the guard. Redirects are not
followed, because the key would travel with them. The key is in a header and in no text that this room writes.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from palinurus.config.handling import SearchSettings
from palinurus.domain.errors import AddressRefused, WebError
from palinurus.tools.web.client import Client, Reply
from palinurus.tools.web.connection import Connector, connect
from palinurus.tools.web.guard import Guard, Resolver
from palinurus.tools.web.target import Target, parse_target

MAX_BYTES = 2_000_000
MAX_QUERY = 400
MAX_COUNT = 20
BRAVE = "https://api.search.brave.com"
UNSET = (
    "no search engine is set; the owner can set one: `pal config set tools.web.search.baseUrl"
    " http://127.0.0.1:8888/search` for a SearXNG, or tools.web.search.apiKey for Brave"
)

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class Hit(Struct, frozen=True):
    title: str
    url: str
    text: str


class _SearxngResult(Struct, frozen=True):
    url: str = ""
    title: str | None = ""
    content: str | None = ""


class _Searxng(Struct, frozen=True):
    results: list[_SearxngResult] = []


class _BraveResult(Struct, frozen=True):
    url: str = ""
    title: str | None = ""
    description: str | None = ""


class _BraveResults(Struct, frozen=True):
    results: list[_BraveResult] = []


class _Brave(Struct, frozen=True):
    web: _BraveResults | None = None


class Format(Struct, frozen=True):
    """How one kind of engine is asked and understood."""

    path: str  # where the endpoint lies when the base URL does not say
    query: Callable[[str, int], Mapping[str, str]]
    headers: Callable[[str], Mapping[str, str]]
    hits: Callable[[bytes], list[Hit]]
    refused: str  # what to do when it says 401 or 403


def _searxng_hits(body: bytes) -> list[Hit]:
    found = msgspec.json.decode(body, type=_Searxng).results
    return [Hit(each.title or "", each.url, each.content or "") for each in found]


def _brave_hits(body: bytes) -> list[Hit]:
    web = msgspec.json.decode(body, type=_Brave).web
    return [Hit(each.title or "", each.url, each.description or "") for each in (web.results if web else [])]


FORMATS = {
    "searxng": Format(
        "/search",
        lambda words, _: {"q": words, "format": "json"},
        lambda key: {"Authorization": f"Bearer {key}"} if key else {},
        _searxng_hits,
        "its settings.yml must list json under search.formats",
    ),
    "brave": Format(
        "/res/v1/web/search",
        lambda words, count: {"q": words, "count": str(count)},
        lambda key: {"X-Subscription-Token": key} if key else {},
        _brave_hits,
        "check tools.web.search.apiKey",
    ),
}


class Searcher:
    """Searches with what the settings name. Settings that make no sense are told at the first search."""

    def __init__(
        self,
        settings: SearchSettings,
        *,
        api_key: str = "",
        resolver: Resolver | None = None,
        connector: Connector = connect,
    ) -> None:
        self._settings = settings
        self._key = api_key
        self._resolver = resolver
        self._connector = connector

    async def search(self, words: str, count: int) -> tuple[str, list[Hit]]:
        """The host that was asked and what it found. Raises WebError."""
        chosen, target = self._endpoint()
        words = " ".join(words.split())
        if not words or len(words) > MAX_QUERY:
            raise WebError(f"the query has {len(words)} characters; 1 to {MAX_QUERY} are allowed")
        seconds = self._settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._ask(chosen, target, chosen.query(words, count))
        except TimeoutError:
            raise WebError(f"the search engine {target.host} took longer than {seconds:g} seconds") from None
        return target.host, _readable(chosen, target, body)[:count]

    def _endpoint(self) -> tuple[Format, Target]:
        settings = self._settings
        if not (settings.base_url or self._key):
            raise WebError(UNSET)
        name = settings.provider.lower() or ("brave" if self._key else "searxng")
        chosen = FORMATS.get(name)
        if chosen is None:
            raise WebError(f"tools.web.search.provider is {name[:40]!r}", hint=f"one of: {', '.join(FORMATS)}")
        if not settings.base_url and name != "brave":
            raise WebError(UNSET)
        try:
            target = parse_target(settings.base_url or BRAVE)
        except AddressRefused as error:
            raise WebError(f"tools.web.search.baseUrl cannot be used: {error.message}", hint=error.hint) from None
        return chosen, target if target.path != "/" else msgspec.structs.replace(target, path=chosen.path)

    async def _ask(self, chosen: Format, target: Target, query: Mapping[str, str]) -> bytes:
        if not (self._key.isascii() and (self._key.isprintable() or not self._key)):
            raise WebError("tools.web.search.apiKey holds characters that no key has", hint="paste the key again")
        mark = "&" if "?" in target.path else "?"
        asked = msgspec.structs.replace(target, path=f"{target.path}{mark}{urlencode(query, quote_via=quote)}")
        client = Client(Guard((target.authority,), resolver=self._resolver), connector=self._connector)
        headers = {"Accept": "application/json", **chosen.headers(self._key)}
        async with client.get(asked, headers, most=MAX_BYTES) as reply:
            if reply.status != 200:
                raise _refusal(chosen, target, reply)
            return await reply.body(MAX_BYTES)


def _refusal(chosen: Format, target: Target, reply: Reply) -> WebError:
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


def _readable(chosen: Format, target: Target, body: bytes) -> list[Hit]:
    try:
        hits = chosen.hits(body)
    except msgspec.MsgspecError:
        raise WebError(
            f"the search engine {target.host} answered something else than results",
            hint="check tools.web.search.provider and baseUrl",
        ) from None
    return [
        Hit(_plain(each.title, 200), each.url[:2_000], _plain(each.text, 600))
        for each in hits
        if each.url.startswith(("http://", "https://"))
    ]


def _plain(text: str, most: int) -> str:
    """Snippets come with markup around the words that matched."""
    words = " ".join(html.unescape(_TAG.sub("", text[: most * 10])).split())
    return words if len(words) <= most else f"{words[:most]}…"
