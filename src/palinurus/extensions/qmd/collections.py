"""The collections that qmd is told of, by which paths their results are cited, and by which the home knows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.memory.backend import BackendPlace
from palinurus.memory.document import MEMORY, SESSIONS
from palinurus.memory.settings import ALL_MARKDOWN

VIRTUAL = "qmd/"  # a path of a result that is not in the workspace: qmd/<collection>/<path>


class QmdCollection(Struct, frozen=True):
    name: str
    path: Path
    mask: str
    source: str
    prefix: str  # of the home's own path: `memory/`, `handbook/`, `sessions/`
    is_cited_by_own_path: bool = False


def collections_of(place: BackendPlace, exports: Path, *, default_memory: bool) -> tuple[QmdCollection, ...]:
    """Those of one agent, whether or not their folders are there."""
    agent, root, found = place.agent, place.workspace, list[QmdCollection]()
    if default_memory and MEMORY in place.settings.sources:
        for kind, folder, mask, prefix in (
            ("root", root, "MEMORY.md", ""),
            ("alt", root, "memory.md", ""),
            ("user", root, "USER.md", ""),
            ("dir", root / "memory", ALL_MARKDOWN, "memory/"),
        ):
            found.append(QmdCollection(f"memory-{kind}-{agent}", folder, mask, MEMORY, prefix, True))
    # Notes that are not in their file yet are memory too: see memory/conversations.py.
    found.append(QmdCollection(f"notes-{agent}", exports.parent / "notes", ALL_MARKDOWN, MEMORY, f"{SESSIONS}/notes-"))
    if SESSIONS in place.settings.sources:
        found.append(QmdCollection(f"sessions-{agent}", exports, ALL_MARKDOWN, SESSIONS, f"{SESSIONS}/"))
    for each in place.settings.collections:
        taken = {known.name for known in found}
        name = sanitised(each.name, taken)
        found.append(QmdCollection(name, each.path, each.mask, each.name, f"{each.name}/"))
    return tuple(found)


def sanitised(name: str, taken: Iterable[str]) -> str:
    """Lower case letters, digits and hyphens; with a number where that is taken."""
    plain = name.lower().replace("_", "-").strip("-") or "notes"
    free, number = plain, 2
    while free in taken:
        free, number = f"{plain}-{number}", number + 1
    return free


class PathTable:
    """Translates paths of qmd, of results and of the home."""

    def __init__(self, collections: Sequence[QmdCollection]) -> None:
        self._by_name = {each.name: each for each in collections}

    def of_row(self, name: str, path: str) -> tuple[QmdCollection, str, str] | None:
        """The collection, the path by which a result is cited, and the home's own one; None for a collection of
        somebody else."""
        found = self._by_name.get(name)
        if found is None:
            return None
        own = found.prefix + path
        return found, own if found.is_cited_by_own_path else f"{VIRTUAL}{name}/{path}", own

    def own(self, path: str) -> str:
        name, slash, rest = path.removeprefix(VIRTUAL).partition("/")
        found = self.of_row(name, rest) if path.startswith(VIRTUAL) and slash else None
        return path if found is None else found[2]
