"""What of a workspace is read as the owner's word at the beginning of conversations: one list, for all who guard it.

Prompts are made from BOOTSTRAP and the files that the config adds, skills from the roots that skills/roots.py names; so
are these. Whoever writes there speaks for the owner, so a turn that has read text from outside needs a person's yes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from palinurus.workspace.files import BOOTSTRAP

SKILLS = "skills"
PROJECT_SKILLS = ".agents/skills"
WHOLE = "."  # a folder: the whole workspace


class Instructions(Struct, frozen=True):
    """Paths from the workspace. Names that differ in case are the same here, as they are on some disks."""

    files: tuple[str, ...] = tuple(name for slot in BOOTSTRAP for name in (slot.name, slot.older) if name)
    folders: tuple[str, ...] = (SKILLS, PROJECT_SKILLS)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.files, *self.folders)

    def hold(self, place: str) -> bool:
        """Whether a path is one of them or lies in one."""
        wanted = place.casefold()
        if WHOLE in self.folders or any(wanted == each.casefold() for each in self.files):
            return True
        return any(wanted == each or wanted.startswith(f"{each}/") for each in map(str.casefold, self.folders))

    def followed(self, root: Path) -> Instructions:
        """With where links of these names lead inside the workspace: the file behind `AGENTS.md` is as good as it."""
        files = (place for name in self.files if (place := path_inside(root, name)))
        folders = (place for name in self.folders if (place := path_inside(root, name)))
        return Instructions(
            tuple(dict.fromkeys((*self.files, *files))), tuple(dict.fromkeys((*self.folders, *folders)))
        )

    def find_loose(self, root: Path) -> str:
        """One that nobody can be kept from by its name alone: a link, or a file with another name; empty if none is."""
        names = (name.split("/") for name in self.names)
        above = {"/".join(parts[: at + 1]) for parts in names for at in range(len(parts))}
        found = spell(root, above)
        return next((place for name in sorted(found) for place in found[name] if _is_loose(root / place)), "")


INSTRUCTIONS = Instructions()


def instructions_in(workspace: Path, files: Iterable[str], folders: Iterable[str | Path]) -> Instructions:
    """Of a workspace: with the files that its config adds, and with those roots of skills that lie in it."""
    own = (os.path.normpath(name) for name in files)
    inside = (place for folder in folders if (place := _within(workspace, folder)))
    return Instructions(
        tuple(dict.fromkeys((*INSTRUCTIONS.files, *own))), tuple(dict.fromkeys((*INSTRUCTIONS.folders, *inside)))
    )


def path_inside(root: Path, name: str) -> str:
    """Where it really lies below a folder; empty when it is not there, is the folder itself, or lies elsewhere."""
    base, real = Path(os.path.realpath(root)), Path(os.path.realpath(root / name))
    return str(real.relative_to(base)) if real != base and real.is_relative_to(base) and real.exists() else ""


def spell(root: Path, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each name with itself, and with how it is written on the disk in whatever case. Each folder is listed once."""
    listed: dict[str, dict[str, list[str]]] = {}

    def alike(folder: str, part: str) -> list[str]:
        if folder not in listed:
            listed[folder] = _by_case(root / folder)
        return listed[folder].get(part.casefold(), [])

    found = {}
    for name in names:
        places = [""]
        for part in name.split("/"):
            places = [f"{place}/{each}".lstrip("/") for place in places for each in alike(place, part)]
        found[name] = tuple(dict.fromkeys((name, *places)))
    return found


def _by_case(folder: Path) -> dict[str, list[str]]:
    alike: dict[str, list[str]] = {}
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208  names
            alike.setdefault(name.casefold(), []).append(name)
    return alike


def _is_loose(path: Path) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(seen.st_mode) or (stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1)


def _within(workspace: Path, folder: str | Path) -> str:
    """As it is named, or as it really lies; the whole workspace when that lies in the folder."""
    base = os.path.realpath(workspace)
    for at, place in ((str(workspace), os.path.abspath(folder)), (base, os.path.realpath(folder))):  # noqa: PTH100
        if f"{at}/".startswith(f"{place}/"):
            return WHOLE
        if place.startswith(f"{at}/"):
            return os.path.relpath(place, at)
    return ""
