"""A server at an address: streamable HTTP through the official package, with a client of ours that bounds answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from palinurus.domain.errors import BadRequest
from palinurus.tools.mcp.child import MAX_LINE
from palinurus.tools.mcp.settings import ServerSettings

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 300.0  # a stream of events may be silent for long
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@asynccontextmanager
async def remote(settings: ServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    """The streams to and from it. Raises BadRequest for an address or a header that can be none."""
    from mcp.client.streamable_http import streamable_http_client

    async with (
        _client(settings) as client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_LINE) as streams,
    ):
        yield streams


def _client(settings: ServerSettings) -> httpx2.AsyncClient:
    import httpx2

    address = urlsplit(settings.url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise BadRequest(f"{settings.where!r} is no address", hint="for example http://127.0.0.1:8000/mcp")
    for name, value in settings.headers.items():
        # The library's own message about such a header quotes it.
        if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
            raise BadRequest(f"the header {name!r} holds characters that no header has", hint="set it again")
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **settings.headers},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=max(SILENT_SECONDS, settings.timeout_seconds)),
        trust_env=address.hostname not in LOOPBACK,  # a proxy cannot reach our loopback
        verify=address.scheme == "https",  # loading the certificates costs 0.2 s
        event_hooks={"response": [_bound]},
    )


async def _bound(response: httpx2.Response) -> None:
    """Streams of events are bounded event by event, by the package; any other body as a whole, here."""
    import httpx2

    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the answer is compressed, which nobody asked for", request=response.request)
    if "text/event-stream" not in response.headers.get("content-type", ""):
        response.stream = _counted(response.stream)


def _counted(stream: Any) -> Any:
    import httpx2

    class Counted(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for data in stream:
                size += len(data)
                if size > MAX_LINE:
                    raise httpx2.StreamError(f"the answer is longer than {MAX_LINE:,} bytes")
                yield data

        async def aclose(self) -> None:
            await stream.aclose()

    return Counted()
