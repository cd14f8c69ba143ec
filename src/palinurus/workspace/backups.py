"""What a person's markdown held before an agent changed it, and any file that an agent deleted: promise 5.

    .pal/backups/SOUL.md/20261115-090000-000.md
    .pal/backups/memory/2026-11-01.md/20261115-090500-120.md

A copy is made before the file is touched, and if it cannot be made the file is left alone. For each file the last
twenty copies stay, and of each earlier day the first: twenty small edits in a row must not push out what was there in
the morning. The directory is private memory, hidden from searches, ignored by git, and closed to the hands that write.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.steps import Guard, told
from palinurus.workspace.write import create_file

PLACE = ".pal/backups"
KEPT = 20
KEPT_DAYS = 30
_TRIES = 50
_OWNED_DIRECTORIES = ("memory", "skills")

log = logging.getLogger(__name__)


def is_owned(path: str) -> bool:
    """Whether it is markdown that a person may have written: in the root, in memory/ and in skills/."""
    parts = path.casefold().split("/")
    return parts[-1].endswith(".md") and (len(parts) == 1 or parts[0] in _OWNED_DIRECTORIES)


def loses(before: bytes, after: bytes | None) -> bool:
    """Whether anything that was there is gone. Text added at the end costs nobody anything."""
    return bool(before.strip()) and (after is None or not after.startswith(before))


def keep_backup(boundary: Boundary, path: str, data: bytes, now_ms: int) -> str:
    """Keep a copy of what is in `path` and return where. Raises WorkspaceError when it cannot be kept."""
    boundary = boundary.holding(path)  # beside the file itself
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
    """Of the copies of one file, those that need not stay. Pure."""
    ordered = sorted(names)
    firsts: dict[str, str] = {}
    for name in ordered:
        firsts.setdefault(name[:8], name)
    kept = {*ordered[-KEPT:], *list(firsts.values())[-KEPT_DAYS:]}
    return [name for name in ordered if name not in kept]


def _name(at: datetime, path: str) -> str:
    return f"{at:%Y%m%d-%H%M%S}-{at.microsecond // 1000:03}{PurePosixPath(path).suffix.lower()}"


def _only(wanted: str) -> Guard:
    """A link on the way would lay private words somewhere else."""

    def guard(place: str) -> None:
        if wanted != place and not wanted.startswith(f"{place}/"):
            raise WorkspaceError(
                f"{wanted} leads to {place}", hint="backups need a plain directory .pal: move it aside"
            )

    return guard


def _prune(boundary: Boundary, directory: str) -> None:
    try:
        names = [entry.name for entry in boundary.list_directory(directory).entries if not entry.is_directory]
        for name in superfluous(names):
            with boundary.steps(f"{directory}/{name}") as place, told(name):
                os.unlink(place.name, dir_fd=place.directory)
    except (NotFound, WorkspaceError) as error:  # one copy too many harms nobody
        log.warning("old backups in %s could not be removed: %s", directory, error)
