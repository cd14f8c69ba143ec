"""Writes down voice messages by an OpenAI-compatible server."""

from __future__ import annotations

import asyncio

import httpx2
import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.extensions.channels.settings import TranscriptionSettings

MOST_BYTES = 1_000_000  # of an answer


class SpokenText(Struct, frozen=True):
    text: str


async def transcribe(settings: TranscriptionSettings, key: str | None, data: bytes, name: str) -> str:
    """What is said in a recording. Raises BadRequest with the reason."""
    fields = {"model": settings.model, "response_format": "json"}
    if settings.language:
        fields["language"] = settings.language
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
    url = f"{settings.base_url.rstrip('/')}/audio/transcriptions"
    try:
        # Loading the certificates takes 0.2 s. Redirects are not followed: the key is for this server.
        tls = await asyncio.to_thread(httpx2.create_ssl_context) if url.startswith("https:") else False
        async with (
            asyncio.timeout(settings.timeout_seconds),
            httpx2.AsyncClient(timeout=settings.timeout_seconds, trust_env=False, verify=tls) as client,
            client.stream("POST", url, data=fields, files={"file": (name, data)}, headers=headers) as answer,
        ):
            body = await _body(answer)
    except (httpx2.HTTPError, TimeoutError) as error:
        raise BadRequest(f"the transcription server does not answer: {type(error).__name__}") from None
    if answer.status_code != 200 or len(body) > MOST_BYTES:
        raise BadRequest(f"the transcription server answered {answer.status_code}")
    try:
        return msgspec.json.decode(body, type=SpokenText).text.strip()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the transcription server gave no text") from None


async def _body(answer: httpx2.Response) -> bytes:
    """No more of it than makes it too long."""
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > MOST_BYTES:
            break
    return bytes(body)
