"""Files that a reply names: each line `MEDIA:path` sends a file of the agent's workspace to the chat.

A chat that others read gets no private file, as it could not be read there either.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
from pathlib import PurePosixPath

from msgspec import Struct

from palinurus.config.load import Config
from palinurus.dispatch.channels import OutgoingFile
from palinurus.domain.errors import PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.operations.services import Services
from palinurus.workspace.files import is_private

MOST_FILES = 10  # of one reply
_LINE = re.compile(r"^[ \t]*MEDIA:[ \t]*(?P<path>\S[^\n]*?)[ \t]*$\n?", re.MULTILINE)
PROMPT = "A line `MEDIA:path` in a reply sends that file of the workspace to the chat."


class MediaText(Struct, frozen=True):
    """A reply without its MEDIA lines, and the paths in them."""

    text: str
    paths: tuple[str, ...] = ()


def read_media_lines(text: str) -> MediaText:
    if "MEDIA:" not in text:
        return MediaText(text)
    paths = tuple(dict.fromkeys(found["path"].strip("`\"'") for found in _LINE.finditer(text)))
    return MediaText(_LINE.sub("", text).strip(), paths) if paths else MediaText(text)


async def load_files(
    services: Services, session_key: str, paths: tuple[str, ...]
) -> tuple[list[OutgoingFile], list[str]]:
    """The files, and a line for each that cannot be sent."""
    files: list[OutgoingFile] = []
    troubles = [f"(only the first {MOST_FILES} files are sent)"] if len(paths) > MOST_FILES else []
    if not paths:
        return [], []
    key = SessionKey.parse(session_key)
    for path in paths[:MOST_FILES]:
        name = PurePosixPath(path).name
        if is_private(path) and not key.is_private:
            troubles.append(f"({name} is private and not sent here)")
            continue
        try:
            boundary = services.agents.get(key.agent).files.boundary
            data = await asyncio.to_thread(boundary.read_bytes, path)
        except PalinurusError as error:
            troubles.append(f"({name} was not sent: {error.message})")
            continue
        files.append(OutgoingFile(name, mimetypes.guess_type(name)[0] or "application/octet-stream", data))
    return files, troubles


def prompt_section(config: Config, agent_id: str) -> tuple[str, str]:
    """For agents of homes with channels."""
    return "Files", PROMPT
