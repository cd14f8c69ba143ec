"""Whose words memory shows: a line that says it is from outside is, and so is a file that was written from there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from palinurus.config.remembering import Collection
from palinurus.domain.errors import PalinurusError
from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.memory.document import SESSIONS
from palinurus.memory.getting import root_of
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins


def sources_of(
    origins: FileOrigins, workspace: Boundary, collections: Sequence[Collection], shown: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    """Of paths with their texts, those that are from outside (promise 18). Blocks."""
    found = {
        f"file:{path}": None
        for path, text in shown
        if OUTSIDE_MARK in text or _is_outside(origins, workspace, collections, path)
    }
    return tuple(found)


def _is_outside(origins: FileOrigins, workspace: Boundary, collections: Sequence[Collection], path: str) -> bool:
    if path.startswith(f"{SESSIONS}/"):  # of conversations each line tells it by itself
        return False
    try:
        root, inside = root_of(workspace, collections, path)
        return origins.kinds.has(path) or origins.is_outside(root, inside)
    except PalinurusError:  # it was found, and cannot be looked at any more
        return origins.kinds.has(path)
