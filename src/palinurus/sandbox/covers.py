"""What of a shown directory a command does not see, and what it can only read.

Where others listen, what belongs to the owner alone (MEMORY.md, memory/, the history in .git) is not there. In a turn
that has read text from outside, what later conversations begin with (AGENTS.md, skills/) can be neither changed nor
made: who writes there speaks for the owner. So that it cannot be made, an empty file or folder is put in its place
before; the folders above it are mounts of their own, which cannot be moved away. The same is done in the folder of a
sandbox for memory, which lies elsewhere: what a command wrote there nobody would read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palinurus.sandbox.sandbox import Mount
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import is_private
from palinurus.workspace.instructions import Instructions, path_inside, spell
from palinurus.workspace.overlay import MEMORY_DIRECTORY
from palinurus.workspace.write import NEW_FILE, create_file


class Cover(Struct, frozen=True):
    """`name` is a path below the directory. An empty file or directory hides what is there, or keeps it from coming.

    What is held stays writable, and where it is.
    """

    name: str
    how: Literal["as it is", "held", "empty file", "empty directory"]


def make_room(mount: Mount) -> None:
    """Put an empty file where a command is to find none. Bubblewrap would make one that nobody can write."""
    told = mount.instructions
    folders = {MEMORY_DIRECTORY, *told.folders}
    names = {*(told.names if mount.guarded else ()), *mount.closed} if mount.writable else set()
    for name in sorted(names):
        if (
            os.path.lexists(mount.source / name)
            or _in_the_way(mount.source, name)
            or _behind_a_link(mount.source, name)
        ):
            continue
        if name in folders:
            (mount.source / name).mkdir(mode=0o700 if is_private(name) else 0o755, parents=True, exist_ok=True)
        else:
            create_file(Boundary(mount.source), name, b"", mode=0o600 if is_private(name) else NEW_FILE)


def covered(mount: Mount) -> tuple[Cover, ...]:
    """Its source must be resolved. A link is covered where it leads; outside the directory nothing is behind it."""
    found = {} if mount.private else dict(_hidden(mount.source))
    if mount.guarded and mount.writable:
        found = {**_guarded(mount.source, mount.instructions), **found}
    found |= {
        place: _nothing(mount.source, place) for name in mount.closed if (place := path_inside(mount.source, name))
    }
    whole = {place for place, cover in found.items() if cover.how != "held"}
    return tuple(cover for place, cover in sorted(found.items()) if not whole & set(_above(place)))


def _hidden(source: Path) -> Iterator[tuple[str, Cover]]:
    for name in sorted(os.listdir(source)):  # noqa: PTH208  names
        if is_private(name) and (place := path_inside(source, name)):
            yield place, _nothing(source, place)


def _nothing(source: Path, place: str) -> Cover:
    return Cover(place, "empty directory" if (source / place).is_dir() else "empty file")


def _guarded(source: Path, told: Instructions) -> dict[str, Cover]:
    found: dict[str, Cover] = {}
    spelled = spell(source, told.names)
    places = {place: name in told.folders for name in told.names for place in spelled[name]}
    for place, folder in places.items():
        if in_the_way := _in_the_way(source, place):
            found[in_the_way] = Cover(in_the_way, "as it is")
        elif not os.path.lexists(source / place):
            if _behind_a_link(source, place):
                continue  # a person is asked: see Instructions.find_loose
            found[place] = Cover(place, "empty directory" if folder else "empty file")
        elif real := path_inside(source, place):
            found[real] = Cover(real, "as it is")
    above = {each for place in found for each in _above(place)}
    return {**{each: Cover(each, "held") for each in above if (source / each).is_dir()}, **found}


def _above(place: str) -> list[str]:
    """The folders that it lies in, below the source."""
    return [str(each) for each in Path(place).parents if str(each) != "."]


def _in_the_way(source: Path, name: str) -> str:
    """The file that stands where a folder above it would lie: while it stays, the name cannot be made."""
    return next((each for each in _above(name) if (source / each).is_file()), "")


def _behind_a_link(source: Path, name: str) -> bool:
    return any((source / each).is_symlink() for each in _above(name))
