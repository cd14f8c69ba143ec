"""One workspace made of two folders: that of a sandbox, and in it what stays the agent's own.

A sandboxed session without access to the agent's workspace has a folder to itself. What its owner has told the agent
(MEMORY.md, USER.md, memory/) is in no copy: under those names the owner's sessions see the agent's own files. Whoever
asks for a path is led to the folder that has it; a link never leads from one folder into the other's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.workspace.boundary import Boundary, Found, Listing, Walked
from palinurus.workspace.steps import Guard, Place, anything, outside, steps

MEMORY_FILES = ("MEMORY.md", "USER.md")
MEMORY_DIRECTORY = "memory"
_ROOT_NAMES = frozenset({*(name.casefold() for name in MEMORY_FILES), MEMORY_DIRECTORY})
_BACKUPS = [".pal", "backups"]

Belongs = Callable[[str], bool]
"""Whether a path from the root is the agent's own. Says so of a folder exactly when it says so of all that is in it."""


def is_memory(path: str) -> bool:
    """Whether it is what the owner has told the agent, or an older copy of that."""
    parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
    if parts[:2] == _BACKUPS:
        return len(parts) > 2 and parts[2] in _ROOT_NAMES
    return bool(parts) and parts[0] in _ROOT_NAMES and (parts[0] == MEMORY_DIRECTORY or len(parts) == 1)


class OverlayBoundary(Boundary):
    """`root` is the sandbox's folder; what `belongs` says is the agent's own lies in `own`."""

    def __init__(self, root: Path, own: Boundary, belongs: Belongs = is_memory) -> None:
        super().__init__(root)
        self._own = own
        self._belongs = belongs

    @contextmanager
    def steps(self, path: str, *, make_parents: bool = False, guard: Guard = anything) -> Iterator[Place]:
        inside = self._plain(path)
        if inside is None or not self._belongs(inside):
            with steps(self.root, path, make_parents=make_parents, guard=guard) as place:
                if not self._belongs(place.path):
                    yield place
                    return
                inside = place.path  # a link inside, or a way with `..`, leads to a name that is the agent's own

        def kept(where: str) -> None:
            if not self._belongs(where):
                raise outside(path)
            guard(where)

        with steps(self._own.root, inside, make_parents=make_parents, guard=kept) as place:
            if not self._belongs(place.path):  # by a link there
                raise outside(path)
            yield place

    def holding(self, path: str) -> Boundary:
        return self._own if self._belongs(path) else self

    def stat_names(self, names: tuple[str, ...]) -> tuple[os.stat_result | None, ...]:
        here, own = super().stat_names(names), self._own.stat_names(names)
        return tuple(own[at] if self._belongs(name) else here[at] for at, name in enumerate(names))

    def list_directory(self, path: str = ".", *, max_entries: int = 2_000) -> Listing:
        listing = super().list_directory(path, max_entries=max_entries)
        if listing.path != ".":
            return listing
        own = self._own.list_directory(max_entries=max_entries)
        entries = [entry for entry in listing.entries if not self._belongs(entry.name)]
        entries += [entry for entry in own.entries if self._belongs(entry.name)]
        entries.sort(key=lambda entry: entry.name)
        return Listing(".", tuple(entries[:max_entries]), listing.complete and len(entries) <= max_entries)

    def walk(self, path: str = ".", *, hidden: bool = False, max_files: int = 5_000, max_depth: int = 16) -> Walked:
        walked = super().walk(path, hidden=hidden, max_files=max_files, max_depth=max_depth)
        with self.steps(path) as place:
            if place.path != ".":
                return walked
        found = [each for each in walked.found if not self._belongs(each.path)]
        complete = walked.complete
        for name, is_directory in self._names():
            (seen,) = self._own.stat_names((name,))
            found += [Found(name, is_directory, seen.st_mtime_ns)] if seen else []
            if is_directory:
                try:
                    below = self._own.walk(name, hidden=hidden, max_files=max_files, max_depth=max_depth - 1)
                except (NotFound, WorkspaceError):
                    continue
                found += below.found
                complete = complete and below.complete
        return Walked(tuple(sorted(found)), complete)

    def _names(self) -> list[tuple[str, bool]]:
        """The agent's own files and folders directly in the root; links are passed by, as every walk does."""
        entries = [entry for entry in self._own.list_directory().entries if self._belongs(entry.name)]
        return [(entry.name, entry.is_directory) for entry in entries if not (self._own.root / entry.name).is_symlink()]

    def _plain(self, path: str) -> str | None:
        """The path from the root, when that can be said without a look at the disk."""
        if path.startswith("/"):
            root = str(self.root).rstrip("/") + "/"
            if not path.startswith(root):
                return None
            path = path[len(root) :]
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return None if ".." in parts else "/".join(parts)
