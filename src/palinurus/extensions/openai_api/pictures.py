"""Pictures of a request. Those in data: URLs are decoded; others are fetched through the guard of web_fetch.

Only public addresses and those in tools.web.fetch.allowPrivate are reached, also by redirects. What is no picture, or a
large one, is refused.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence

from palinurus.domain.errors import AddressRefused, BadRequest, WebError
from palinurus.domain.messages import Image
from palinurus.operations.services import Services
from palinurus.tools.settings import FetchSettings
from palinurus.workspace.pictures import fit_image

MOST_BYTES = 10 * 1024 * 1024  # of one that is fetched
SECONDS = 30.0  # for all of a request
HEADERS = {"Accept": "image/png, image/jpeg, image/webp, image/gif"}
UNTYPED = ("", "application/octet-stream", "binary/octet-stream")  # what stores of files say of all they hold
HINT = "send it as a data: URL"


async def read_pictures(services: Services, urls: Sequence[str]) -> tuple[Image, ...]:
    """Raises BadRequest for what is not a picture, and for one that cannot be fetched."""
    try:
        async with asyncio.timeout(SECONDS):
            return tuple([await _read(services, url) for url in urls])
    except TimeoutError:
        message = f"the pictures of the request were not fetched within {SECONDS:g} seconds"
        raise BadRequest(message, hint=HINT) from None


async def _read(services: Services, url: str) -> Image:
    kind, comma, text = url.partition(",")
    if not kind.lower().startswith("data:"):
        return await asyncio.to_thread(fit_image, await _fetch(url, services.config.section(FetchSettings)))
    if not comma or not kind.lower().endswith(";base64"):
        raise BadRequest("a data: URL without base64", hint="data:image/png;base64,…")
    try:
        return await asyncio.to_thread(_decoded, text)
    except binascii.Error:
        raise BadRequest("the data: URL of a picture is not base64", hint="data:image/png;base64,…") from None


def _decoded(text: str) -> Image:
    return fit_image(base64.b64decode(text.encode("ascii", "replace"), validate=True))


async def _fetch(url: str, settings: FetchSettings) -> bytes:
    if not settings.enabled:
        message = f"the picture {url[:80]!r} is not fetched: tools.web.fetch.enabled is false"
        raise BadRequest(message, hint=HINT)
    try:
        return await _follow(url, settings)
    except WebError as error:
        raise BadRequest(f"the picture {url[:80]!r} cannot be fetched: {error.message}", hint=HINT) from None


async def _follow(url: str, settings: FetchSettings) -> bytes:
    from palinurus.tools.web.client import Client
    from palinurus.tools.web.fetch import REDIRECTS, content_type
    from palinurus.tools.web.guard import AddressGuard, parse_address

    client, target = Client(AddressGuard(settings.allow_private)), parse_address(url)
    for _ in range(settings.max_redirects + 1):
        async with client.get(target, HEADERS, most=MOST_BYTES) as reply:
            if reply.status not in REDIRECTS:
                kind, _charset = content_type(reply.header("content-type"))
                if reply.status != 200:
                    raise WebError(f"the server answered {reply.status}")
                if not kind.startswith("image/") and kind not in UNTYPED:
                    raise WebError(f"it is {kind}")
                return await reply.body(MOST_BYTES)
            location = target.join(reply.header("location"))
        if target.scheme == "https" and location.scheme == "http":
            raise AddressRefused(f"{target.host} redirects from https to plain http")
        target = location
    raise WebError(f"more than {settings.max_redirects} redirects")
