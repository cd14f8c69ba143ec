"""The network of a plugin: single requests to the hosts of its manifest, through the guard of the web tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import ClassVar

from msgspec import Struct

from palinurus.domain.errors import AddressRefused
from palinurus.domain.tool import is_host

SECONDS = 30.0
MOST_BYTES = 4_000_000  # of an answer
MOST_SENT = 1_000_000
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")


class FetchedReply(Struct, frozen=True):
    status: int
    content_type: str = ""
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class PluginFetcher:
    """`allow_private`: hosts of this machine and its network that may be reached, as for web_fetch."""

    answers: ClassVar[Mapping[str, str] | None] = None
    """Of the harness for tests: what there is at an address, and nothing is requested."""

    def __init__(self, plugin_id: str, hosts: tuple[str, ...], allow_private: tuple[str, ...] = ()) -> None:
        self._id = plugin_id
        self._hosts = hosts
        self._allow_private = allow_private

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchedReply:
        """One request; redirects are not followed. Raises AddressRefused for another host, and WebError."""
        from palinurus.tools.web.client import Client  # plugins without a network need none
        from palinurus.tools.web.guard import AddressGuard, parse_address

        if method not in METHODS or len(body) > MOST_SENT:
            raise AddressRefused(f"a plugin may send {', '.join(METHODS)} with at most {MOST_SENT:,} bytes")
        target = parse_address(url)
        if not is_host(self._hosts, url):
            known = ", ".join(self._hosts) or "none"
            raise AddressRefused(
                f"the plugin {self._id} may not reach {target.host}: its manifest names the hosts {known}"
            )
        if self.answers is not None:
            return FetchedReply(200 if url in self.answers else 404, "", self.answers.get(url, "").encode())

        async def content() -> AsyncIterator[bytes]:
            yield body

        sent = {**(headers or {}), **({"Content-Length": str(len(body))} if body else {})}
        client = Client(AddressGuard(self._allow_private))
        async with (
            asyncio.timeout(SECONDS),
            client.request(method, target, sent, most=MOST_BYTES, content=content() if body else None) as reply,
        ):
            return FetchedReply(reply.status, reply.header("content-type"), await reply.body(MOST_BYTES))
