"""The workspace of an agent from every surface: read its files, its history, restore an old version, edit agent files.

Only the files that every workspace may have (AGENTS.md, SOUL.md …) and the notes in memory/ are written by
`agents.files.set`; others are written only by `workspace.restore`. Before a file loses anything a copy is kept, and a
caller who names the hash of what it has read is refused when the file has changed since.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest, NotFound, OutsideWorkspace, Stale, WorkspaceError
from palinurus.operations.operation import OptionNames, Positional, Private, operation
from palinurus.operations.services import Services
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from palinurus.workspace.files import BOOTSTRAP, is_private
from palinurus.workspace.history import Commit, LeftOut, WorkspaceHistory
from palinurus.workspace.write import NEW_FILE, keep_backup, loses, rewrite

NAMES = tuple(slot.name for slot in BOOTSTRAP)
NOTE = re.compile(r"memory/(?!\.)[^/\x00-\x1f\x7f\\]{1,120}\.md")
MOST_NOTES = 500
MOST_ENTRIES = 2_000
MOST_TEXT = 1024 * 1024
MAX_MESSAGE = 2_000
_CLOSED = {".git", ".pal"}

FilePath = Annotated[str, Meta(max_length=4096)]
OfAgent = Annotated[str, OptionNames("--agent"), "Whose workspace. Default: the default agent's."]


class FolderEntry(Struct, frozen=True, rename="camel"):
    name: str
    path: str
    is_directory: bool
    size: int = 0
    updated_at_ms: int = 0


class Folder(Struct, frozen=True, rename="camel"):
    agent_id: str
    workspace: str
    path: str
    entries: tuple[FolderEntry, ...]
    more: bool = False  # there are more than are listed


class WorkspaceText(Struct, frozen=True, rename="camel"):
    agent_id: str
    path: str
    size: int
    updated_at_ms: int
    hash: str  # SHA-256 of the bytes
    text: str = ""
    binary: bool = False
    truncated: bool = False


class WorkspaceLog(Struct, frozen=True, rename="camel"):
    """`git` is false when there is no history, and `why` says so in one sentence."""

    agent_id: str
    git: bool
    why: str = ""
    changed: int = 0  # files that differ from the last commit
    commits: tuple[Commit, ...] = ()
    has_more: bool = False


class WorkspaceDiff(Struct, frozen=True, rename="camel"):
    agent_id: str
    commit: str
    to: str
    text: str
    truncated: bool = False


class RestoredFile(Struct, frozen=True, rename="camel"):
    agent_id: str
    path: str
    commit: str
    hash: str
    changed: bool
    backup: str = ""  # where a copy of what it held lies


class CommittedFiles(Struct, frozen=True, rename="camel"):
    agent_id: str
    commit: Commit | None  # null: nothing has changed
    left_out: tuple[LeftOut, ...] = ()


@operation("workspace.list", scope="read")
async def list_folder(services: Services, agent_id: OfAgent = "", path: FilePath = ".") -> Folder:
    """What a folder of the workspace holds."""
    agent, boundary = _workspace_of(services, agent_id)
    return await asyncio.to_thread(_folder, agent, boundary, _inside(path or "."))


@operation("workspace.read", scope="read")
async def read_text(services: Services, path: FilePath, agent_id: OfAgent = "") -> WorkspaceText:
    """What a file of the workspace holds, when it is text."""
    agent, boundary = _workspace_of(services, agent_id)
    return await asyncio.to_thread(_text, agent, boundary, _inside(path))


@operation("workspace.log", scope="read")
async def show_log(
    services: Services,
    path: Annotated[FilePath, Positional] = "",
    limit: Annotated[int, Meta(ge=1, le=500)] = 20,
    before: Annotated[str, Private, "The id of a commit: only what is older."] = "",
    agent_id: OfAgent = "",
) -> WorkspaceLog:
    """List commits, newest first; with PATH, only those of this file.

    Examples:
      pal workspace log
      pal workspace log SOUL.md --limit 5
    """
    agent, boundary = _workspace_of(services, agent_id)
    place = _inside(path) if path else ""

    def look() -> WorkspaceLog:
        history = WorkspaceHistory(boundary.root)
        if why := history.why_not():
            return WorkspaceLog(agent, git=False, why=why)
        log = history.log(place, limit=limit, before=before)
        changed = [each for each in history.changed() if place in ("", each)]
        return WorkspaceLog(agent, True, "", len(changed), log.commits, log.has_more)

    return await asyncio.to_thread(look)


@operation("workspace.diff", scope="read")
async def show_diff(
    services: Services,
    commit: Annotated[str, Positional] = "",
    path: Annotated[FilePath, "Only this file."] = "",
    now: Annotated[bool, "Compare that commit with the current files."] = False,
    agent_id: OfAgent = "",
) -> WorkspaceDiff:
    """Show what a commit changed; without COMMIT, what is not committed yet.

    Examples:
      pal workspace diff 3f2a9c1
      pal workspace diff 3f2a9c1 --now --path SOUL.md
    """
    agent, boundary = _workspace_of(services, agent_id)
    told = await asyncio.to_thread(WorkspaceHistory(boundary.root).diff, commit, _inside(path) if path else "", now=now)
    return WorkspaceDiff(agent, commit, "now" if now or not commit else "parent", told.text, told.truncated)


@operation("workspace.restore", scope="admin")
async def restore_file(
    services: Services,
    path: FilePath,
    commit: str,
    agent_id: OfAgent = "",
    expected_hash: Annotated[str, Private, "Of what the file holds now; none takes whatever it is."] = "",
) -> RestoredFile:
    """Restore PATH as it was at COMMIT. A copy of the current file is kept.

    Example:
      pal workspace restore SOUL.md 3f2a9c1
    """
    agent, boundary = _workspace_of(services, agent_id)
    place, now = _inside(path), services.clock.now_ms()

    def put_back() -> RestoredFile:
        data = WorkspaceHistory(boundary.root).content(commit, place)
        backup, changed = _put(boundary, place, data, expected_hash.lower(), now)
        return RestoredFile(agent, place, commit, _hash(data), changed, backup)

    done = await asyncio.to_thread(put_back)
    if done.changed:
        services.edited(agent, f"{place} as it was at {commit[:10]}")
    return done


@operation("workspace.commit", scope="admin")
async def commit_files(
    services: Services,
    message: Annotated[
        str, OptionNames("--message", "-m"), "The commit message. Default: the names of the files."
    ] = "",
    agent_id: OfAgent = "",
) -> CommittedFiles:
    """Commit the files as they are now.

    Example:
      pal workspace commit -m "Before the big tidy-up"
    """
    agent, boundary = _workspace_of(services, agent_id)
    done = await asyncio.to_thread(WorkspaceHistory(boundary.root).commit, " ".join(message.split())[:MAX_MESSAGE])
    return CommittedFiles(agent, done.commit, done.left_out)


def _workspace_of(services: Services, agent_id: str) -> tuple[str, Boundary]:
    agent = services.agents.get(agent_id.strip().lower() or services.agents.default)
    return agent.id, agent.files.boundary


def _inside(path: str) -> str:
    """A path as git and people write it, from the workspace's root. Raises OutsideWorkspace."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path or not path.isprintable():
        raise OutsideWorkspace(
            f"{path[:80]!r} is not a path inside the workspace", hint="name it from the workspace on"
        )
    if _CLOSED & {part.casefold() for part in parts}:
        raise BadRequest(f"{path[:80]!r} belongs to git or to us", hint="name a file of the agent's own")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OutsideWorkspace("the path ends in the middle of a character", hint="send whole ones") from None
    return "/".join(parts) or "."


def _folder(agent: str, boundary: Boundary, path: str) -> Folder:
    listing = boundary.list_directory(path, max_entries=MOST_ENTRIES)
    base = "" if listing.path == "." else f"{listing.path}/"
    shown = [entry for entry in listing.entries if not entry.name.startswith(".") and _is_text(entry.name)]
    entries = [_entry(boundary, base + entry.name, entry.name, is_directory=entry.is_directory) for entry in shown]
    entries.sort(key=lambda each: (not each.is_directory, each.name.casefold(), each.name))
    return Folder(agent, str(boundary.root), listing.path, tuple(entries), not listing.complete)


def _is_text(name: str) -> bool:
    """A name that JSON can carry; others exist on disks."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _entry(boundary: Boundary, path: str, name: str, *, is_directory: bool) -> FolderEntry:
    if is_directory:
        return FolderEntry(name, path, is_directory=True)
    try:
        with boundary.open_file(path) as file:
            return FolderEntry(name, path, False, file.stat.st_size, file.stat.st_mtime_ns // 1_000_000)
    except (NotFound, WorkspaceError):  # a link that leads out, a device: named, and not opened
        return FolderEntry(name, path, is_directory=False)


def _text(agent: str, boundary: Boundary, path: str) -> WorkspaceText:
    with boundary.open_file(path) as file:
        data, at = file.read(), file.stat.st_mtime_ns // 1_000_000
    digest, size = _hash(data), len(data)
    if b"\0" in data[:8192]:
        return WorkspaceText(agent, path, size, at, digest, binary=True)
    text = data[:MOST_TEXT].decode("utf-8", "replace")
    return WorkspaceText(agent, path, size, at, digest, text, truncated=size > MOST_TEXT)


def _put(boundary: Boundary, path: str, data: bytes, expected: str, now_ms: int) -> tuple[str, bool]:
    """Where a copy of what was there lies ("" when nothing was lost), and whether anything changed."""
    backup = ""

    def change(place: str, before: bytes | None) -> bytes:
        nonlocal backup
        # Sent again after a crash, when the content is there already: nothing is to be done.
        if expected and before != data and expected != (_hash(before) if before is not None else ""):
            raise Stale(f"{path} has changed since it was read", hint="read it again, then decide")
        if before is not None and before != data and loses(before, data):
            backup = keep_backup(boundary, place, before, now_ms)
        return data

    def stay(place: str) -> None:
        """A link may lead to another file of the workspace, and not into what belongs to git or to us."""
        if _CLOSED & set(place.casefold().split("/")):
            raise WorkspaceError(f"{path} leads to {place}, which is not written this way", hint="remove the link")

    mode = 0o600 if is_private(path) else NEW_FILE
    written = rewrite(boundary, path, change, create=True, mode=mode, guard=stay)
    return backup, written.before != data


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class AgentFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    path: str
    missing: bool
    size: int | None = None
    updated_at_ms: int | None = None
    hash: str | None = None  # SHA-256 of the bytes
    content: str | None = None


class AgentFileList(Struct, frozen=True, rename="camel"):
    agent_id: str
    workspace: str
    files: tuple[AgentFile, ...]


class AgentFileReply(Struct, frozen=True, rename="camel"):
    agent_id: str
    workspace: str
    file: AgentFile


class SavedAgentFile(AgentFileReply, frozen=True, rename="camel"):
    backup: str = ""  # where a copy of what it held lies
    ok: bool = True


@operation("agents.files.list", scope="read", strict=False)
async def list_files(services: Services, agent_id: str = "") -> AgentFileList:
    """The files of an agent that its prompt reads, and its notes."""
    agent, boundary = _workspace_of(services, agent_id)
    return AgentFileList(agent, str(boundary.root), await asyncio.to_thread(_list_files, boundary))


@operation("agents.files.get", scope="read", strict=False)
async def get_file(services: Services, name: str, agent_id: str = "") -> AgentFileReply:
    """One file of an agent."""
    agent, boundary = _workspace_of(services, agent_id)
    allowed = _allowed(name)
    return AgentFileReply(agent, str(boundary.root), await asyncio.to_thread(_read_file, boundary, allowed))


@operation("agents.files.set", scope="admin", strict=False)
async def set_file(
    services: Services,
    name: str,
    content: str,
    agent_id: str = "",
    base_hash: Annotated[str, "Of what the file held before."] = "",
    expected_hash: Annotated[str, "The same, as OpenClaw calls it."] = "",
) -> SavedAgentFile:
    """Write one file of an agent."""
    agent, boundary = _workspace_of(services, agent_id)
    allowed, expected = _allowed(name), (expected_hash or base_hash).lower()
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise BadRequest("the content ends in the middle of a character", hint="send whole ones") from None
    if len(data) > MAX_BYTES:
        raise BadRequest(f"{allowed} would have {len(data):,} bytes; {MAX_BYTES:,} are allowed", hint="split it")
    backup, _ = await asyncio.to_thread(_put, boundary, allowed, data, expected, services.clock.now_ms())
    services.edited(agent, f"{allowed} edited")
    return SavedAgentFile(agent, str(boundary.root), await asyncio.to_thread(_read_file, boundary, allowed), backup)


def _allowed(name: str) -> str:
    if name in NAMES or NOTE.fullmatch(name):
        return name
    raise BadRequest(f"{name[:80]!r} is not a file of an agent", hint=f"{', '.join(NAMES)} and memory/….md")


def _list_files(boundary: Boundary) -> tuple[AgentFile, ...]:
    try:
        listed = boundary.list_directory("memory", max_entries=MOST_NOTES).entries
    except (NotFound, WorkspaceError):
        listed = ()
    notes = [f"memory/{entry.name}" for entry in listed if not entry.is_directory]
    return tuple(_stat_file(boundary, name) for name in (*NAMES, *filter(NOTE.fullmatch, notes)))


def _stat_file(boundary: Boundary, name: str) -> AgentFile:
    """Without its content; one that cannot be opened counts as missing, as for a prompt."""
    path = str(boundary.root / name)
    try:
        with boundary.open_file(name) as file:
            return AgentFile(name, path, False, file.stat.st_size, file.stat.st_mtime_ns // 1_000_000)
    except (NotFound, WorkspaceError):
        return AgentFile(name, path, missing=True)


def _read_file(boundary: Boundary, name: str) -> AgentFile:
    path = str(boundary.root / name)
    try:
        with boundary.open_file(name) as file:
            data, at = file.read(), file.stat.st_mtime_ns // 1_000_000
    except NotFound:
        return AgentFile(name, path, missing=True)
    return AgentFile(name, path, False, len(data), at, _hash(data), data.decode("utf-8", "replace"))
