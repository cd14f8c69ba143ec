"""Writes down voice messages by an OpenAI-compatible server."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.extensions.channels.settings import TranscriptionSettings

MOST_BYTES = 1_000_000  # of an answer


class Transcript(Struct, frozen=True):
    text: str


async def transcribe(settings: TranscriptionSettings, key: str | None, data: bytes, name: str) -> str:
    """What is said in a recording. Raises BadRequest with the reason."""
    import httpx2

    fields = {"model": settings.model, "response_format": "json"}
    if settings.language:
        fields["language"] = settings.language
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = f"{settings.base_url.rstrip('/')}/audio/transcriptions"
    try:
        async with httpx2.AsyncClient(timeout=settings.timeout_seconds, trust_env=False) as client:
            answer = await client.post(url, data=fields, files={"file": (name, data)}, headers=headers)
    except httpx2.HTTPError as error:
        raise BadRequest(f"the transcription server does not answer: {type(error).__name__}") from None
    if answer.status_code != 200 or len(answer.content) > MOST_BYTES:
        raise BadRequest(f"the transcription server answered {answer.status_code}")
    try:
        return msgspec.json.decode(answer.content, type=Transcript).text.strip()
    except msgspec.MsgspecError:
        raise BadRequest("the transcription server gave no text") from None
