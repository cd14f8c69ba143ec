"""What of a shown directory a command does not see, and what it can only read.

Where others listen, what belongs to the owner alone (MEMORY.md, memory/, the history in .git) is not there. In a turn
that has read text from outside, what later conversations begin with (AGENTS.md, skills/) can be neither changed nor
made: who writes there speaks for the owner. So that it cannot be made, an empty file is put in its place before. The
same is done in the folder of a sandbox for memory, which lies elsewhere: what a command wrote there nobody would read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palinurus.sandbox.sandbox import Mount
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import BOOTSTRAP, is_private
from palinurus.workspace.overlay import MEMORY_DIRECTORY
from palinurus.workspace.write import NEW_FILE, create_file

BEGINNINGS = tuple(name for slot in BOOTSTRAP for name in (slot.name, slot.older) if name)
SKILLS = "skills"


class Cover(Struct, frozen=True):
    """`name` is a path below the directory. An empty file or directory hides what is there, or keeps it from coming."""

    name: str
    how: Literal["as it is", "empty file", "empty directory"]


def make_room(mount: Mount) -> None:
    """Put an empty file where a command is to find none. Bubblewrap would make one that nobody can write."""
    names = {*(BEGINNINGS if mount.guarded else ()), *mount.closed} if mount.writable else set()
    for name in sorted(names):
        if os.path.lexists(mount.source / name):
            continue
        if name == MEMORY_DIRECTORY:
            (mount.source / name).mkdir(mode=0o700, exist_ok=True)
        else:
            create_file(Boundary(mount.source), name, b"", mode=0o600 if is_private(name) else NEW_FILE)


def covered(mount: Mount) -> tuple[Cover, ...]:
    """Its source must be resolved. A link is covered where it leads; outside the directory nothing is behind it."""
    found = {} if mount.private else dict(_hidden(mount.source))
    if mount.guarded and mount.writable:
        found = {**dict(_guarded(mount.source)), **found}
    found |= {place: _nothing(mount.source, place) for name in mount.closed if (place := _inside(mount.source, name))}
    return tuple(cover for _, cover in sorted(found.items()))


def _hidden(source: Path) -> Iterator[tuple[str, Cover]]:
    for name in sorted(os.listdir(source)):  # noqa: PTH208  names
        if is_private(name) and (place := _inside(source, name)):
            yield place, _nothing(source, place)


def _nothing(source: Path, place: str) -> Cover:
    return Cover(place, "empty directory" if (source / place).is_dir() else "empty file")


def _guarded(source: Path) -> Iterator[tuple[str, Cover]]:
    for name in (*BEGINNINGS, SKILLS):
        if os.path.lexists(source / name):
            if place := _inside(source, name):
                yield place, Cover(place, "as it is")
        else:
            yield name, Cover(name, "empty directory" if name == SKILLS else "empty file")


def _inside(source: Path, name: str) -> str:
    """Where it really lies below the source; empty when it is not there, or elsewhere."""
    real = Path(os.path.realpath(source / name))
    return str(real.relative_to(source)) if real != source and real.is_relative_to(source) and real.exists() else ""
