"""Declares where text is stored, so that `forget` can find it everywhere.

A package that stores text has a module `text_places` with a tuple `PLACES` of three kinds of declarations: `TextRows`
for rows of the home's database, `TextFiles` for files of a home or a workspace, and subclasses of `TextPlace` for
whatever needs code of its own (an index, the history of a workspace, copies elsewhere). `forget` iterates over them and
knows none by name. The modules are named in strings and imported when needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from palinurus.domain.words import Words, forget_in_json

Action = Literal["tombstone", "rewrite", "remove", "erase", "drop", "index anew", "stays"]
Treatment = Literal["text", "lines of JSON", "remove", "index", "rows", "stays"]
Stored = tuple[Any, ...]
"""A row: its own key, then the id and key of its session and its run, then its texts."""


class Spot(Struct, frozen=True, omit_defaults=True):
    """A place that holds the text, and what happens to it there."""

    where: str
    action: Action
    count: int = 0  # rows, lines or files
    why: str = ""  # why it stays
    quotes: tuple[str, ...] = ()  # in a plan: the matching text only, without its surroundings


class WordCheck(Struct, frozen=True):
    """The result of the search after forgetting."""

    name: str
    found: int


class Scope(Struct, frozen=True):
    """What to forget: words anywhere, and the whole content of some sessions."""

    words: Words  # wherever they occur
    sessions: frozenset[str] = frozenset()  # ids
    keys: frozenset[str] = frozenset()  # keys of sessions that are forgotten together with their archived sessions
    runs: frozenset[str] = frozenset()  # ids of runs accepted for them
    agent: str = ""  # search words only in this session; empty: everywhere

    def covers(self, session_key: str) -> bool:
        """Whether words are searched for in what belongs to this session."""
        return not self.agent or session_key.startswith(f"agent:{self.agent}:")


class TextRows(Struct, frozen=True):
    """Rows of one table of the home's database.

    `sql/<dialect>/<noun>.sql` beside the module has the query `find_<table>`, which returns rows as `Stored` with their
    key named `at`; and either `set_<table>` (?1 the key, ?2 and on the texts) or `drop_<table>` (?1 the key). They run
    in one transaction with those of all other tables. With neither, `before` does all the work.
    """

    table: str
    called: str  # the name people see
    action: Action
    noun: str  # of the queries
    module: str  # `__file__` of the module with the queries
    clean: Callable[..., str] = forget_in_json
    """Takes a text, the words, and `whole` if the whole session is forgotten; returns the text without them."""
    before: Callable[[Any, list[Stored]], Awaitable[None]] | None = None
    """Called with the services and the rows that hold the words, before they are changed."""
    kept: Mapping[str, str] = {}  # `table` or `table.column` -> why words may remain there


class TextFiles(Struct, frozen=True):
    """Files by their path in the home or in a workspace. If several declarations match a file, the last one counts."""

    pattern: str  # matches the whole path
    treatment: Treatment
    why: str = ""  # why it stays
    inside: Literal["home", "workspace"] = "home"
    is_work: bool = False  # a file of the user's own work; rewritten only on request
    folder_of: Callable[[str], str] | None = None  # from a session's key: the folder that is removed with the session
    copies_rows: bool = False  # a copy of the database: it is removed if the database holds the words


class Search(Struct, frozen=True):
    """The arguments with which a TextPlace is opened."""

    services: Any  # operations.services.Services
    id: str  # of this forget operation
    scope: Scope
    said: Words  # all words searched for outside memory
    marks: tuple[str, ...]  # paths of notes that are removed as a whole
    workspaces: Mapping[str, Path]  # by agent
    every_file: bool
    quoting: bool  # whether matching text may be shown
    since: int  # time of the first match, in milliseconds; 0: not known
    entries: Callable[[], Awaitable[Mapping[str, frozenset[int]]]]
    """For each session that holds the words, by id, the numbers of the matching entries, counted from 1."""


class TextPlace:
    """A place with code of its own. What it cannot forget it reports as spots that stay, without raising."""

    goes_first = False  # derived from the words: the search terms for it must be computed from them first
    away: tuple[str, ...] = ()  # what is not where it was
    outside: tuple[Path, ...] = ()  # folders whose files this place handles

    def __init__(self, search: Search) -> None:
        self.search = search

    async def look(self) -> list[Spot]:
        """Searches before anything is changed."""
        return []

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        """Returns what was done beyond what `look` reported, and what stays. Calls `tell` with its progress."""
        return []

    async def look_again(self) -> tuple[list[Spot], list[WordCheck]]:
        """Returns what remains after forgetting."""
        return [], []


Declared = TextRows | TextFiles | type[TextPlace]


def load_places(names: Iterable[str]) -> list[Declared]:
    """Loads all places declared under these names (`package.module:NAME`)."""
    found: list[Declared] = []
    for name in names:
        module, _, attribute = name.partition(":")
        found += getattr(importlib.import_module(module), attribute)
    return found
