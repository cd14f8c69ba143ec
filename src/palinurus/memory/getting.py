"""A few lines of what search has cited, for whoever was told where to look.

Only what search could have found: MEMORY.md, memory.md, USER.md, what lies under memory/, collections, and past
conversations, which are no files. A path is taken as a citation writes it. It is walked inside its root by
descriptors; a file that is reached by a link is refused, because what it shows lies elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from palinurus.config.remembering import Collection, MemorySettings
from palinurus.domain.errors import NotFound, OutsideWorkspace, WorkspaceError
from palinurus.memory.document import MEMORY, SESSIONS
from palinurus.memory.markdown import lines_of
from palinurus.memory.scan import decoded, mask_of
from palinurus.memory.walk import PASSED_BY
from palinurus.workspace.boundary import Boundary

ROOT_FILES = ("MEMORY.md", "memory.md", "USER.md")
MAX_LINES = 120
MAX_CHARACTERS = 12_000
MAX_PATH = 1_000
_CITED = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?$")


class MemoryText(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Lines of a file. The text is empty when there is no such file, as OpenClaw has it."""

    path: str
    text: str
    from_: int = 1
    lines: int = 0
    truncated: bool = False
    next_from: int = 0  # where to go on; 0: that was all


class Asked(Struct, frozen=True):
    path: str
    start: int | None = None  # the first line, from 1
    lines: int | None = None


class Remembered(Protocol):
    """An agent's memory, as far as reading its lines goes."""

    @property
    def settings(self) -> MemorySettings: ...

    async def said(self, path: str) -> str | None:
        """The text of a past conversation, by the path under which it is cited."""


async def get_lines(
    memory: Remembered,
    workspace: Boundary,
    asked: Asked,
    *,
    max_lines: int = MAX_LINES,
    max_characters: int = MAX_CHARACTERS,
) -> MemoryText:
    """Raises WorkspaceError or OutsideWorkspace for what is not memory or cannot be read."""
    path, start, lines = _place(asked)
    if _parts(path)[0] == SESSIONS:
        text = await memory.said(path)
    else:
        text = await asyncio.to_thread(text_of, workspace, memory.settings.collections, path)
    if text is None:
        return MemoryText(path, "")
    return _cut(path, lines_of(text), start, lines, min(lines or max_lines, max_lines), max_characters)


def text_of(workspace: Boundary, collections: Sequence[Collection], path: str) -> str | None:
    """Of a file, or None when it is not there. Blocks."""
    root, inside = root_of(workspace, collections, path)
    try:
        with root.open_file(inside) as file:
            if file.path != inside:
                raise WorkspaceError(f"{path} is reached by a link", hint=f"ask for what it leads to: {file.path}")
            return decoded(file.read())
    except NotFound:
        return None


def _place(asked: Asked) -> tuple[str, int, int | None]:
    """Path and lines. A whole citation will do: `memory/2026-11-15.md#L3-L9`."""
    path, start, lines = asked.path.strip(), asked.start, asked.lines
    if found := _CITED.search(path):
        path = path[: found.start()]
        if start is None:
            start = max(int(found[1]), 1)
            lines = lines or (int(found[2]) - start + 1 if found[2] else 1)
    return path, max(start or 1, 1), max(lines, 1) if lines is not None else None


def root_of(workspace: Boundary, collections: Sequence[Collection], path: str) -> tuple[Boundary, str]:
    """The root that a path lies in, and the path inside it."""
    parts = _parts(path)
    if not parts[-1].lower().endswith(".md"):
        raise WorkspaceError(f"{path!r} is not markdown", hint="memory is made of .md files; `read` reads others")
    if len(parts) == 1 and parts[0] in ROOT_FILES:
        return workspace, parts[0]
    if len(parts) > 1 and parts[0] == MEMORY:
        return workspace, "/".join(parts)
    for collection in collections:
        if len(parts) > 1 and collection.name == parts[0]:
            _must_be_searched(collection, "/".join(parts))
            return _folder(collection), "/".join(parts[1:])
    names = "".join(f", {each.name}/" for each in collections[:20])
    raise OutsideWorkspace(f"{path!r} is not in memory", hint=f"memory is MEMORY.md, USER.md, memory/{names}")


def _parts(path: str) -> list[str]:
    if not path or "\0" in path or len(path) > MAX_PATH:
        raise WorkspaceError(f"not a path: {path[:80]!r}", hint="for example memory/2026-11-15.md")
    if path.startswith(("/", "~")):
        raise OutsideWorkspace(f"{path[:200]!r} is not a path in memory", hint="take it as memory_search tells it")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        raise OutsideWorkspace(f"{path[:200]!r} leads out of memory", hint="take it as memory_search tells it")
    if any(part[0] == "." or part in PASSED_BY for part in parts):
        raise OutsideWorkspace(f"{path[:200]!r} is hidden, and not in memory", hint="`read` reads other files")
    return parts


def _must_be_searched(collection: Collection, path: str) -> None:
    """A collection may be one file of a folder whose others are nobody's business."""
    mask = mask_of(collection)
    if mask is not None and not mask.has(path):
        raise OutsideWorkspace(
            f"{path!r} is not in memory", hint=f"of that folder the collection has {collection.mask} alone"
        )


def _folder(collection: Collection) -> Boundary:
    if not os.path.isdir(collection.path):  # noqa: PTH112  # the Path form raises where it may not look
        raise WorkspaceError(
            f"the folder of the collection {collection.name} is not there: {collection.path}",
            hint="`pal memory collections list` shows where it should be",
        )
    return Boundary(collection.path)


def _cut(path: str, lines: list[str], start: int, asked: int | None, most: int, room: int) -> MemoryText:
    """At most so many lines, and as many of them as there is room for; the first always, cut off if it must be."""
    if lines and not lines[-1]:
        lines = lines[:-1]  # what stands behind the last line break is no line
    left = lines[start - 1 :]
    taken: list[str] = []
    for line in left[:most]:
        if taken and len(line) > room:
            break
        taken.append(line[:room])
        room -= len(line) + 1
    wanted = len(left) if asked is None else min(asked, len(left))
    clipped = len(taken) == 1 and taken[0] != left[0]
    more = bool(taken) and len(taken) < len(left)
    return MemoryText(
        path,
        "\n".join(taken),
        start,
        len(taken),
        truncated=clipped or len(taken) < wanted,
        next_from=start + len(taken) if more else 0,
    )
