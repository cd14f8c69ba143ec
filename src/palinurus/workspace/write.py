"""Whole files written inside the workspace: created, rewritten, deleted, and never half of any.

The new content goes to a temporary name in the same directory, is synced, and takes the place of the old by a rename
between descriptors that are held open. So nobody sees half a file, and a link that somebody puts in the file's place
meanwhile is replaced, not followed. What was there is read from the descriptor that was checked, and looked at once
more before the rename: what a person's editor saved in between is not thrown away.

A file with several names (hard links) gives this one name to the new content; the others keep the old. That is the
safe side: one of them may lie outside.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.boundary import MAX_BYTES, READ, Boundary, OpenFile
from palinurus.workspace.steps import Guard, Place, anything, give, told

ONE_AT_A_TIME = threading.Lock()
"""Reading a file and writing what follows from it belong together. One process writes a home, so a lock in it is
enough; it also stands between an appended line and a rewrite that would lose it."""

NEW_FILE = 0o644
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Change = Callable[[str, bytes | None], bytes]
"""Makes the new content from where the file really lies and what is in it, None when there is no file. May raise."""


class Written(Struct, frozen=True):
    """What became of a file. `path` is where it really lies, links followed."""

    path: str
    before: bytes | None  # None: it was created
    after: bytes | None  # None: it was deleted
    other_names: bool = False  # it had further names (hard links), which keep the old content


def whereabouts(boundary: Boundary, path: str) -> str:
    """Where a path leads, links followed; what is not there yet counts as itself.

    Raises OutsideWorkspace, and NotFound for a way that goes back out of what is not there.
    """
    try:
        with boundary.steps(path) as place:
            return place.path
    except NotFound:
        above, _, name = path.rstrip("/").rpartition("/")
        if name == "..":  # out of a directory that is not there
            raise
        start = whereabouts(boundary, above) if above else "."
        if name == ".":
            return start
        return name if start == "." else f"{start}/{name}"


def create_file(boundary: Boundary, path: str, data: bytes, *, mode: int = NEW_FILE, guard: Guard = anything) -> bool:
    """Write a file that was not there. False, and nothing is touched, when anything has that name already."""
    with boundary.steps(path, make_parents=True, guard=guard) as place, told(path):
        if place.stat is not None:
            return False
        guard(place.path)
        boundary.holding(place.path).note_written(place.path)
        return _create(place, data, mode)


def rewrite(
    boundary: Boundary, path: str, change: Change, *, create: bool, mode: int = NEW_FILE, guard: Guard = anything
) -> Written:
    """Give a file the content that `change` makes; `mode` is for a new one. Returns once it is on the disk.

    Raises NotFound, OutsideWorkspace or WorkspaceError, or what `change` or the guard raise, and then the file is as
    it was.
    """
    with ONE_AT_A_TIME, boundary.steps(path, make_parents=create, guard=guard) as place, told(path):
        before, found = _before(place, path, guard)
        if before is None and not create:
            raise NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")
        after = change(place.path, before)
        if len(after) > MAX_BYTES:
            raise WorkspaceError(f"{path} would have {len(after):,} bytes; {MAX_BYTES:,} are allowed", hint="split it")
        if found is None:
            if not _create(place, after, mode):
                raise _changed(path)
        elif after != before:
            _replace(place, path, after, found)
        boundary.holding(place.path).note_written(place.path)
        return Written(place.path, before, after, other_names=found is not None and found.st_nlink > 1)


def delete_file(
    boundary: Boundary, path: str, check: Callable[[str, bytes], None], *, guard: Guard = anything
) -> Written:
    """Delete a regular file; of a link, the file that it leads to. `check` sees what would be lost and may raise."""
    with ONE_AT_A_TIME, boundary.steps(path) as place, told(path):
        before, found = _before(place, path, guard)
        if before is None or found is None:
            raise NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")
        check(place.path, before)
        _check_same(place, path, found)
        os.unlink(place.name, dir_fd=place.directory)
        os.fsync(place.directory)
        boundary.holding(place.path).note_written(place.path)
        return Written(place.path, before, None, other_names=found.st_nlink > 1)


def _before(place: Place, path: str, guard: Guard) -> tuple[bytes | None, os.stat_result | None]:
    guard(place.path)
    if place.stat is None:
        return None, None
    _check_plain(path, place.stat)
    fd = os.open(place.name, READ, dir_fd=place.directory)
    try:
        found = os.fstat(fd)
        _check_plain(path, found)
        return OpenFile(fd, place.path, found).read(), found
    finally:
        os.close(fd)


def _check_plain(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise WorkspaceError(f"{path} is a directory, not a file", hint="name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise WorkspaceError(f"{path} is not a regular file", hint="only plain files are written")
    if not found.st_mode & 0o222:  # a rename would not ask
        raise WorkspaceError(f"{path} is read-only", hint="its owner can allow it with chmod u+w")


def _create(place: Place, data: bytes, mode: int) -> bool:
    temporary = _temporary()
    try:
        _write_new(place.directory, temporary, data, mode)
        created = _name_it(place, temporary)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place.directory)
    os.fsync(place.directory)
    return created


def _replace(place: Place, path: str, data: bytes, found: os.stat_result) -> None:
    temporary = _temporary()
    try:
        _write_new(place.directory, temporary, data, 0o600, like=found)
        _check_same(place, path, found)
        os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place.directory)
        raise
    os.fsync(place.directory)


def _temporary() -> str:
    return f".pal-{secrets.token_hex(6)}.tmp"  # not made of the file's name, which may be as long as a name can be


def _write_new(directory: int, name: str, data: bytes, mode: int, *, like: os.stat_result | None = None) -> None:
    fd = os.open(name, _CREATE, mode, dir_fd=directory)
    with os.fdopen(fd, "wb") as file:
        if like is None:
            give(fd, os.fstat(directory))
        else:
            _resemble(fd, like)
        file.write(data)
        file.flush()
        os.fsync(fd)


def _resemble(fd: int, old: os.stat_result) -> None:
    """Owner first: a change of owner may take bits of the mode away. What raises rights (setuid) is not carried on."""
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):  # somebody else's file in our directory becomes ours
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def _check_same(place: Place, path: str, found: os.stat_result) -> None:
    now = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    if _key(now) != _key(found):
        raise _changed(path)


def _changed(path: str) -> WorkspaceError:
    return WorkspaceError(f"{path} was changed by somebody else meanwhile", hint="read it again, then try again")


def _key(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _name_it(place: Place, temporary: str) -> bool:
    try:
        os.link(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except FileExistsError:
        return False
    except OSError:
        # Some file systems have no hard links. The look just before is then the best there is.
        with suppress(FileNotFoundError):
            os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            return False
        os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    return True
