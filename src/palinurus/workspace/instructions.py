"""The files and folders of a workspace that are read as the owner's instructions: one list for all code that guards
them.

Prompts are made from BOOTSTRAP and the files that the config adds, skills from the roots of skills/discovery.py. When
the gateway starts, BOOT.md is run; the folder `hooks` holds code. All this counts as the owner's word, so a turn that
has read outside text needs approval to change it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from palinurus.workspace.boundary import PROJECT_SKILLS, SKILLS
from palinurus.workspace.files import BOOTSTRAP

WHOLE = "."  # a folder: the whole workspace
BOOT, HOOKS = "BOOT.md", "hooks"  # what the extension hooks runs


class Instructions(Struct, frozen=True):
    """Paths from the workspace. Case is ignored, as on some disks."""

    files: tuple[str, ...] = (BOOT, *(name for slot in BOOTSTRAP for name in (slot.name, slot.older) if name))
    folders: tuple[str, ...] = (SKILLS, PROJECT_SKILLS, HOOKS)
    records: tuple[str, ...] = ()  # files that record which skills came from a registry

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.files, *self.folders)

    def hold(self, place: str) -> bool:
        """Whether a path is one of them or is inside one."""
        wanted = place.casefold()
        if WHOLE in self.folders or any(wanted == each.casefold() for each in (*self.files, *self.records)):
            return True
        return any(wanted == each or wanted.startswith(f"{each}/") for each in map(str.casefold, self.folders))

    def followed(self, root: Path) -> Instructions:
        """Adds the link targets inside the workspace: the file behind `AGENTS.md` counts too."""
        files, folders = (
            tuple(dict.fromkeys((*names, *filter(None, (path_inside(root, name) for name in names)))))
            for names in (self.files, self.folders)
        )
        return Instructions(files, folders, self.records)

    def find_loose(self, root: Path) -> str:
        """A path that cannot be guarded by its name: a link, or a file with another name; empty if there is none."""
        names = (name.split("/") for name in self.names)
        above = {"/".join(parts[: at + 1]) for parts in names for at in range(len(parts))}
        found = spell(root, above)
        return next((place for name in sorted(found) for place in found[name] if _is_loose(root / place)), "")


INSTRUCTIONS = Instructions()


def instructions_in(
    workspace: Path, files: Iterable[str], folders: Iterable[str | Path], records: Iterable[str] = ()
) -> Instructions:
    """The instructions of a workspace: with the files that its config adds and the skill roots inside it."""
    own = (os.path.normpath(name) for name in files)
    inside = (place for folder in folders if (place := _within(workspace, folder)))
    return Instructions(
        tuple(dict.fromkeys((*INSTRUCTIONS.files, *own))),
        tuple(dict.fromkeys((*INSTRUCTIONS.folders, *inside))),
        tuple(place for record in records if (place := _within(workspace, record)) not in ("", WHOLE)),
    )


def path_inside(root: Path, name: str) -> str:
    """Its real path below a folder; empty if it is missing, is the folder itself, or is elsewhere."""
    base, real = Path(os.path.realpath(root)), Path(os.path.realpath(root / name))
    return str(real.relative_to(base)) if real != base and real.is_relative_to(base) and real.exists() else ""


def spell(root: Path, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each name, and its spelling on the disk in any case. Each folder is listed once."""
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
    """The path as named, or its real path; the whole workspace if that is inside the folder."""
    base = os.path.realpath(workspace)
    for at, place in ((str(workspace), os.path.abspath(folder)), (base, os.path.realpath(folder))):  # noqa: PTH100
        if f"{at}/".startswith(f"{place}/"):
            return WHOLE
        if place.startswith(f"{at}/"):
            return os.path.relpath(place, at)
    return ""
