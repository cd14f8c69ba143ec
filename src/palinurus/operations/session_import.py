"""Bring one conversation in from a file: what `pal sessions export` wrote, or a transcript of OpenClaw."""

from __future__ import annotations

import asyncio
import importlib
import os
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.load import load_config
from palinurus.config.settings import agent_ids, default_agent
from palinurus.domain.errors import BadRequest, NotFound, NotOffered
from palinurus.domain.keys import SessionKey
from palinurus.migrate.report import Findings, FoundSession, Losses, Skipped
from palinurus.operations.house import House
from palinurus.operations.operation import operation

READER = "palinurus.migrate.openclaw.single"
CARRY = "palinurus.migrate.carry"


class ImportedSession(Struct, frozen=True, rename="camel"):
    session: FoundSession
    skipped: tuple[Skipped, ...]
    skipped_total: int


@operation("sessions.import", scope="admin", local=True)
async def import_session(
    house: House,
    file: Annotated[str, "As a whole path."],
    key: Annotated[str, "Under which it shall stand; empty: as it stood."] = "",
    agent: Annotated[str, "Whose it shall be; empty: as it was, or the default agent's."] = "",
) -> ImportedSession:
    """Bring a conversation in that was exported, or a transcript of OpenClaw. Doing it twice changes nothing."""
    if house.importer is None:
        raise NotOffered("this house takes nothing in")
    path = Path(file)
    if not await asyncio.to_thread(path.is_file):
        raise NotFound(f"there is no file {path}")
    reader = await asyncio.to_thread(importlib.import_module, READER)
    carry = await asyncio.to_thread(importlib.import_module, CARRY)
    losses = Losses()
    session: Any = await asyncio.to_thread(reader.single_session, path, losses, _whose(house, key, agent))
    carrier = carry.Carrier(house.importer, losses, Findings(), apply=True, now=house.clock.now_ms())
    found: FoundSession = await carrier.carry(session)
    for shown in await house.importer.show():
        if shown.session_id == found.into:
            found = replace(found, archived=shown.archived, note=shown.note or found.note)
    return ImportedSession(found, tuple(losses.listed), losses.total)


def _whose(house: House, key: str, agent: str) -> Any:
    """Says under which key a conversation shall stand that stood under another, or under none. Raises BadRequest."""
    config = load_config(house.home, os.environ).config
    known = agent_ids(config)

    def whose(stood: str) -> SessionKey:
        wanted = SessionKey.parse(key or stood)
        if not key and not stood.startswith("agent:"):
            wanted = replace(wanted, agent=default_agent(config))
        if agent:
            wanted = replace(wanted, agent=agent)
        if wanted.agent not in known:
            raise BadRequest(f"there is no agent {wanted.agent!r} here", hint=f"name one: --agent {known[0]}")
        return wanted

    return whose


OPERATIONS = (import_session,)
