"""Finds the program that a name stands for, as execvp would with the clean PATH of a command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from palinurus.domain.plan import Invocation
from palinurus.tools.commands.script import Argv

LONGEST_PATH = 4096
MOST_PARTS = 32  # of one argument that are looked at by where they begin
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


def leads_out(args: Iterable[str], *, cwd: str, workspace: str) -> Iterator[Astray]:
    """The arguments that may be a path in the workspace and lead out of it by a link.

    The agent can make links where it works, and a program that was allowed to read `notes.md` would follow one.
    """
    root = os.path.realpath(workspace)
    for arg in args:
        for part in sorted(parts(arg)):
            if part and len(part) < LONGEST_PATH and (real := _strays(part, cwd, root)):
                yield Astray(arg, real)


def parts(arg: str) -> set[str]:
    """What in an argument may be a path: all of it, what stands between and behind `=`, `:`, `@` and `,`, and what
    stands behind the letters of options."""
    marks = islice(_SPLIT.finditer(arg), MOST_PARTS)
    letters = range(2, min(len(arg), MOST_PARTS)) if arg.startswith("-") and not arg.startswith("--") else ()
    return {arg, *_SPLIT.split(arg), *(arg[mark.end() :] for mark in marks), *(arg[at:] for at in letters)}


def _strays(part: str, cwd: str, root: str) -> str:
    """Where a path of the workspace leads, when that is outside of it and not where its words say; empty otherwise."""
    meant = os.path.join(cwd, part)  # noqa: PTH118  as text: a Path would tidy it up
    real, said = os.path.realpath(meant), os.path.normpath(meant)
    if real == said or Path(real).is_relative_to(root):
        return ""
    # A path from the root of the system may go through links that are none of the agent's.
    own = not part.startswith("/") or _enters(said, root) or real != os.path.realpath(said)
    return real if own else ""


def _enters(path: str, root: str) -> bool:
    """Whether a path goes through the workspace, by its name or by a link to it."""
    place = "/"
    for name in Path(path).parts[1:]:
        place = os.path.realpath(os.path.join(place, name))  # noqa: PTH118
        if Path(place).is_relative_to(root):
            return True
        if not os.path.lexists(place):
            return False
    return False


def _places(name: str, cwd: str, path: str) -> Iterator[Path]:
    if name.endswith(("/", "/.", "/..")) or name in ("", ".", ".."):
        return  # a Path would forget the end
    if "/" in name:
        yield Path(cwd, name)
        return
    for entry in path.split(":"):
        yield Path(cwd, entry, name)  # an empty entry is the current directory, as ever
