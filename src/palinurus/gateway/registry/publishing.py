"""A publishing form, as the clawhub command sends it: one part `payload` of JSON, and a part `files` for each file."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from palinurus.domain.errors import BadRequest
from palinurus.skills.registry.bundle import MAX_BYTES, MAX_FILES, Bundle, make_bundle
from palinurus.skills.registry.wire import Publication

MAX_BODY = MAX_BYTES + 2 * 1024 * 1024
MAX_PAYLOAD = 64 * 1024
BODY_SECONDS = 120.0


async def read_form(request: Request) -> tuple[Publication, Bundle]:
    """Raises BadRequest, or HTTPException for what is no such form."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            form = await request.form(max_files=MAX_FILES, max_fields=20, max_part_size=MAX_PAYLOAD)
    except TimeoutError:
        raise HTTPException(408, "the body did not come in time") from None
    try:
        payload = form.get("payload")
        if not isinstance(payload, str):
            raise BadRequest("the form has no payload")
        files: list[tuple[str, bytes]] = []
        for part in form.getlist("files"):
            if isinstance(part, str) or not part.filename:
                raise BadRequest("a file in the form has no name")
            files.append((part.filename, await part.read()))
    finally:
        await form.close()
    publication = _publication(payload)
    return publication, await asyncio.to_thread(make_bundle, files, publication.slug)


def _publication(payload: str) -> Publication:
    try:
        return msgspec.json.decode(payload, type=Publication)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the payload makes no sense: {error}") from None
