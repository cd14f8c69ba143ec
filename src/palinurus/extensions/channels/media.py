"""Files of received messages: stored in the workspace, images also shown to the model, voice written down.

Names and types are claims of the sender: a stored file has a name of ours with a harmless ending, and lies in
`media/inbox/`, whose text counts as text from outside. What cannot be fetched is said in the message, and the message
goes on without it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import PurePosixPath

import httpx2
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.dispatch.channels import ChannelMessage, ReceivedFile
from palinurus.domain.clock import local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, OutsideWorkspace, PalinurusError
from palinurus.domain.messages import Image, harmless
from palinurus.extensions.channels.account import RunningAccount
from palinurus.extensions.channels.settings import TranscriptionSettings
from palinurus.operations.services import Services
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.pictures import fit_image
from palinurus.workspace.write import create_file

MOST_ANSWERED = 1_000_000  # of an answer


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
            body = await _bounded_body(answer)
    except (httpx2.HTTPError, TimeoutError) as error:
        raise BadRequest(f"the transcription server does not answer: {type(error).__name__}") from None
    if answer.status_code != 200 or len(body) > MOST_ANSWERED:
        raise BadRequest(f"the transcription server answered {answer.status_code}")
    try:
        return msgspec.json.decode(body, type=SpokenText).text.strip()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the transcription server gave no text") from None


async def _bounded_body(answer: httpx2.Response) -> bytes:
    """No more of it than makes it too long."""
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > MOST_ANSWERED:
            break
    return bytes(body)


FOLDER = "media/inbox"
MOST_FILES = 10  # of one message
MOST_IMAGES = 4  # that the model sees
FETCH_SECONDS = 60.0
LONGEST_TRANSCRIPT = 100_000  # characters
_ENDING = re.compile(r"[a-z0-9]{1,8}")
_RISKY = re.compile(r"[^\w.-]+")


def name_files(files: Sequence[ReceivedFile]) -> str:
    """A message without words: what it brings."""
    return " ".join(f"<media:{file.kind}>" for file in files[:MOST_FILES])


async def add_files(
    services: Services, account: RunningAccount, message: ChannelMessage, inbound: Inbound, agent_id: str
) -> Inbound:
    """The message with its files: each is a line of the text that says where it is, or why it is not there."""
    boundary = services.agents.get(agent_id).files.boundary
    lines: list[str] = []
    images: list[Image] = []
    for number, file in enumerate(message.files):
        if number >= MOST_FILES:
            lines.append(f"[{len(message.files) - MOST_FILES} more files were left out]")
            break
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                data = await _fetch(account, file)
            path = await asyncio.to_thread(_store, services, boundary, file, data, account.replies.media_inbox_mb)
            lines.append(f"[{file.kind}: {path}{_claimed(file)}]")
            if file.kind == "image" and len(images) < MOST_IMAGES:
                images.append(await asyncio.to_thread(fit_image, data))
            if file.kind == "voice" and (said := await _written_down(services, data, path)):
                lines.append(f"[it says] {harmless(said)[:LONGEST_TRANSCRIPT]}")
        except (PalinurusError, OSError, TimeoutError) as error:
            why = "it took too long" if isinstance(error, TimeoutError) else services.jobs.redact(str(error))
            lines.append(f"[{file.kind}{_claimed(file)}: not stored: {why}]")
        except Exception as error:  # noqa: BLE001  the edge of an adapter: the message goes on without the file
            account.log.warning("a file of %s was not fetched: %r", message.sender, error)
            lines.append(f"[{file.kind}{_claimed(file)}: could not be fetched]")
    text = "\n".join(filter(None, (message.text and inbound.text, *lines)))
    return replace(inbound, text=text, images=(*inbound.images, *images))


async def _fetch(account: RunningAccount, file: ReceivedFile) -> bytes:
    """Raises BadRequest when it is too large, whatever size was claimed."""
    most = int(account.replies.media_max_mb * 1_000_000)
    if file.size > most:
        raise _too_large(most)
    return await read_bounded(account.channel.fetch(file), most)


async def read_bounded(pieces: AsyncIterator[bytes], most: int) -> bytes:
    data = bytearray()
    async with aclosing(pieces) as reading:  # type: ignore[type-var]  # adapters give generators
        async for piece in reading:
            data += piece
            if len(data) > most:
                raise _too_large(most)
    return bytes(data)


def _too_large(most: int) -> BadRequest:
    return BadRequest(f"it has more than {most / 1_000_000:g} MB (mediaMaxMb)")


def _store(services: Services, boundary: Boundary, file: ReceivedFile, data: bytes, most_mb: float) -> str:
    """Where it is stored: the same file of the same day once. Blocks. Raises BadRequest when there is no room."""
    digest = hashlib.sha256(data).hexdigest()[:12]
    path = f"{FOLDER}/{local_time(services.clock):%Y-%m-%d}-{digest}{_ending(file)}"
    folder = boundary.root / FOLDER
    if folder.is_dir() and sum(each.lstat().st_size for each in folder.iterdir()) + len(data) > most_mb * 1_000_000:
        raise BadRequest(f"{FOLDER} would have more than {most_mb:g} MB (mediaInboxMb): some must be deleted first")
    create_file(boundary, path, data, guard=_check_place)
    return path


def _check_place(place: str) -> None:
    """A link must not lead into a folder whose files count as the agent's own. Raises OutsideWorkspace."""
    if not f"{FOLDER}/".startswith(f"{place}/") and not place.startswith(f"{FOLDER}/"):
        raise OutsideWorkspace(f"{FOLDER} is a link to somewhere else", hint="make it a folder")


def _ending(file: ReceivedFile) -> str:
    """The ending of the claimed name, or of the claimed type, when it is harmless."""
    claimed = PurePosixPath(_RISKY.sub("_", file.name)[-80:]).suffix.lower().lstrip(".")
    if not _ENDING.fullmatch(claimed):
        claimed = file.mime_type.partition(";")[0].rpartition("/")[2].lower()
    return f".{claimed}" if _ENDING.fullmatch(claimed) else ""


def _claimed(file: ReceivedFile) -> str:
    name = " ".join(harmless(file.name).split()).replace("]", ")")[:80]
    return f" (sent as {name})" if name else ""


async def _written_down(services: Services, data: bytes, path: str) -> str:
    settings = services.config.section(TranscriptionSettings)
    if not settings.base_url:
        return ""
    return await transcribe(settings, services.secret(settings.api_key), data, PurePosixPath(path).name)
