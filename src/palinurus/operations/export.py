"""Carry this home away: the whole of it into a folder or a file, or the lines of one conversation. For those on the
machine only.

Every process that opens a home imports this module, and hardly one exports: the writers are loaded by name when they
are needed.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from palinurus.config.load import load_config
from palinurus.config.settings import agent_ids, agent_settings, default_agent
from palinurus.domain.errors import BadRequest, NotFound, NotOffered, StorageError
from palinurus.migrate.export.exporter import Kept, SessionExporter
from palinurus.migrate.forgetting.copies import Copies, Copy
from palinurus.migrate.report import Skipped
from palinurus.operations.following import follow
from palinurus.operations.house import House
from palinurus.operations.operation import operation
from palinurus.sessions.names import LISTED, require_session

PIECE = 200  # entries of a conversation that are handed over at a time
ROOM = "palinurus.migrate.export"
PACKED = ".pal"


class ExportProgress(Struct, frozen=True):
    done: int  # bytes of transcripts
    total: int


class ExportReport(Struct, frozen=True, rename="camel"):
    into: str
    agents: tuple[str, ...]
    sessions: int
    entries: int
    files: int  # of workspaces and skills
    bytes: int
    skipped: tuple[Skipped, ...]


class Exporting(Struct, frozen=True, omit_defaults=True):
    """How far it is, many times; at the end what was written."""

    progress: ExportProgress | None = None
    report: ExportReport | None = None


class Lines(Struct, frozen=True):
    text: str  # whole lines


@operation("home.export", scope="admin", local=True)
async def export_home(
    house: House, into: Annotated[str, "A folder that is not there yet, or a file that ends in .pal; as a whole path."]
) -> AsyncIterator[Exporting]:
    """Write the whole home. Whoever stops listening stops the work, and nothing is left behind."""
    latest: list[ExportProgress] = []
    steps = follow(_exported(house, Path(into), latest), latest)
    async with aclosing(steps):
        async for progress, report in steps:
            yield Exporting(progress, report)


async def _exported(house: House, into: Path, latest: list[ExportProgress]) -> ExportReport:
    exporter = _exporter(house)
    if not into.is_absolute():
        raise BadRequest(f"{into} is no whole path")
    if into.is_relative_to(house.home.root):
        raise BadRequest(f"{into} is inside the home itself", hint="name a place outside of it")
    sinks = await asyncio.to_thread(importlib.import_module, f"{ROOM}.sinks")
    tree = await asyncio.to_thread(importlib.import_module, f"{ROOM}.tree")
    agents = await asyncio.to_thread(_agents, house, tree.ExportedAgent)

    def tell(done: int, total: int) -> None:
        latest[:] = [ExportProgress(done, total)]

    try:
        sink = await asyncio.to_thread(sinks.ZipSink if into.suffix == PACKED else sinks.FolderSink, into)
        writer = tree.TreeWriter(exporter, sink, house.clock, tell)
        done = await writer.write(agents, house.home.root / "skills", str(into))
    except OSError as error:
        raise StorageError(f"{into} cannot be written: {error.strerror or error}") from None
    made = Copy("export", str(into), str(house.home.root), house.clock.now_ms())
    await asyncio.to_thread(Copies(house.home.root).note, made)  # so that `pal forget` knows of it
    return ExportReport(done.into, done.agents, done.sessions, done.entries, done.files, done.bytes, done.skipped)


def _agents(house: House, make: Any) -> list[Any]:
    config = load_config(house.home, os.environ).config
    main = default_agent(config)
    found = [agent_settings(config, house.home, agent_id) for agent_id in agent_ids(config)]
    return [make(each.agent_id, each.workspace, each.name, each.identity, each.agent_id == main) for each in found]


@operation("sessions.lines", scope="read", local=True)
async def write_lines(
    house: House, session: Annotated[str, "A key, or the id of a conversation, which may have ended."]
) -> AsyncIterator[Lines]:
    """The transcript of one conversation, piece by piece."""
    exporter = _exporter(house)
    kept = await _kept(house, exporter, session)
    room = await asyncio.to_thread(importlib.import_module, f"{ROOM}.transcripts")
    writing = room.Writing(kept, await asyncio.to_thread(_workspace, house, kept.session.agent))
    position = 0
    while rows := await exporter.rows(kept.session.id, position, PIECE):
        position, piece = rows[-1].position, io.BytesIO()
        await asyncio.to_thread(writing.add, rows, piece)
        yield Lines(piece.getvalue().decode())
    piece = io.BytesIO()
    writing.end(piece)
    yield Lines(piece.getvalue().decode())


def _workspace(house: House, agent: str) -> str:
    """Where its agent works; empty when it has only left conversations."""
    config = load_config(house.home, os.environ).config
    return str(agent_settings(config, house.home, agent).workspace) if agent in agent_ids(config) else ""


async def _kept(house: House, exporter: SessionExporter, named: str) -> Kept:
    """The conversation of a key or an id. Raises NotFound."""
    found = await require_session(house.sessions, named, agent=house.agents.default, archived=True)
    kept = await exporter.sessions(found.id)
    if not kept:
        raise NotFound(f"there is no session {named[:200]!r}", hint=LISTED)
    return kept[0]


def _exporter(house: House) -> SessionExporter:
    if house.exporter is None:
        raise NotOffered("this house gives nothing away")
    return house.exporter


OPERATIONS = (export_home, write_lines)
