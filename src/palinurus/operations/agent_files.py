"""The files that make an agent who it is: looked at and rewritten from any door.

Only those that every workspace may have (AGENTS.md, SOUL.md …) and the notes in memory/. Before a file loses anything
a copy is kept, and who says which content they went by is told when it has changed since.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, Stale, WorkspaceError
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.workspace.backups import keep_backup, loses
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from palinurus.workspace.files import BOOTSTRAP, is_private
from palinurus.workspace.steps import Guard
from palinurus.workspace.write import NEW_FILE, rewrite

NAMES = tuple(slot.name for slot in BOOTSTRAP)
NOTE = re.compile(r"memory/(?!\.)[^/\x00-\x1f\x7f\\]{1,120}\.md")
MOST_NOTES = 500


class ListFiles(Struct, frozen=True, rename="camel"):
    agent_id: str = ""


class GetFile(Struct, frozen=True, rename="camel"):
    name: str
    agent_id: str = ""


class SetFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`base_hash` and `expected_hash` (OpenClaw's name) are the same: the hash of what the file held before."""

    name: str
    content: str
    agent_id: str = ""
    base_hash: str = ""
    expected_hash: str = ""
    idempotency_key: str = ""


class AgentFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    path: str
    missing: bool
    size: int | None = None
    updated_at_ms: int | None = None
    hash: str | None = None  # SHA-256 of the bytes
    content: str | None = None


class FileList(Struct, frozen=True, rename="camel"):
    agent_id: str
    workspace: str
    files: tuple[AgentFile, ...]


class OneFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent_id: str
    workspace: str
    file: AgentFile


class SavedFile(Struct, frozen=True, rename="camel"):
    agent_id: str
    workspace: str
    file: AgentFile
    backup: str = ""  # where a copy of what it held lies
    ok: bool = True


async def _list(house: House, params: ListFiles) -> FileList:
    agent, boundary = _place(house, params.agent_id)
    return FileList(agent, str(boundary.root), await asyncio.to_thread(_all, boundary))


async def _get(house: House, params: GetFile) -> OneFile:
    agent, boundary = _place(house, params.agent_id)
    name = _allowed(params.name)
    return OneFile(agent, str(boundary.root), await asyncio.to_thread(_read, boundary, name))


async def _set(house: House, params: SetFile) -> SavedFile:
    agent, boundary = _place(house, params.agent_id)
    name = _allowed(params.name)
    data = _bytes(params.content)
    expected = (params.expected_hash or params.base_hash).lower()
    backup = await asyncio.to_thread(_write, boundary, name, data, expected, house.clock.now_ms())
    house.edited(agent, f"{name} edited")
    return SavedFile(agent, str(boundary.root), await asyncio.to_thread(_read, boundary, name), backup)


def _place(house: House, agent_id: str) -> tuple[str, Boundary]:
    agent = house.agents.get(agent_id.strip().lower() or house.agents.default)
    return agent.id, agent.files.boundary


def _allowed(name: str) -> str:
    if name in NAMES or NOTE.fullmatch(name):
        return name
    raise BadRequest(f"{name[:80]!r} is no file of an agent", hint=f"{', '.join(NAMES)} and memory/….md")


def _bytes(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise BadRequest("the content holds half of a character", hint="send whole ones") from None


def _all(boundary: Boundary) -> tuple[AgentFile, ...]:
    try:
        listed = boundary.list_directory("memory", max_entries=MOST_NOTES).entries
    except (NotFound, WorkspaceError):
        listed = ()
    notes = [f"memory/{entry.name}" for entry in listed if not entry.is_directory]
    return tuple(_about(boundary, name) for name in (*NAMES, *filter(NOTE.fullmatch, notes)))


def _about(boundary: Boundary, name: str) -> AgentFile:
    """Without its content; one that cannot be opened counts as missing, as for a prompt."""
    try:
        with boundary.open_file(name) as file:
            seen = file.stat
    except (NotFound, WorkspaceError):
        return _missing(boundary, name)
    return AgentFile(name, _path(boundary, name), False, seen.st_size, seen.st_mtime_ns // 1_000_000)


def _read(boundary: Boundary, name: str) -> AgentFile:
    try:
        with boundary.open_file(name) as file:
            data = file.read()
            seen = file.stat
    except NotFound:
        return _missing(boundary, name)
    text = data.decode("utf-8", "replace")
    return AgentFile(name, _path(boundary, name), False, len(data), seen.st_mtime_ns // 1_000_000, _hash(data), text)


def _missing(boundary: Boundary, name: str) -> AgentFile:
    return AgentFile(name, _path(boundary, name), missing=True)


def _path(boundary: Boundary, name: str) -> str:
    return str(Path(boundary.root) / name)


def _write(boundary: Boundary, name: str, data: bytes, expected: str, now_ms: int) -> str:
    """Returns where a copy of what was there lies, "" when nothing was lost."""
    if len(data) > MAX_BYTES:
        raise BadRequest(f"{name} would have {len(data):,} bytes; {MAX_BYTES:,} are allowed", hint="split it")
    backup = ""

    def change(place: str, before: bytes | None) -> bytes:
        nonlocal backup
        # Sent again after a crash, when the content stands there already: nothing is to be done.
        if expected and before != data and expected != (_hash(before) if before is not None else ""):
            raise Stale(f"{name} has changed since it was read", hint="read it again, then decide")
        if before is not None and loses(before, data):
            backup = keep_backup(boundary, place, before, now_ms)
        return data

    mode = 0o600 if is_private(name) else NEW_FILE
    rewrite(boundary, name, change, create=True, mode=mode, guard=_stays(name))
    return backup


def _stays(name: str) -> Guard:
    """A link may lead to another file of the workspace, and not into what belongs to git or to us."""

    def guard(place: str) -> None:
        if {".git", ".pal"} & set(place.casefold().split("/")):
            raise WorkspaceError(f"{name} leads to {place}, which is not written this way", hint="remove the link")

    return guard


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


LIST = Operation("agents.files.list", ListFiles, FileList, "read", _list)
GET = Operation("agents.files.get", GetFile, OneFile, "read", _get)
SET = Operation("agents.files.set", SetFile, SavedFile, "admin", _set)
OPERATIONS = (LIST, GET, SET)
