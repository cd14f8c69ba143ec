"""Whose words a result holds that shows files: those of a file from outside, or a name that others have given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from palinurus.domain.messages import OUTSIDE_MARK, Image, Origin, Text
from palinurus.domain.tool import ToolOutput
from palinurus.workspace.file_origins import absolute
from palinurus.workspace.files import WorkspaceFiles, is_private

PLAIN_WORDS = 4  # a name of more words than that can tell a model something
PLAIN_LENGTH = 40
_WORD = re.compile(r"[^\W_]+")


def from_files(content: str | tuple[Text | Image, ...], sources: tuple[str, ...]) -> ToolOutput:
    """A result that shows files with these sources from outside; the owner's own when there is none."""
    return ToolOutput(content, origin=Origin.OUTSIDE if sources else Origin.OWNER, sources=sources)


def is_marked(place: str, lines: Iterable[str]) -> bool:
    """Whether these are lines of memory that say they are from outside."""
    return is_private(place) and any(OUTSIDE_MARK in line for line in lines)


def sources_of_names(files: WorkspaceFiles, places: Sequence[str]) -> tuple[str, ...]:
    """Where the names of files come from: folders that others fill, and files whose long names an untrusted run gave.

    A short name says nothing, or each list of a folder with one noted page would count as the page.
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
