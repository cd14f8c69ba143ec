"""How the folder of a sandbox follows the agent's own workspace, from which it began.

What an agent begins with (AGENTS.md, SOUL.md, IDENTITY.md and so on) is copied into the folder, and the session may
change its copy: from then on that file is the session's. A copy that nobody there has changed goes on being the
owner's: when he edits or removes the file, the copy follows. To tell the two apart the digest of what was last copied
is kept, outside the folder, where no command of the sandbox sees it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.sandbox.quarters import Quarters
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import BOOTSTRAP, is_private
from palinurus.workspace.overlay import MEMORY_FILES
from palinurus.workspace.write import delete_file, rewrite

RECORDS = ".seeds"

log = logging.getLogger(__name__)


def follow_workspace(place: Quarters, extra: Iterable[str] = ()) -> None:
    """Bring up to date what the session has not made its own. Blocks; what cannot be copied stays as it is."""
    if place.own is None or place.shared:
        return
    source, folder = Boundary(place.own), Boundary(place.workspace)
    path = place.workspace.parent / RECORDS / f"{place.workspace.name}.json"
    copied = _load(path)
    before = dict(copied)
    names = [*(slot.name for slot in BOOTSTRAP), *extra]
    for name in (name for name in names if not is_private(name)):
        try:
            theirs, ours = _read(source, name), _read(folder, name)
            if _digest(ours) not in (_digest(theirs), copied.get(name, "")):
                continue  # the session has changed it
            if _digest(ours) != _digest(theirs):
                _bring(folder, name, theirs, ours)
            copied[name] = _digest(theirs)
        except WorkspaceError as error:
            log.info("%s of the sandbox %s does not follow the agent's: %s", name, place.workspace.name, error)
    if copied != before:
        _save(path, copied)


def find_misplaced_notes(root: Path) -> list[Path]:
    """Folders of sandboxes with notes of their own, which memory no longer reads."""
    names = ("memory/*.md", *MEMORY_FILES)
    found = {path.parents[name.count("/")] for name in names for path in root.glob(f"*/{name}") if path.lstat().st_size}
    return sorted(found)


def _bring(folder: Boundary, name: str, theirs: bytes | None, ours: bytes | None) -> None:
    if theirs is not None:
        rewrite(folder, name, lambda *_: theirs, create=True)
    elif ours is not None:
        delete_file(folder, name, lambda *_: None)


def _read(boundary: Boundary, name: str) -> bytes | None:
    try:
        return boundary.read_bytes(name)
    except NotFound:
        return None


def _digest(data: bytes | None) -> str:
    """An empty file counts as none: a guarded command finds one in the place of each that is missing."""
    return hashlib.sha256(data).hexdigest()[:32] if data else ""


def _load(path: Path) -> dict[str, str]:
    with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    return {}


def _save(path: Path, copied: dict[str, str]) -> None:
    """Lost, or half written by a crash, it is made anew; what differs then counts as the session's."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(msgspec.json.encode(copied))
    except OSError as error:
        log.warning("what a sandbox was given could not be kept in %s: %s", path, error.strerror)
