"""Bring one conversation in from a file: what `pal sessions export` wrote, or a transcript of OpenClaw."""

from __future__ import annotations

import asyncio
import importlib
import os
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.load import load_config
from palinurus.config.settings import agent_ids, default_agent
from palinurus.domain.errors import BadRequest, NotFound, NotOffered
from palinurus.domain.keys import SessionKey
from palinurus.migrate.report import Findings, FoundSession, Losses, Skipped
from palinurus.operations.house import House
from palinurus.operations.table import Operation

READER = "palinurus.migrate.openclaw.single"
CARRY = "palinurus.migrate.carry"


class ImportSession(Struct, frozen=True, rename="camel", omit_defaults=True):
    file: str  # as a whole path
    key: str = ""  # under which it shall stand; empty: as it stood
    agent: str = ""  # whose it shall be; empty: as it was, or the default agent's


class ImportedSession(Struct, frozen=True, rename="camel"):
    session: FoundSession
    skipped: tuple[Skipped, ...]
    skipped_total: int


async def _import(house: House, params: ImportSession) -> ImportedSession:
    if house.importer is None:
        raise NotOffered("this house takes nothing in")
    path = Path(params.file)
    if not await asyncio.to_thread(path.is_file):
        raise NotFound(f"there is no file {path}")
    reader = await asyncio.to_thread(importlib.import_module, READER)
    carry = await asyncio.to_thread(importlib.import_module, CARRY)
    losses = Losses()
    session: Any = await asyncio.to_thread(reader.single_session, path, losses, _whose(house, params))
    carrier = carry.Carrier(house.importer, losses, Findings(), apply=True, now=house.clock.now_ms())
    found: FoundSession = await carrier.carry(session)
    for shown in await house.importer.show():
        if shown.session_id == found.into:
            found = replace(found, archived=shown.archived, note=shown.note or found.note)
    return ImportedSession(found, tuple(losses.listed), losses.total)


def _whose(house: House, params: ImportSession) -> Any:
    """Says under which key a conversation shall stand that stood under another, or under none. Raises BadRequest."""
    config = load_config(house.home, os.environ).config
    known = agent_ids(config)

    def whose(key: str) -> SessionKey:
        wanted = SessionKey.parse(params.key or key)
        if not params.key and not key.startswith("agent:"):
            wanted = replace(wanted, agent=default_agent(config))
        if params.agent:
            wanted = replace(wanted, agent=params.agent)
        if wanted.agent not in known:
            raise BadRequest(f"there is no agent {wanted.agent!r} here", hint=f"name one: --agent {known[0]}")
        return wanted

    return whose


IMPORT = Operation("sessions.import", ImportSession, ImportedSession, "admin", _import, local=True)
OPERATIONS = (IMPORT,)
