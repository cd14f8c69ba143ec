"""Which files the tools can use in a session: which workspace, whether it is writable, what is closed; and the sources
of a result that shows files: a file from outside, or a file name that others have given.

All checks use the real path that the walk through the workspace found, not the requested one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, Image, Origin, Text
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.workspace.file_origins import absolute
from palinurus.workspace.files import WorkspaceFiles, is_private
from palinurus.workspace.instructions import INSTRUCTIONS, Instructions

# `.git` has hooks and settings that git runs as programs, outside every sandbox; `.pal` has our backups.
PROTECTED = frozenset({".git", ".pal"})
PLAIN_WORDS = 4  # a longer name could carry instructions for a model
PLAIN_LENGTH = 40
_WORD = re.compile(r"[^\W_]+")


class FileAccess(Struct, frozen=True):
    """The files that the tools of a session can use. The limits of its sandbox apply too."""

    files: WorkspaceFiles
    writable: bool = True
    why: str = ""  # why it is not writable
    closed: tuple[str, ...] = ()  # directories inside the workspace that belong to pal: see `closed_in`
    fixed: frozenset[str] = frozenset()  # read-only files
    instructions: Instructions = INSTRUCTIONS  # files that later sessions start with

    def is_closed(self, place: str) -> bool:
        return any(place == each or place.startswith(f"{each}/") for each in self.closed)


FindAccess = Callable[[SessionKey], FileAccess]
"""Returns the access of a session. Called for every call, in a thread; may raise a PalinurusError, which the model
reads."""


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    # A docstring here would be sent to the model with every request.
    old: str
    new: str
    all: bool = False  # replace all occurrences; otherwise it must be the only one


class TextLines(Struct, frozen=True):
    """A text in pages, and its sources."""

    name: str
    lines: list[str]
    origin: Origin = Origin.OWNER
    sources: tuple[str, ...] = ()


Elsewhere = Callable[[SessionKey, str], TextLines | None]
"""Returns a text outside the workspace that may be read; None if there is none of that name. Runs in a thread; may
raise a PalinurusError, which the model reads."""


def text_lines(text: str) -> list[str]:
    """Returns lines as an editor counts them: a final newline starts no new one."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def find_access(given: WorkspaceFiles | FindAccess) -> FindAccess:
    """Returns the same writable workspace for every session."""
    if isinstance(given, WorkspaceFiles):
        reach = FileAccess(given)
        return lambda _: reach
    return given


def closed_in(root: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    """Returns our own directories inside a workspace, as paths from its root: a workspace may be all of `~`."""
    base = os.path.realpath(root)
    real = [os.path.realpath(path) for path in paths]
    return tuple(sorted(os.path.relpath(path, base) for path in real if path.startswith(base.rstrip("/") + "/")))


def check_reading(run: ToolRun, reach: FileAccess, asked: str, place: str) -> None:
    """Refuses what this run may not read. `asked` is the path that the model gave, for the message."""
    if not run.private and is_private(place):
        said = f"{asked} belongs to private memory, which only a private session may use"
        raise WorkspaceError(said, hint="answer without it")
    if reach.is_closed(place):
        raise WorkspaceError(f"{asked} belongs to pal itself", hint="a person can read it")


def check_writing(run: ToolRun, reach: FileAccess, asked: str, place: str) -> None:
    """Refuses what this run may not write, including what it may not read."""
    if not reach.writable:
        raise WorkspaceError(f"{asked} cannot be written: {reach.why or 'the workspace is read-only here'}")
    check_reading(run, reach, asked, place)
    if place in reach.fixed:
        raise WorkspaceError(f"{asked} is the agent's own, which this session's sandbox may only read")
    if PROTECTED & set(place.casefold().split("/")):
        raise WorkspaceError(f"{asked} is not for tools to write", hint="a person or git can write it")


def may_see(run: ToolRun, reach: FileAccess, place: str) -> bool:
    """Returns whether a list may name it."""
    return (run.private or not is_private(place)) and not reach.is_closed(place)


def from_files(content: str | tuple[Text | Image, ...], sources: tuple[str, ...]) -> ToolOutput:
    """Returns a result that shows files with these outside sources; the owner's own if there are none."""
    return ToolOutput(content, origin=Origin.OUTSIDE if sources else Origin.OWNER, sources=sources)


def is_marked(place: str, lines: Iterable[str]) -> bool:
    """Returns whether these are memory lines marked as from outside."""
    return is_private(place) and any(OUTSIDE_MARK in line for line in lines)


def is_note(place: str) -> bool:
    """Returns whether it is a notes file, in which each line may have its own source."""
    parts = place.casefold().split("/")
    return len(parts) > 1 and parts[0] in ("memory", "bank") and parts[-1].endswith(".md")


def sources_of_names(files: WorkspaceFiles, places: Sequence[str]) -> tuple[str, ...]:
    """Returns the outside sources of file names: folders that others fill, and files named by an untrusted run.

    Short names do not count; otherwise every list of a folder with one noted page would count as that page.
    """
    found: dict[str, None] = {}
    for place in places:
        above, _, name = place.rstrip("/").rpartition("/")
        if files.origins.kinds.has_folder(above):
            found[f"file:{above}/"] = None
        elif not _is_plain(name) and files.origins.has_below(absolute(files.boundary, place.rstrip("/"))):
            found[f"written:{place}"] = None
    return tuple(found)


def _is_plain(name: str) -> bool:
    stem = name.rpartition(".")[0] or name
    return len(name) <= PLAIN_LENGTH and len(_WORD.findall(stem)) <= PLAIN_WORDS
