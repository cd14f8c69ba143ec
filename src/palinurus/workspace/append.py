"""A line, or a few that belong together, at the end of a file inside the workspace.

It is appended by one write to a descriptor opened with O_APPEND, then synced. Reading and replacing the file would
also survive a crash, but it would throw away what a person's editor saved in between, and it would replace by path
what was checked by descriptor. Appending touches no byte that is already there. A power cut can tear only a line
that was not yet acknowledged, and the next line starts on a line of its own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from palinurus.domain.errors import WorkspaceError
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from palinurus.workspace.steps import told
from palinurus.workspace.write import ONE_AT_A_TIME

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def append_line(boundary: Boundary, path: str, line: str, *, heading: str = "") -> int:
    """Append one line and return its number. A new file begins with the heading and a blank line.

    Returns once the line is on the disk. Raises WorkspaceError, and leaves the file as it was, when it cannot be.
    """
    if "\n" in line or "\r" in line:
        raise WorkspaceError(f"only a single line can be appended to {path}")
    return _appended(boundary, path, [line], heading, "")


def append_block(boundary: Boundary, path: str, lines: Sequence[str], *, heading: str = "", mark: str = "") -> int:
    """Append lines, with a blank one before them, and return the number of the first of them.

    When the mark stands in the file already nothing is written: who was cut off before he knew may come again. Raises
    as `append_line`.
    """
    if any("\n" in line or "\r" in line for line in lines):
        raise WorkspaceError(f"only whole lines can be appended to {path}")
    return _appended(boundary, path, lines, heading, mark)


def _appended(boundary: Boundary, path: str, lines: Sequence[str], heading: str, mark: str) -> int:
    with ONE_AT_A_TIME, boundary.steps(path, make_parents=True) as place, told(path):
        if not place.name or (place.stat is not None and not stat.S_ISREG(place.stat.st_mode)):
            raise WorkspaceError(f"{path} is not a regular file", hint="lines are appended to plain files only")
        fd = os.open(place.name, _APPEND, 0o600, dir_fd=place.directory)
        try:
            boundary.check_links(place.path, fd)  # the line would appear under its other names as well
            number = _append(fd, path, lines, heading, mark)
            boundary.holding(place.path).note_written(place.path)
            if place.stat is None:
                os.fsync(place.directory)
        finally:
            os.close(fd)
    return number


def _append(fd: int, path: str, lines: Sequence[str], heading: str, mark: str) -> int:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise WorkspaceError(f"{path} is not a regular file", hint="lines are appended to plain files only")
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
    """One write. If the disk takes only a part, the part is taken back: half a note is worse than an error."""
    written = os.write(fd, data)
    if written < len(data):
        if os.fstat(fd).st_size == size + written:
            os.ftruncate(fd, size)
        raise OSError(errno.ENOSPC, "no space left for the whole line")
    os.fsync(fd)
