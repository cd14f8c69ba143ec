"""Files that a reply names: each line `MEDIA:path` sends a file of the agent's workspace to the chat.

Where the agent may not read files, by the policy of its tools, it sends none; and private ones go to the owner only.
"""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import re
from pathlib import PurePosixPath

from msgspec import Struct

from palinurus.config.load import Config
from palinurus.dispatch.channels import OutgoingFile
from palinurus.dispatch.delivery import DeliveryJob
from palinurus.domain.errors import OutsideWorkspace, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import harmless
from palinurus.operations.services import Services
from palinurus.tools.policy import ToolRequest, decide
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import is_private

log = logging.getLogger(__name__)

MOST_FILES = 10  # of one reply
_LINE = re.compile(r"^[ \t]*MEDIA:[ \t]*(?P<path>[^\s][^\n]*)\n?", re.MULTILINE)
LONGEST_NAME = 80  # of a file that is named in a reply
PROMPT = "A line `MEDIA:path` in a reply sends that file of the workspace to the chat."


class MediaText(Struct, frozen=True):
    """A reply without its MEDIA lines, and the paths in them."""

    text: str
    paths: tuple[str, ...] = ()


def read_media_lines(text: str) -> MediaText:
    if "MEDIA:" not in text:
        return MediaText(text)
    paths = tuple(dict.fromkeys(found["path"].strip().strip("`\"'") for found in _LINE.finditer(text)))
    return MediaText(_LINE.sub("", text).strip(), paths) if paths else MediaText(text)


async def load_files(
    services: Services, delivery: DeliveryJob, paths: tuple[str, ...]
) -> tuple[list[OutgoingFile], list[str]]:
    """The files, and a line for each that cannot be sent."""
    files: list[OutgoingFile] = []
    troubles = [f"(only the first {MOST_FILES} files are sent)"] if len(paths) > MOST_FILES else []
    key = SessionKey.parse(delivery.session_key)
    is_owners = services.reception.is_owner(delivery.channel, delivery.to) and key.is_private
    for path in paths[:MOST_FILES]:
        name = " ".join(harmless(PurePosixPath(path).name).split())[:LONGEST_NAME]
        try:
            check_reading(services, key, delivery, is_owners=is_owners)
            agent = await services.agents.get(key.agent).in_session(key)
            data = await asyncio.to_thread(_read, agent.files.boundary, path, hides=not is_owners)
        except (PalinurusError, OSError, ValueError) as error:
            log.info("a file of a reply in %s was not sent: %s", key, error)
            why = error.message if isinstance(error, PalinurusError) else "it cannot be read"
            troubles.append(f"({name} was not sent: {why[:200]})")
            continue
        files.append(OutgoingFile(name, mimetypes.guess_type(name)[0] or "application/octet-stream", data))
    return files, troubles


def check_reading(services: Services, key: SessionKey, delivery: DeliveryJob, *, is_owners: bool) -> None:
    """Raises OutsideWorkspace: where the agent may not read files, it sends none."""
    asked = ToolRequest("read", key, owner=is_owners, channel=delivery.channel, sender=delivery.to)
    if not decide(services.toolsets.policy(key.agent), asked).allowed:
        raise OutsideWorkspace("files are not read here", hint="`pal tools explain read --session-key …` says why")


def _read(boundary: Boundary, path: str, *, hides: bool) -> bytes:
    """`hides`: private files, also by a link to them."""
    with boundary.open_file(path) as file:
        if hides and (is_private(file.path) or is_private(path)):
            raise OutsideWorkspace("it is private", hint="it is sent to the owner only")
        return file.read()


def prompt_section(config: Config, agent_id: str) -> tuple[str, str]:
    """For agents of homes with channels."""
    return "Files", PROMPT
