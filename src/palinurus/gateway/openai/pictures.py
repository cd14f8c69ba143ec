"""Pictures of a request: data URLs made to fit a model. Nothing is fetched from anywhere."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import Image
from palinurus.workspace.pictures import fit_image


async def pictures(urls: Sequence[str]) -> tuple[Image, ...]:
    """Raises BadRequest for what is no picture, and for one that would have to be fetched."""
    return tuple([await asyncio.to_thread(_picture, url) for url in urls])


def _picture(url: str) -> Image:
    kind, comma, data = url.partition(",")
    if not kind.lower().startswith("data:"):
        raise BadRequest(f"the picture {url[:80]!r} is not fetched from here", hint="send it as a data: URL")
    if not comma or not kind.lower().endswith(";base64"):
        raise BadRequest("a data: URL without base64", hint="data:image/png;base64,…")
    try:
        return fit_image(base64.b64decode(data, validate=True))
    except binascii.Error:
        raise BadRequest("the data: URL of a picture is not base64", hint="data:image/png;base64,…") from None
