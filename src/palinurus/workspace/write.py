"""Files written inside the workspace: created, rewritten, deleted, never half of any; lines appended; backups kept.

The new content goes to a temporary name in the same directory, is synced, and takes the place of the old by a rename
between descriptors that are held open. So nobody sees half a file, and a link that somebody puts in the file's place
meanwhile is replaced, not followed. What was there is read from the descriptor that was checked, and looked at once
more before the rename: what a person's editor saved in between is not thrown away.

A file with several names (hard links) gives this one name to the new content; the others keep the old. That is the
safe side: one of them may lie outside.

A line, or a few that belong together, is appended by one write to a descriptor opened with O_APPEND, then synced.
Reading and replacing the file would also survive a crash, but it would throw away what a person's editor saved in
between, and it would replace by path what was checked by descriptor. Appending touches no byte that is already there. A
power cut can tear only a line that was not yet acknowledged, and the next line starts on a line of its own.

What a person's markdown held before an agent changed it is kept, and any file that an agent deleted (promise 5):

    .pal/backups/SOUL.md/20261115-090000-000.md
    .pal/backups/memory/2026-11-01.md/20261115-090500-120.md

A copy is made before the file is touched, and if it cannot be made the file is left alone. For each file the last
twenty copies stay, and of each earlier day the first: twenty small edits in a row must not push out what was there in
the morning. The directory is private memory, hidden from searches, ignored by git, and closed to the tools that write.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

from msgspec import Struct

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.boundary import MAX_BYTES, READ, Boundary, OpenFile, check_regular
from palinurus.workspace.steps import Guard, ResolvedPath, anything, give, no_file, opened, path_errors

ONE_AT_A_TIME = threading.Lock()
"""A read and the write that depends on it form one unit. One process writes a home, so a lock in it is enough; it also
prevents a rewrite from losing an appended line.
"""

NEW_FILE = 0o644
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Change = Callable[[str, bytes | None], bytes]
"""Computes the new content from the real path and the old content, None if there is no file. May raise."""

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
PLACE = ".pal/backups"
MAX_COPIES = 20
MAX_DAYS = 30
_TRIES = 50
_OWNED_DIRECTORIES = ("memory", "bank", "skills")

log = logging.getLogger(__name__)


class WrittenFile(Struct, frozen=True):
    """The result of a write. `path` is the real path after links."""

    path: str
    before: bytes | None  # None: it was created
    after: bytes | None  # None: it was deleted
    other_names: bool = False  # it had further names (hard links), which keep the old content


def whereabouts(boundary: Boundary, path: str) -> str:
    """Where a path leads after links; a missing file counts as itself.

    Raises OutsideWorkspace, and NotFound if `..` follows a missing directory.
    """
    try:
        with boundary.steps(path) as place:
            return place.path
    except NotFound:
        above, _, name = path.rstrip("/").rpartition("/")
        if name == "..":  # `..` after a missing directory
            raise
        start = whereabouts(boundary, above) if above else "."
        if name == ".":
            return start
        return name if start == "." else f"{start}/{name}"


def create_file(boundary: Boundary, path: str, data: bytes, *, mode: int = NEW_FILE, guard: Guard = anything) -> bool:
    """Writes a new file. Returns False, without changes, if the name exists already."""
    with boundary.steps(path, make_parents=True, guard=guard) as place, path_errors(path):
        if place.stat is not None:
            return False
        guard(place.path)
        boundary.holding(place.path).note_written(place.path)
        return _create(place, data, mode)


def rewrite(
    boundary: Boundary,
    path: str,
    change: Change,
    *,
    create: bool,
    mode: int = NEW_FILE,
    guard: Guard = anything,
    most: int = MAX_BYTES,
) -> WrittenFile:
    """Replaces a file's content with the result of `change`; `mode` is for a new file. Returns once it is on the disk.

    Raises NotFound, OutsideWorkspace or WorkspaceError, or what `change` or the guard raise; the file is then
    unchanged.
    """
    with ONE_AT_A_TIME, boundary.steps(path, make_parents=create, guard=guard) as place, path_errors(path):
        before, found = _before(place, path, guard, most)
        if before is None and not create:
            raise no_file(path)
        after = change(place.path, before)
        if len(after) > most:
            raise WorkspaceError(f"{path} would have {len(after):,} bytes; {most:,} are allowed", hint="split it")
        if found is None:
            if not _create(place, after, mode):
                raise _changed(path)
        elif after != before:
            _replace(place, path, after, found)
        boundary.holding(place.path).note_written(place.path)
        return WrittenFile(place.path, before, after, other_names=found is not None and found.st_nlink > 1)


def delete_file(
    boundary: Boundary, path: str, check: Callable[[str, bytes], None], *, guard: Guard = anything
) -> WrittenFile:
    """Deletes a regular file; of a link, its target. `check` gets the content and may raise."""
    with ONE_AT_A_TIME, boundary.steps(path) as place, path_errors(path):
        before, found = _before(place, path, guard)
        if before is None or found is None:
            raise no_file(path)
        check(place.path, before)
        _check_same(place, path, found)
        os.unlink(place.name, dir_fd=place.directory)
        os.fsync(place.directory)
        boundary.holding(place.path).note_written(place.path)
        return WrittenFile(place.path, before, None, other_names=found.st_nlink > 1)


def _before(
    place: ResolvedPath, path: str, guard: Guard, most: int = MAX_BYTES
) -> tuple[bytes | None, os.stat_result | None]:
    guard(place.path)
    if place.stat is None:
        return None, None
    _check_writable(path, place.stat)
    with opened(place.name, READ, place.directory) as fd:
        found = os.fstat(fd)
        _check_writable(path, found)
        return OpenFile(fd, place.path, found).read(most), found


def _check_writable(path: str, found: os.stat_result) -> None:
    check_regular(path, found, "name a file in it", "written")
    if not found.st_mode & 0o222:  # a rename would ignore the mode
        raise WorkspaceError(f"{path} is read-only", hint="its owner can allow it with chmod u+w")


def _create(place: ResolvedPath, data: bytes, mode: int) -> bool:
    with _temporary(place.directory, data, mode) as temporary:
        return _name_it(place, temporary)


def _replace(place: ResolvedPath, path: str, data: bytes, found: os.stat_result) -> None:
    with _temporary(place.directory, data, 0o600, like=found) as temporary:
        _check_same(place, path, found)
        os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)


@contextmanager
def _temporary(directory: int, data: bytes, mode: int, *, like: os.stat_result | None = None) -> Iterator[str]:
    """A new file, which has its name, or none, at the end of the block; then the directory is synced."""
    name = f".pal-{secrets.token_hex(6)}.tmp"  # independent of the file's name, which may have the maximum length
    try:
        fd = os.open(name, _CREATE, mode, dir_fd=directory)
        with os.fdopen(fd, "wb") as file:
            if like is None:
                give(fd, os.fstat(directory))
            else:
                _resemble(fd, like)
            file.write(data)
            file.flush()
            os.fsync(fd)
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
    os.fsync(directory)


def _resemble(fd: int, old: os.stat_result) -> None:
    """Copies owner, then mode: a change of owner may clear mode bits. Setuid and setgid are not copied."""
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):  # a file of another owner in our directory becomes ours
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def _check_same(place: ResolvedPath, path: str, found: os.stat_result) -> None:
    now = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    if _key(now) != _key(found):
        raise _changed(path)


def _changed(path: str) -> WorkspaceError:
    return WorkspaceError(f"{path} was changed by another program meanwhile", hint="read it again, then try again")


def _key(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _name_it(place: ResolvedPath, temporary: str) -> bool:
    try:
        os.link(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except FileExistsError:
        return False
    except OSError:
        # Some file systems have no hard links. The check just before is then the best there is.
        with suppress(FileNotFoundError):
            os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            return False
        os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    return True


def append_line(boundary: Boundary, path: str, line: str, *, heading: str = "") -> int:
    """Appends one line and returns its number. A new file begins with the heading and a blank line.

    Returns once the line is on the disk. Raises WorkspaceError, with the file unchanged, if it fails.
    """
    return append_block(boundary, path, [line], heading=heading)


def append_block(boundary: Boundary, path: str, lines: Sequence[str], *, heading: str = "", mark: str = "") -> int:
    """Appends lines after a blank one and returns the number of the first.

    If the mark is already in the file nothing is written: an interrupted caller may call again. Raises as
    `append_line`.
    """
    if any("\n" in line or "\r" in line for line in lines):
        raise WorkspaceError(f"only single lines can be appended to {path}")
    with ONE_AT_A_TIME, boundary.steps(path, make_parents=True) as place, path_errors(path):
        if place.stat is not None:
            _check_appendable(path, place.stat)
        with opened(place.name, _APPEND, place.directory, 0o600) as fd:
            boundary.check_links(place.path, fd)  # the line would appear under its other names as well
            number = _append(fd, path, lines, heading, mark)
            boundary.holding(place.path).note_written(place.path)
            if place.stat is None:
                os.fsync(place.directory)
    return number


def _check_appendable(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise WorkspaceError(f"{path} is not a regular file", hint="lines are appended to plain files only")


def _append(fd: int, path: str, lines: Sequence[str], heading: str, mark: str) -> int:
    _check_appendable(path, os.fstat(fd))
    before = os.pread(fd, MAX_BYTES + 1, 0)
    if mark and (at := before.find(mark.encode())) >= 0:
        return before.count(b"\n", 0, at) + 1
    start = f"{heading}\n\n" if heading and not before else ""
    if before and not before.endswith(b"\n"):
        start = "\n"
    if before and len(lines) > 1:
        start += "\n"
    data = (start + "\n".join(lines) + "\n").encode()
    if len(before) + len(data) > MAX_BYTES:
        raise WorkspaceError(f"{path} would grow over {MAX_BYTES:,} bytes", hint="move old lines to another file")
    _write_whole(fd, data, len(before))
    return before.count(b"\n") + start.count("\n") + 1


def _write_whole(fd: int, data: bytes, size: int) -> None:
    """One write. If the disk takes only a part, the part is removed again."""
    written = os.write(fd, data)
    if written < len(data):
        if os.fstat(fd).st_size == size + written:
            os.ftruncate(fd, size)
        raise OSError(errno.ENOSPC, "no space left for the whole line")
    os.fsync(fd)


def is_owned(path: str) -> bool:
    """Whether it is markdown that a person may have written: in the root, in memory/, bank/ and skills/."""
    parts = path.casefold().split("/")
    return parts[-1].endswith(".md") and (len(parts) == 1 or parts[0] in _OWNED_DIRECTORIES)


def loses(before: bytes, after: bytes | None) -> bool:
    """Whether any of the old content is lost. Appended text loses nothing."""
    return bool(before.strip()) and (after is None or not after.startswith(before))


def keep_backup(boundary: Boundary, path: str, data: bytes, now_ms: int) -> str:
    """Stores a copy of the content of `path` and returns its path. Raises WorkspaceError if it cannot."""
    boundary = boundary.holding(path)  # in the directory of the file's own backups
    create_file(boundary, ".pal/.gitignore", b"*\n", guard=_only(".pal/.gitignore"))
    directory = f"{PLACE}/{path}"
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    for later in range(_TRIES):  # two in one millisecond, or a clock that was set back
        wanted = f"{directory}/{_name(at + timedelta(milliseconds=later), path)}"
        if create_file(boundary, wanted, data, mode=0o600, guard=_only(wanted)):
            _prune(boundary, directory)
            return wanted
    raise WorkspaceError(f"no backup of {path} could be made, so it was left as it is", hint=f"look into {directory}")


def superfluous(names: list[str]) -> list[str]:
    """The backups of one file that can be removed. Pure."""
    ordered = sorted(names)
    firsts: dict[str, str] = {}
    for name in ordered:
        firsts.setdefault(name[:8], name)
    remaining = {*ordered[-MAX_COPIES:], *list(firsts.values())[-MAX_DAYS:]}
    return [name for name in ordered if name not in remaining]


def _name(at: datetime, path: str) -> str:
    return f"{at:%Y%m%d-%H%M%S}-{at.microsecond // 1000:03}{PurePosixPath(path).suffix.lower()}"


def _only(wanted: str) -> Guard:
    """Refuses a link in the path, which would put private text elsewhere."""

    def guard(place: str) -> None:
        if wanted != place and not wanted.startswith(f"{place}/"):
            hint = "backups need a plain directory .pal: move it aside"
            raise WorkspaceError(f"{wanted} leads to {place}", hint=hint)

    return guard


def _prune(boundary: Boundary, directory: str) -> None:
    try:
        names = [entry.name for entry in boundary.list_directory(directory).entries if not entry.is_directory]
        for name in superfluous(names):
            with boundary.steps(f"{directory}/{name}") as place, path_errors(name):
                os.unlink(place.name, dir_fd=place.directory)
    except (NotFound, WorkspaceError) as error:  # one backup too many does no harm
        log.warning("old backups in %s could not be removed: %s", directory, error)
