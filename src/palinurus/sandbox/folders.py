"""The private folder of a sandbox: how it is created from the agent's workspace and updated.

The files that an agent starts with (AGENTS.md, SOUL.md, IDENTITY.md and so on) are copied into the folder, and the
session may change its copy: from then on that file belongs to the session. An unchanged copy follows the owner's file
when that is edited or removed. To tell the two apart, the digest of the last copy is stored outside the folder, where
no command of the sandbox sees it.

`scratch_folder` is a temporary folder that is removed even if its creator was killed: the next call removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from palinurus.domain.errors import NotFound, SandboxError, WorkspaceError
from palinurus.sandbox.environment import ExecEnvironment
from palinurus.sandbox.sandbox import MIB
from palinurus.workspace.boundary import MEMORY_FILES, Boundary
from palinurus.workspace.files import BOOTSTRAP, is_private
from palinurus.workspace.write import delete_file, rewrite

RECORDS = ".seeds"
SEEDED_FILES, SEEDED_BYTES = 2_000, 64 * MIB  # of skills; more would delay the first command of a session

log = logging.getLogger(__name__)


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Creates a folder; unused ones with the same prefix are removed.

    While it is used its creator holds a lock on it, which the kernel releases when the creator dies.
    """
    folder = Path(parent or tempfile.gettempdir())
    for left in folder.glob(f"{prefix}*"):
        _sweep_folder(left)
    place, lock = _make_folder(prefix, folder)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def _make_folder(prefix: str, folder: Path) -> tuple[Path, int]:
    while True:
        place = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            lock = _open_folder(place)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if place.exists():
                return place, lock
            os.close(lock)


def _sweep_folder(place: Path) -> None:
    with suppress(OSError):  # another user's, no folder, or gone
        lock = _open_folder(place)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError while it is in use
            shutil.rmtree(place, ignore_errors=True)
        finally:
            os.close(lock)


def _open_folder(place: Path) -> int:
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def prepare_private(place: ExecEnvironment, source: Path) -> bool:
    """Creates the private workspace with the agent's markdown and skills.

    The owner's own files (MEMORY.md, USER.md, memory/) are not copied: others may take part in such a session. Once the
    directory exists it belongs to the session, and nothing is copied any more. Returns whether it was created.
    """
    if place.workspace.is_dir():
        return False
    root = place.workspace.parent
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with scratch_folder(".seeding-", root) as staged:
            for name, data, mode in _seeds(Boundary(source)):
                path = staged / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(mode)  # independent of the umask
            staged.rename(place.workspace)  # renamed as a whole: an existing one is complete
    except OSError as error:
        if place.workspace.is_dir():  # another process created it first
            return False
        raise SandboxError(f"no private workspace could be created at {place.workspace}: {error.strerror}") from error
    return True


def follow_workspace(place: ExecEnvironment, extra: Iterable[str] = ()) -> None:
    """Updates the files that the session has not changed. Blocks; what cannot be copied stays as it is."""
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
                if theirs is not None:
                    rewrite(folder, name, lambda *_, data=theirs: data, create=True)
                elif ours is not None:
                    delete_file(folder, name, lambda *_: None)
            copied[name] = _digest(theirs)
        except WorkspaceError as error:
            said = "%s of the sandbox %s could not be updated from the agent's workspace: %s"
            log.info(said, name, place.workspace.name, error)
    if copied != before:
        _save(path, copied)


def find_misplaced_notes(root: Path) -> list[Path]:
    """Returns sandbox folders with notes of their own, which memory no longer reads."""
    names = ("memory/*.md", *MEMORY_FILES)
    found = {path.parents[name.count("/")] for name in names for path in root.glob(f"*/{name}") if path.lstat().st_size}
    return sorted(found)


def _read(boundary: Boundary, name: str) -> bytes | None:
    try:
        return boundary.read_bytes(name)
    except NotFound:
        return None


def _digest(data: bytes | None) -> str:
    """Returns the digest. An empty file counts as none: a guarded command sees one in place of each missing file."""
    return hashlib.sha256(data).hexdigest()[:32] if data else ""


def _load(path: Path) -> dict[str, str]:
    with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    return {}


def _save(path: Path, copied: dict[str, str]) -> None:
    """Saves the digests. A lost or incomplete file is rebuilt; files that differ then count as the session's."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(msgspec.json.encode(copied))
    except OSError as error:
        log.warning("the digests of a sandbox could not be stored in %s: %s", path, error.strerror)


def _seeds(source: Boundary) -> Iterator[tuple[str, bytes, int]]:
    """Returns regular files inside the source only; links that lead out and unreadable files are left out."""
    names = [slot.name for slot in BOOTSTRAP if not slot.private]
    with suppress(NotFound, WorkspaceError):
        names += source.walk("skills", max_files=SEEDED_FILES).files
    left = SEEDED_BYTES
    for name in names:
        try:
            with source.open_file(name) as file:
                data = file.read()
                executable = file.stat.st_mode & 0o111
        except (NotFound, WorkspaceError):
            continue
        left -= len(data)
        if left < 0:
            return
        yield name, data, 0o755 if executable else 0o644
