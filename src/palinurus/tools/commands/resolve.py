"""Finds the program that a name stands for, as execvp would with the clean PATH of a command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from palinurus.domain.plan import Invocation
from palinurus.tools.commands.script import Argv

LONGEST_PATH = 4096
_SPLIT = re.compile("[=:@,]")
SYSTEM = frozenset({Path("/bin"), Path("/usr/bin")})


def resolve(argv: Argv, *, cwd: str, path: str) -> Invocation:
    """The links of its directory are followed in `binary`, its own is not: programs act by the name they are given."""
    for place in _places(argv[0], cwd, path):
        if os.path.isfile(place) and os.access(place, os.X_OK):  # noqa: PTH113  the Path form raises in closed places
            binary = Path(os.path.realpath(place.parent)) / place.name
            return Invocation(argv[0], str(binary), os.path.realpath(place), argv[1:])
    return Invocation(argv[0], "", "", argv[1:])


def is_systems_own(found: Invocation, names: Iterable[str]) -> bool:
    """Whether it is a program of one of these names in a directory of the system, by itself and by its link."""
    binary, resolved = Path(found.binary), Path(found.resolved)
    return binary.name in names and binary.parent in SYSTEM and resolved.parent in SYSTEM


def lies_within(found: Invocation, roots: Iterable[str]) -> bool:
    """Whether the program, or the link to it, lies in one of these directories."""
    places = (Path(found.binary), Path(found.resolved))
    return any(place.is_relative_to(os.path.realpath(root)) for root in roots for place in places)


class Astray(NamedTuple):
    """An argument, and where it really leads."""

    arg: str
    real: str


def leads_out(args: Iterable[str], *, cwd: str, workspace: str) -> Astray | None:
    """The first argument that may be a path in the workspace and leads out of it by a link.

    The agent can make links where it works, and a program that was allowed to read `notes.md` would follow one.
    """
    root = os.path.realpath(workspace)
    for arg in args:
        for part in sorted({arg, arg[2:] if arg.startswith("-") else "", *_SPLIT.split(arg)} - {""}):
            if part.startswith(("/", "~")) or len(part) >= LONGEST_PATH:
                continue
            meant = os.path.join(cwd, part)  # noqa: PTH118  as text: a Path would tidy it up
            real = os.path.realpath(meant)
            if real != os.path.normpath(meant) and not Path(real).is_relative_to(root):
                return Astray(arg, real)
    return None


def _places(name: str, cwd: str, path: str) -> Iterator[Path]:
    if name.endswith(("/", "/.", "/..")) or name in ("", ".", ".."):
        return  # a Path would forget the end
    if "/" in name:
        yield Path(cwd, name)
        return
    for entry in path.split(":"):
        yield Path(cwd, entry, name)  # an empty entry is the current directory, as ever
