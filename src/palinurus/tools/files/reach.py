"""How far the hands for files reach in a session: which workspace, whether it may be written, what stays closed.

Everything here judges where a file really lies, as the walk through the workspace found it, and not what was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import ToolRun
from palinurus.workspace.files import WorkspaceFiles, is_private
from palinurus.workspace.instructions import INSTRUCTIONS, Instructions
from palinurus.workspace.steps import Guard

# `.git` holds hooks and settings that git runs as programs, outside every sandbox; `.pal` holds our backups.
PROTECTED = frozenset({".git", ".pal"})


class Reach(Struct, frozen=True):
    """The files that a session's hands can get at. The walls of its sandbox hold for them too."""

    files: WorkspaceFiles
    writable: bool = True
    why: str = ""  # it is not writable
    closed: tuple[str, ...] = ()  # directories inside the workspace that belong to pal itself: see `closed_in`
    fixed: frozenset[str] = frozenset()  # files that can only be read
    instructions: Instructions = INSTRUCTIONS  # what later conversations begin with

    def is_closed(self, place: str) -> bool:
        return any(place == each or place.startswith(f"{each}/") for each in self.closed)


Reaching = Callable[[SessionKey], Reach]
"""Says how far a session reaches. Asked at every call, in a thread; may raise a PalinurusError, which the model is
told."""


def reaching(given: WorkspaceFiles | Reaching) -> Reaching:
    """A plain workspace is the same for every session, and writable."""
    if isinstance(given, WorkspaceFiles):
        reach = Reach(given)
        return lambda _: reach
    return given


def closed_in(root: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    """Which of our own directories lie inside a workspace, as paths from its root: a workspace may be all of `~`."""
    base = os.path.realpath(root)
    real = [os.path.realpath(path) for path in paths]
    return tuple(sorted(os.path.relpath(path, base) for path in real if path.startswith(base.rstrip("/") + "/")))


def reading(run: ToolRun, reach: Reach, asked: str) -> Guard:
    """Refuses what this run may not read. `asked` is what the model called it, for the sentence."""

    def guard(place: str) -> None:
        if not run.private and is_private(place):
            raise WorkspaceError(
                f"{asked} belongs to private memory, which only a private session may use", hint="answer without it"
            )
        if reach.is_closed(place):
            raise WorkspaceError(f"{asked} belongs to pal itself", hint="the person can look at it")

    return guard


def writing(run: ToolRun, reach: Reach, asked: str) -> Guard:
    """Refuses what this run may not write: also what it may not read."""
    may_read = reading(run, reach, asked)

    def guard(place: str) -> None:
        if not reach.writable:
            raise WorkspaceError(f"{asked} cannot be written: {reach.why or 'the workspace is read-only here'}")
        may_read(place)
        if place in reach.fixed:
            raise WorkspaceError(f"{asked} is the agent's own, which this session's sandbox may only read")
        if PROTECTED & set(place.casefold().split("/")):
            raise WorkspaceError(f"{asked} is not for tools to write", hint="the person can, or git can")

    return guard


def may_see(run: ToolRun, reach: Reach, place: str) -> bool:
    """The same as a question, for lists that leave out what they may not name."""
    return (run.private or not is_private(place)) and not reach.is_closed(place)
