"""A bounded, ordered walk through an untrusted directory tree.

It looks entries up by path. Reads of an agent's workspace go through boundary.py instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

MAX_ENTRIES = 20_000  # of one directory
Skip = Callable[[str, os.DirEntry[str]], bool]
"""Whether an entry is skipped, by its path below the top. A directory is skipped with its content."""


def walk_tree(
    top: str | Path,
    *,
    skip: Skip = lambda _, __: False,
    on_error: Callable[[str, OSError], None] = lambda _, __: None,
    max_entries: int = MAX_ENTRIES,
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All entries below a directory with their paths below it, a directory before its content, sorted by name.

    Links are returned and not followed. `on_error` is called with the path of a directory that cannot be listed; it may
    raise.
    """
    return _walk(str(top), "", skip, on_error, max_entries)


def _walk(
    folder: str, inner: str, skip: Skip, on_error: Callable[[str, OSError], None], max_entries: int
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(islice(scan, max_entries), key=lambda entry: entry.name)
            if next(scan, None) is not None:
                on_error(inner or ".", OSError(0, f"it holds more than {max_entries:,} entries"))
    except OSError as error:
        on_error(inner or ".", error)
        return
    for entry in entries:
        path = f"{inner}/{entry.name}" if inner else entry.name
        if not skip(path, entry):
            yield path, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, path, skip, on_error, max_entries)
