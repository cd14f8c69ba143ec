"""The workspace from any door: its files to be looked at, its history, and an old version put back.

What is written this way is only what `workspace.restore` puts back: a copy of what it replaces is kept, and who says
which content they went by is told when it has changed since. The files of an agent are edited by agents.files.set.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest, NotFound, OutsideWorkspace, Stale, WorkspaceError
from palinurus.operations.house import House
from palinurus.operations.operation import Positional, Private, Spelling, operation
from palinurus.workspace.backups import keep_backup, loses
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import is_private
from palinurus.workspace.history import Commit, History, LeftOut
from palinurus.workspace.steps import Guard
from palinurus.workspace.write import NEW_FILE, rewrite

MOST_ENTRIES = 2_000
MOST_TEXT = 1024 * 1024
MAX_MESSAGE = 2_000
_CLOSED = {".git", ".pal"}

FilePath = Annotated[str, Meta(max_length=4096)]
OfAgent = Annotated[str, Spelling("--agent"), "Whose workspace; the default agent's without it."]


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


class FileText(Struct, frozen=True, rename="camel"):
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
    commit: Commit | None  # null: nothing had changed
    left_out: tuple[LeftOut, ...] = ()


@operation("workspace.list", scope="read")
async def list_folder(house: House, agent_id: OfAgent = "", path: FilePath = ".") -> Folder:
    """What a folder of the workspace holds."""
    agent, boundary = _place(house, agent_id)
    place, entries, more = await asyncio.to_thread(_folder, boundary, _inside(path or "."))
    return Folder(agent, str(boundary.root), place, entries, more)


@operation("workspace.read", scope="read")
async def read_text(house: House, path: FilePath, agent_id: OfAgent = "") -> FileText:
    """What a file of the workspace holds, when it is text."""
    agent, boundary = _place(house, agent_id)
    return await asyncio.to_thread(_text, agent, boundary, _inside(path))


@operation("workspace.log", scope="read")
async def show_log(
    house: House,
    path: Annotated[FilePath, Positional] = "",
    limit: Annotated[int, Meta(ge=1, le=500)] = 20,
    before: Annotated[str, Private, "The id of a commit: only what is older."] = "",
    agent_id: OfAgent = "",
) -> WorkspaceLog:
    """List what was changed, the newest first; with PATH, of this file only.

    Examples:
      pal workspace log
      pal workspace log SOUL.md --limit 5
    """
    agent, boundary = _place(house, agent_id)
    place = _inside(path) if path else ""

    def look() -> WorkspaceLog:
        history = History(boundary.root)
        if why := history.why_not():
            return WorkspaceLog(agent, git=False, why=why)
        log = history.log(place, limit=limit, before=before)
        changed = [each for each in history.changed() if place in ("", each)]
        return WorkspaceLog(agent, True, "", len(changed), log.commits, log.has_more)

    return await asyncio.to_thread(look)


@operation("workspace.diff", scope="read")
async def show_diff(
    house: House,
    commit: Annotated[str, Positional] = "",
    path: Annotated[FilePath, "Of this file only."] = "",
    now: Annotated[bool, "From that commit to the files as they are."] = False,
    agent_id: OfAgent = "",
) -> WorkspaceDiff:
    """Show what a commit changed; without COMMIT, what is in none yet.

    Examples:
      pal workspace diff 3f2a9c1
      pal workspace diff 3f2a9c1 --now --path SOUL.md
    """
    agent, boundary = _place(house, agent_id)
    told = await asyncio.to_thread(History(boundary.root).diff, commit, _inside(path) if path else "", now=now)
    return WorkspaceDiff(agent, commit, "now" if now or not commit else "parent", told.text, told.truncated)


@operation("workspace.restore", scope="admin")
async def restore_file(
    house: House,
    path: FilePath,
    commit: str,
    agent_id: OfAgent = "",
    expected_hash: Annotated[str, Private, "Of what the file holds now; none takes whatever it is."] = "",
    idempotency_key: str = "",
) -> RestoredFile:
    """Put PATH back as it was at COMMIT. A copy of what it holds now is kept.

    Example:
      pal workspace restore SOUL.md 3f2a9c1
    """
    agent, boundary = _place(house, agent_id)
    place, now = _inside(path), house.clock.now_ms()

    def put_back() -> RestoredFile:
        data = History(boundary.root).content(commit, place)
        backup, changed = _put(boundary, place, data, expected_hash.lower(), now)
        return RestoredFile(agent, place, commit, _hash(data), changed, backup)

    done = await asyncio.to_thread(put_back)
    if done.changed:
        house.edited(agent, f"{place} as it was at {commit[:10]}")
    return done


@operation("workspace.commit", scope="admin")
async def commit_files(
    house: House,
    message: Annotated[str, Spelling("--message", "-m"), "What it is about; without it the files are named."] = "",
    agent_id: OfAgent = "",
    idempotency_key: str = "",
) -> CommittedFiles:
    """Keep the files as they are now as a point of the history.

    Example:
      pal workspace commit -m "Before the big tidy-up"
    """
    agent, boundary = _place(house, agent_id)
    done = await asyncio.to_thread(History(boundary.root).commit, " ".join(message.split())[:MAX_MESSAGE])
    return CommittedFiles(agent, done.commit, done.left_out)


def _place(house: House, agent_id: str) -> tuple[str, Boundary]:
    agent = house.agents.get(agent_id.strip().lower() or house.agents.default)
    return agent.id, agent.files.boundary


def _inside(path: str) -> str:
    """A path as git and people write it, from the workspace's root. Raises OutsideWorkspace."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path or not path.isprintable():
        raise OutsideWorkspace(f"{path[:80]!r} is no path inside the workspace", hint="name it from the workspace on")
    if _CLOSED & {part.casefold() for part in parts}:
        raise BadRequest(f"{path[:80]!r} belongs to git or to us", hint="name a file of the agent's own")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OutsideWorkspace("the path holds half of a character", hint="send whole ones") from None
    return "/".join(parts) or "."


def _folder(boundary: Boundary, path: str) -> tuple[str, tuple[FolderEntry, ...], bool]:
    listing = boundary.list_directory(path, max_entries=MOST_ENTRIES)
    base = "" if listing.path == "." else f"{listing.path}/"
    shown = [entry for entry in listing.entries if not entry.name.startswith(".") and _is_text(entry.name)]
    entries = [_entry(boundary, base + entry.name, entry.name, is_directory=entry.is_directory) for entry in shown]
    entries.sort(key=lambda each: (not each.is_directory, each.name.casefold(), each.name))
    return listing.path, tuple(entries), not listing.complete


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


def _text(agent: str, boundary: Boundary, path: str) -> FileText:
    with boundary.open_file(path) as file:
        data = file.read()
        at = file.stat.st_mtime_ns // 1_000_000
    digest, size = _hash(data), len(data)
    if b"\0" in data[:8192]:
        return FileText(agent, path, size, at, digest, binary=True)
    text = data[:MOST_TEXT].decode("utf-8", "replace")
    return FileText(agent, path, size, at, digest, text, truncated=size > MOST_TEXT)


def _put(boundary: Boundary, path: str, data: bytes, expected: str, now_ms: int) -> tuple[str, bool]:
    """Where a copy of what was there lies ("" when nothing was lost), and whether anything changed."""
    backup = ""

    def change(place: str, before: bytes | None) -> bytes:
        nonlocal backup
        if expected and before != data and expected != (_hash(before) if before is not None else ""):
            raise Stale(f"{path} has changed since it was read", hint="read it again, then decide")
        if before is not None and before != data and loses(before, data):
            backup = keep_backup(boundary, place, before, now_ms)
        return data

    mode = 0o600 if is_private(path) else NEW_FILE
    written = rewrite(boundary, path, change, create=True, mode=mode, guard=_stays(path))
    return backup, written.before != data


def _stays(path: str) -> Guard:
    """A link may lead to another file of the workspace, and not into what belongs to git or to us."""

    def guard(place: str) -> None:
        if _CLOSED & set(place.casefold().split("/")):
            raise WorkspaceError(f"{path} leads to {place}, which is not written this way", hint="remove the link")

    return guard


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


OPERATIONS = (list_folder, read_text, show_log, show_diff, restore_file, commit_files)
