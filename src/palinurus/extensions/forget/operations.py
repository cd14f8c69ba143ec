"""Forget words, or a whole session: find every place first, then remove the words, then search again. Local callers
only.

Packages declare the places that hold words (domain/text_places.py). What cannot be changed is reported with the reason.
"""

from __future__ import annotations

import asyncio
import operator
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

from msgspec import Struct

from palinurus.config.agents import agent_ids, agent_settings
from palinurus.config.atomic import write_atomic
from palinurus.config.load import load_config
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, StorageError
from palinurus.domain.text_places import (
    SHORTEST,
    Scope,
    Search,
    Spot,
    TextFiles,
    TextPlace,
    TextRows,
    Treatment,
    WordCheck,
    Words,
    forget_in_json,
    load_places,
    said_lines,
    unescaped,
)
from palinurus.extensions.forget.rows import WordMatches, WordRows
from palinurus.operations.operation import operation
from palinurus.operations.progress import follow
from palinurus.operations.services import Services
from palinurus.sessions.transcript import Row
from palinurus.workspace.text_places import drop_blocks, holds, plain_files, text_of

TellStage = Callable[[str, int, int], None]
"""Called with what is being done and how far it is, from any thread, often. Must not raise."""

SESSIONS, FILES, COPIES = "searching sessions", "searching files", "searching wikis and exports"
REWRITE, AGAIN = "rewriting the database", "searching again"
NOTE_LETTERS, SAID_LETTERS = 8, 16  # shortest line that is searched for elsewhere: shorter ones are too common


class Forget(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    session: str = ""  # key or id
    query: str = ""  # text to remove, in any case
    agent: str = ""  # search only what belongs to this agent
    files: bool = False  # also change files of workspaces that are no memory
    apply: bool = False


class ForgetReport(Struct, frozen=True, rename="camel"):
    """What would be done or was done, and what remains."""

    id: str
    applied: bool
    spots: tuple[Spot, ...]
    remains: tuple[Spot, ...] = ()  # where the words still are, and why
    probes: tuple[WordCheck, ...] = ()
    sessions: tuple[str, ...] = ()  # keys of sessions that hold the words
    away: tuple[str, ...] = ()  # wikis and exports that are missing


class ForgetRun:
    """One run: search, change, search again."""

    def __init__(self, services: Services, params: Forget, tell: TellStage) -> None:
        self._services, self._params, self._tell = services, params, tell
        self._id = services.new_id()
        declared = load_places(services.text_places)
        self._kinds = [each for each in declared if isinstance(each, type)]
        self._store = WordRows(services, [each for each in declared if isinstance(each, TextRows)])
        self._workspaces = _workspaces(services, params.agent)
        families = [each for each in declared if isinstance(each, TextFiles)]
        self._files = ScannedFiles(services.home.root, self._workspaces, families, every_file=params.files)
        self._search: Search
        self._outside: tuple[Path, ...] = ()  # folders that a text place searches itself
        self._in_rows = False  # whether the database has the words, and so each copy of it

    async def run(self) -> ForgetReport:
        scope, said, marks = await self._scope()
        self._tell(SESSIONS, 0, 0)
        matches = await self._store.look(scope, partial(self._tell, SESSIONS))
        self._in_rows = any(matches.rows.values())
        quoting = bool(self._params.query) and not self._params.apply  # what is found of a whole session is not shown
        about = (self._workspaces, self._params.files, quoting, matches.since, partial(self._entry_numbers, matches))
        self._search = Search(self._services, self._id, scope, said, marks, *about)
        self._tell(COPIES, 0, 0)
        places = [kind(self._search) for kind in self._kinds]
        told = [spot for place in places for spot in await place.look()]  # before anything is changed
        self._outside = tuple(path for place in places for path in place.outside)
        away = tuple(each for place in places for each in place.away)
        keys = tuple(sorted({each.key for each in matches.sessions}))
        spots = self._store.spots(matches, quoting=quoting)
        if not self._params.apply:
            spots += [*await asyncio.to_thread(self._file_spots, apply=False), *told]
            return ForgetReport(self._id, False, tuple(spots), sessions=keys, away=away)
        self._check_idle(matches)
        done = [*(spot for spot in told if spot.action != "stays"), *await self._apply(matches, places)]
        spots += [spot for spot in done if spot.action != "stays"]
        remains, probes = await self._look_again(places)
        remains += [spot for spot in done if spot.action == "stays"]
        return ForgetReport(self._id, True, tuple(spots), tuple(remains), probes, keys, away)

    async def _scope(self) -> tuple[Scope, Words, tuple[str, ...]]:
        """What to forget, all that is searched for afterwards, and the marks of notes that go as a whole."""
        if self._params.query:
            words = Words([self._params.query])
            return Scope(words, agent=self._params.agent), words, ()
        found = await self._store.sessions(self._params.session)
        if not found:
            raise NotFound(f"there is no session {self._params.session!r}", hint="`pal sessions list` shows them")
        ids = frozenset(each.id for each in found)
        sources = await self._store.sources(ids)
        notes, typed = said_lines(sources.notes, NOTE_LETTERS), said_lines(sources.said, SAID_LETTERS)
        keys = frozenset(each.key for each in found if each.key == self._params.session)
        marks = tuple(f"<!-- notes {each} -->" for each in sources.note_ids)
        return Scope(Words(notes), ids, keys, sources.runs), Words([*notes, *typed]), marks

    async def _entry_numbers(self, matches: WordMatches) -> Mapping[str, frozenset[int]]:
        """By session id, the numbers of entries that hold the words."""
        scope = self._search.scope

        def numbers(rows: Iterable[Row]) -> frozenset[int]:
            texts = [row.payload for row in rows]
            return frozenset(n for n, text in enumerate(texts, 1) if forget_in_json(text, scope.words) != text)

        partly = [each.id for each in matches.sessions if each.id not in scope.sessions]
        return {each: await asyncio.to_thread(numbers, await self._services.sessions.rows(each)) for each in partly}

    def _check_idle(self, matches: WordMatches) -> None:
        """A running turn has the words in memory and would write them again."""
        keys = {each.key for each in matches.sessions} | self._search.scope.keys
        if busy := sorted({str(run.key) for run in self._services.dispatcher.runs.active() if str(run.key) in keys}):
            raise BadRequest(f"{busy[0]} is being answered now", hint="wait for the reply, or send /stop")

    async def _apply(self, matches: WordMatches, places: list[TextPlace]) -> list[Spot]:
        # Copies that were made of the words go first, because the words say what to search for in them.
        spots = [spot for place in places if place.goes_first for spot in await place.forget(self._tell)]
        await self._store.prepare(matches)
        # Files before rows: after an interruption the rows still say what to search for in files.
        spots += await asyncio.to_thread(self._file_spots, apply=True)
        await self._store.forget(self._search.scope, self._id)
        spots += [spot for place in places if not place.goes_first for spot in await place.forget(self._tell)]
        self._tell(REWRITE, 0, 0)
        try:
            await self._store.scrub()
        except StorageError as error:
            spots.append(Spot("home.sqlite, bytes that are not used", "stays", 1, f"{error.message}; try once more"))
        for agent in self._workspaces:
            self._services.edited(agent, "words were forgotten")
        return spots

    def _file_spots(self, *, apply: bool) -> list[Spot]:
        return [spot for file in self._all_files(FILES) if (spot := self._file_spot(file, apply=apply)) is not None]

    def _all_files(self, stage: str) -> Iterator[ScannedFile]:
        files = [file for file in self._files.all() if not any(map(file.path.is_relative_to, self._outside))]
        for done, file in enumerate(files):
            self._tell(stage, done, len(files))
            yield file

    def _file_spot(self, file: ScannedFile, *, apply: bool) -> Spot | None:
        name = self._files.shown(file.path)
        if file.treatment in ("rows", "index"):  # reported row by row; the owner of an index rebuilds it
            is_told = file.treatment == "index" and not apply and self._holds(file)
            return Spot(name, "index anew", 1) if is_told else None
        folder_of = file.family.folder_of
        if folder_of is not None and file.path.parent.name in map(folder_of, self._search.scope.keys):
            return _remove(file, name, apply=apply)  # it belongs to a session that is removed as a whole
        blocks = _rewrite_blocks(file.path, self._search.marks, apply=apply) if file.agent else 0
        # In a workspace only what was written to memory.
        words = self._search.scope.words if file.agent else self._search.said
        count = _count_lines(file, words) if words else 0
        count = count or int(self._in_rows and file.family.copies_rows)
        if not count and not blocks:
            return None
        quotes = _quotes_in(file, self._search.said) if self._search.quoting else ()
        if file.treatment == "stays":
            return None if apply else Spot(name, "stays", count, file.family.why, quotes)
        if file.treatment == "remove":
            return _remove(file, name, quotes, apply=apply)
        if apply and count:
            _rewrite(file, words)
        return Spot(name, "rewrite", count + blocks, quotes=quotes)

    async def _look_again(self, places: list[TextPlace]) -> tuple[list[Spot], tuple[WordCheck, ...]]:
        rows = await self._store.remains(self._search.said, partial(self._tell, AGAIN))
        files = await asyncio.to_thread(self._raw_remains, bool(rows))
        probes = [WordCheck("rows of the database", sum(spot.count for spot in rows))]
        probes.append(WordCheck("files, byte by byte", len(files)))
        remains = [*rows, *files]
        for place in places:
            more, probed = await place.look_again()
            remains += more
            probes += probed
        return remains, tuple(probes)

    def _raw_remains(self, rows: bool) -> list[Spot]:
        found = []
        for file in self._all_files(AGAIN):
            if self._holds(file) and not (file.treatment == "rows" and rows):  # rows are reported one by one
                why = file.family.why if file.treatment == "stays" else ""
                why = why or "the same words are there from another source"
                found.append(Spot(self._files.shown(file.path), "stays", 1, why))
        return found

    def _holds(self, file: ScannedFile) -> bool:
        return bool(self._search.said) and holds(file.path, self._search.said)


def _workspaces(services: Services, agent: str = "") -> dict[str, Path]:
    try:
        config = load_config(services.home, services.env).config
    except ConfigError:
        return {}
    ids = [each for each in agent_ids(config) if agent in ("", each)]
    if not ids:
        raise NotFound(f"there is no agent {agent!r}", hint="`pal agents list` shows them")
    return {each: agent_settings(config, services.home, each).workspace for each in ids}


class ScannedFile(Struct, frozen=True):
    path: Path
    family: TextFiles
    treatment: Treatment
    agent: str = ""  # whose workspace it lies in


class ScannedFiles:
    """The files of a home and of its agents' workspaces."""

    def __init__(
        self, root: Path, workspaces: Mapping[str, Path], families: Sequence[TextFiles], *, every_file: bool
    ) -> None:
        self._root = root.resolve()
        self._workspaces = {path.resolve(): agent for agent, path in reversed(list(workspaces.items()))}
        self._families = [(re.compile(each.pattern, re.DOTALL), each) for each in reversed(families)]
        self._every_file = every_file

    def all(self) -> Iterator[ScannedFile]:
        """Each once. Links are not followed."""
        outside = [path for path in self._workspaces if not path.is_relative_to(self._root)]
        for top in (self._root, *outside):
            for path in plain_files(top):
                agent, inside = self._workspace_of(path)
                family = self._family("workspace", inside) if inside else self._family("home", self.shown(path))
                as_work = family.is_work and self._every_file
                yield ScannedFile(path, family, "text" if as_work else family.treatment, agent)

    def shown(self, path: Path) -> str:
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _workspace_of(self, path: Path) -> tuple[str, str]:
        """The agent, and the path inside; empty when it is in no workspace."""
        for root, agent in self._workspaces.items():
            if path.is_relative_to(root) and root != self._root:
                return agent, str(path.relative_to(root))
        return "", ""

    def _family(self, inside: str, name: str) -> TextFiles:
        found = (each for pattern, each in self._families if each.inside == inside and pattern.fullmatch(name))
        return next(found, TextFiles("", "stays", "not a known kind of file"))


def _remove(file: ScannedFile, name: str, quotes: tuple[str, ...] = (), *, apply: bool) -> Spot:
    if apply:
        file.path.unlink(missing_ok=True)
    return Spot(name, "remove", 1, quotes=quotes)


def _count_lines(file: ScannedFile, words: Words) -> int:
    """Returns how many lines contain the words; 1 for a binary file with them."""
    text = text_of(file.path)
    return int(holds(file.path, words)) if text is None else _cleaned(text, file, words)[1]


def _cleaned(text: str, file: ScannedFile, words: Words) -> tuple[str, int]:
    """The text without the words, and how many lines of it held them."""
    if file.treatment == "lines of JSON":
        lines = text.split("\n")
        new = [forget_in_json(line, words) for line in lines]
        return "\n".join(new), sum(map(operator.ne, lines, new))
    return words.without(text, stone=()), len(words.lines(text))  # a tombstone would be read as a note


def _quotes_in(file: ScannedFile, words: Words) -> tuple[str, ...]:
    """The words as the file has them."""
    text = text_of(file.path) or ""
    return tuple(words.quotes(unescaped(text) if file.treatment == "lines of JSON" else text))


def _rewrite(file: ScannedFile, words: Words) -> None:
    """Removes the words. A binary file is not changed.

    What is appended meanwhile is carried over: writers of a log have the old file open.
    """
    with file.path.open("rb") as old:
        if text_of(file.path) is None:
            return
        text = old.read().decode("utf-8", "surrogateescape")
        after, _ = _cleaned(text, file, words)
        if after != text:
            write_atomic(file.path, after.encode("utf-8", "surrogateescape"))
            if late := old.read():
                with file.path.open("ab") as new:
                    new.write(late)


def _rewrite_blocks(path: Path, marks: tuple[str, ...], *, apply: bool) -> int:
    """How many marked blocks of notes there are; `apply` removes them."""
    text = (text_of(path) if marks else None) or ""
    found = sum(mark in text for mark in marks)
    if found and apply:
        write_atomic(path, drop_blocks(text, marks).encode("utf-8", "surrogateescape"))
    return found


class ForgetProgress(Struct, frozen=True):
    """Without a total the amount is not known."""

    stage: str
    done: int
    total: int


class ForgetStep(Struct, frozen=True, omit_defaults=True):
    progress: ForgetProgress | None = None
    report: ForgetReport | None = None


@operation("forget", scope="admin", local=True)
async def forget_words(services: Services, params: Forget) -> AsyncIterator[ForgetStep]:
    """Remove words, or a whole session, from everything that holds them.

    A run with `apply` goes on to its end, also when the caller stops listening.
    """
    latest: list[ForgetProgress] = []

    def tell(stage: str, done: int, total: int) -> None:
        latest[:] = [ForgetProgress(stage, done, total)]

    steps = follow(forget(services, params, tell), latest, to_its_end=params.apply)
    async with aclosing(steps):
        async for progress, report in steps:
            yield ForgetStep(progress, report)


async def forget(services: Services, params: Forget, tell: TellStage = lambda *_: None) -> ForgetReport:
    """Do it, or without `apply` only search. Raises BadRequest, NotFound, NotOffered and StorageError."""
    if bool(params.session) == bool(params.query):
        raise BadRequest("say what to forget", hint="either a session or a query")
    if params.query and len(params.query.strip()) < SHORTEST:
        raise BadRequest(f"{params.query!r} is too short", hint=f"at least {SHORTEST} letters")
    return await ForgetRun(services, params, tell).run()
