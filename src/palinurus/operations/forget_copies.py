"""Wikis and exports of a home, while words are forgotten: looked at before, rewritten, looked at again.

Hardly a process forgets anything: what takes wikis and exports apart is loaded by name when there are some. Everything
here blocks.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.secrets import Redactor
from palinurus.domain.errors import PalinurusError
from palinurus.migrate.forgetting.copies import Copy
from palinurus.migrate.forgetting.files import text_of
from palinurus.migrate.forgetting.report import Spot
from palinurus.migrate.forgetting.store import Scope
from palinurus.migrate.forgetting.words import Words

ROOM = "palinurus.migrate.forgetting"
COMMAND = "pal forget"
DATABASE = "home.sqlite"
OF_ALL = "it is of all agents; without --agent the words go from it"


class Wanted(Struct, frozen=True):
    """What goes from this home."""

    home: Path
    scope: Scope
    said: Words
    marks: tuple[str, ...]  # of notes
    entries: Mapping[str, frozenset[int]]  # of conversations, by id: the numbers of those that hold the words
    every_file: bool


class CopiesDesk:
    """`only_named`: nothing is rewritten, because what goes is one agent's and they are of all."""

    def __init__(
        self, wikis: Sequence[Any], exports: Sequence[Any], away: tuple[str, ...], *, only_named: bool = False
    ) -> None:
        self.away = away
        self._only_named = only_named
        self.spots: list[Spot] = []  # once looked at
        self._wikis = wikis
        self._exports = exports

    def __bool__(self) -> bool:
        return bool(self._wikis or self._exports)

    def look(self, *, quoting: bool) -> None:
        self.spots = [spot for wiki in self._wikis for spot in wiki.look(quoting=quoting)]
        self.spots += [spot for each in self._exports for spot in each.forget(apply=False, quoting=quoting)]
        if self._only_named:
            self.spots = [replace(spot, action="stays", why=OF_ALL) for spot in self.spots]

    def forget(self) -> list[Spot]:
        """What could not be done."""
        failed: list[Spot] = []
        if self._only_named:
            return failed
        for wiki in self._wikis:
            try:
                wiki.forget(COMMAND)
            except PalinurusError as error:
                failed.append(Spot(f"wiki {wiki.root}", "stays", 1, f"{error.message}; try once more"))
        for export in self._exports:
            try:
                export.forget(apply=True, quoting=False)
            except (PalinurusError, OSError) as error:
                failed.append(Spot(f"export {export.root}", "stays", 1, f"{error}; try once more"))
        return failed

    def remains(self) -> list[Spot]:
        found = [spot for each in (*self._wikis, *self._exports) for spot in each.remains()]
        return [replace(spot, why=OF_ALL) for spot in found] if self._only_named else found


def open_desk(known: Sequence[Copy], wanted: Wanted, redactor: Redactor) -> CopiesDesk:
    there = [each for each in known if Path(each.path).exists()]
    away = tuple(f"{each.kind} {each.path}" for each in known if each not in there)
    if not there:
        return CopiesDesk((), (), away)
    wikis, exports = (importlib.import_module(f"{ROOM}.{name}") for name in ("wikis", "exports"))
    words = wanted.said
    return CopiesDesk(
        [
            wikis.WikiCopy(Path(each.path), words, _Gone(Path(each.source), wanted), redactor.redact)
            for each in there
            if each.kind == "wiki"
        ],
        [
            exports.ExportCopy(Path(each.path), wanted.scope, words, wanted.marks, every_file=wanted.every_file)
            for each in there
            if each.kind == "export"
        ],
        away,
        only_named=bool(wanted.scope.agent),
    )


class _Gone:
    """Which lines of a wiki's source go, as far as that source is what it was when the wiki was made."""

    def __init__(self, source: Path, wanted: Wanted) -> None:
        self._source = source
        self._wanted = wanted

    def __call__(self, path: str, digest: str) -> Collection[int] | None:
        name, _, session = path.partition("#")
        if name == DATABASE and self._source == self._wanted.home:
            return None if session in self._wanted.scope.sessions else self._wanted.entries.get(session, ())
        place = self._source / path
        text = text_of(place)
        if text is None or hashlib.sha256(place.read_bytes()).hexdigest() != digest:
            return ()
        return frozenset(line + 1 for line in self._wanted.scope.words.lines(text))
