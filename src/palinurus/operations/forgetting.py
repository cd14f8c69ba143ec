"""Forget words, or all of a conversation: find every place first, then take them out, then look again.

What cannot be reached is named with the reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.load import load_config
from palinurus.config.secrets import Redactor
from palinurus.config.settings import agent_ids, agent_settings
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, PalinurusError, StorageError
from palinurus.memory.question import Question
from palinurus.migrate.backup.register import Backups
from palinurus.migrate.forgetting.copies import Copies
from palinurus.migrate.forgetting.elsewhere import backup_spots, in_backups, in_histories
from palinurus.migrate.forgetting.files import File, Places, count_lines, holds, quotes_in, rewrite, rewrite_blocks
from palinurus.migrate.forgetting.report import ForgetReport, Probe, Spot
from palinurus.migrate.forgetting.store import ForgettingStore, Looked, Scope
from palinurus.migrate.forgetting.words import Words, forget_in_json, said_lines
from palinurus.operations.forget_copies import CopiesDesk, Wanted, open_desk
from palinurus.operations.forget_rows import kept_why, keys_of, row_spots
from palinurus.operations.house import House

TellStage = Callable[[str, int, int], None]
"""Told what is being done and how far it is, from any thread, often. Must not raise."""

SAID, FILES, COPIES = "looking through what was said", "looking through files", "looking through wikis and exports"
INDEXES, ANEW, AGAIN = "indexing memory anew", "writing the database anew", "looking again"
NOTE_LETTERS, SAID_LETTERS = 8, 16  # of a line that is looked for elsewhere: shorter ones are anybody's


class Forget(Struct, frozen=True, omit_defaults=True):
    session: str = ""  # key or id
    query: str = ""  # words, in any case
    agent: str = ""  # words are looked for only in what is this one's
    files: bool = False  # also in files of workspaces that are no memory
    apply: bool = False


async def forget_all(house: House, store: ForgettingStore, params: Forget, tell: TellStage) -> ForgetReport:
    return await _Forgetting(house, store, params, tell).run()


class _Forgetting:
    def __init__(self, house: House, store: ForgettingStore, params: Forget, tell: TellStage) -> None:
        self._house, self._store, self._params, self._tell = house, store, params, tell
        self._id = house.new_id()
        self._workspaces = _workspaces(house, params.agent)
        self._backups = Backups(house.home.root)
        self._scope = Scope(Words(()))
        self._said = self._words = Words(())  # what was typed; all that is looked for afterwards
        self._marks: tuple[str, ...] = ()
        self._quoting = False  # whether the words are shown as they stand: not what was said in a whole conversation
        self._copied: tuple[Path, ...] = ()  # wikis and exports, which are looked after elsewhere
        self._in_rows = False  # whether the database holds it, and so each copy that was made of it

    async def run(self) -> ForgetReport:
        await self._find_out()
        self._tell(SAID, 0, 0)
        looked = await self._store.look(self._scope, partial(self._tell, SAID))
        self._in_rows = bool(looked.rows)
        copies = await self._look_at_copies(looked)
        spots = row_spots(looked, quoting=self._quoting)
        if not self._params.apply:
            spots += await asyncio.to_thread(self._file_spots, apply=False)
            spots += await asyncio.to_thread(self._elsewhere, looked)
            spots += copies.spots
            return ForgetReport(self._id, False, tuple(spots), sessions=keys_of(looked), away=copies.away)
        self._check_quiet(looked)
        # What was made from the words goes before the words themselves: from those it is known what to look for.
        held = await asyncio.to_thread(copies.forget)
        spots += [*(spot for spot in copies.spots if spot.action != "stays"), *await self._apply(looked)]
        held += await asyncio.to_thread(self._elsewhere, looked)
        remains, probes = await self._probe(copies)
        return ForgetReport(self._id, True, tuple(spots), (*remains, *held), probes, keys_of(looked), copies.away)

    async def _look_at_copies(self, looked: Looked) -> CopiesDesk:
        """Before anything is changed: what goes from a wiki is known from its sources as they are."""
        self._tell(COPIES, 0, 0)
        known = await asyncio.to_thread(Copies(self._house.home.root).all)
        entries = await self._entries_gone(looked) if known else {}
        wanted = Wanted(self._house.home.root, self._scope, self._said, self._marks, entries, self._params.files)
        desk = await asyncio.to_thread(open_desk, known, wanted, _redactor(self._house))
        await asyncio.to_thread(desk.look, quoting=self._quoting)
        self._copied = tuple(Path(each.path) for each in known)
        return desk

    async def _entries_gone(self, looked: Looked) -> dict[str, frozenset[int]]:
        """For each conversation that holds the words, which of its entries do, counted from 1."""
        found = {}
        for each in looked.sessions:
            if each.id not in self._scope.sessions:
                rows = await self._house.sessions.rows(each.id)
                words, texts = self._scope.words, [row.payload for row in rows]
                found[each.id] = await asyncio.to_thread(_numbers_holding, texts, words)
        return found

    async def _find_out(self) -> None:
        """What is looked for, and where."""
        if self._params.query:
            self._words = self._said = Words([self._params.query])
            self._quoting = not self._params.apply
            self._scope = Scope(self._words, agent=self._params.agent)
            return
        found = await self._store.conversations(self._params.session)
        if not found:
            raise NotFound(f"there is no session {self._params.session!r}", hint="`pal sessions list` shows them")
        ids = frozenset(each.id for each in found)
        sources = await self._store.sources(ids)
        notes = said_lines(sources.notes, NOTE_LETTERS)
        typed = said_lines(sources.said, SAID_LETTERS)
        keys = frozenset(each.key for each in found if each.key == self._params.session)
        self._scope = Scope(Words(notes), ids, keys, sources.runs)
        self._said = self._words = Words([*notes, *typed])
        self._marks = tuple(f"<!-- notes {each} -->" for each in sources.note_ids)

    def _check_quiet(self, looked: Looked) -> None:
        """A turn that goes on holds the words in its hands, and would write them down again."""
        keys = {each.key for each in looked.sessions} | self._scope.keys
        busy = sorted({str(run.key) for run in self._house.dispatcher.runs.active() if str(run.key) in keys})
        if busy:
            raise BadRequest(f"{busy[0]} is answering right now", hint="wait until it has, or /stop it")

    async def _apply(self, looked: Looked) -> list[Spot]:
        for parcel in looked.parcels:
            await self._house.deliveries.drop(parcel)
        # Files first: what to look for in them is known from the rows, should this be cut off and done again.
        spots = await asyncio.to_thread(self._file_spots, apply=True)
        await self._store.forget(self._scope, self._id, self._house.clock.now_ms())
        if looked.audit:
            await self._house.audit.erase(looked.audit)
        spots += await self._index_anew()
        self._tell(ANEW, 0, _size(self._house.home.root / "home.sqlite"))
        try:
            await self._store.scrub()
        except StorageError as error:
            spots.append(Spot("home.sqlite, bytes that are not used", "stays", 1, f"{error.message}; try once more"))
        held = await asyncio.to_thread(in_backups, self._backups, looked.since)
        if held:
            await asyncio.to_thread(self._backups.mark, self._id, [each.id for each in held])
        for agent in self._workspaces:
            self._house.edited(agent, "words were forgotten")
        return spots

    async def _index_anew(self) -> list[Spot]:
        spots = []
        agents = list(_workspaces(self._house))
        for done, agent in enumerate(agents):
            self._tell(INDEXES, done, len(agents))
            path = self._house.home.root / "derived" / "memory" / f"{agent}.sqlite"
            if not path.exists():
                continue
            try:
                report = await self._house.memory(agent).forget()
                spots.append(Spot(f"memory index of {agent}", "index anew", report.changed + report.removed))
            except PalinurusError as error:
                spots.append(Spot(f"memory index of {agent}", "stays", 1, error.message))
        return spots

    def _file_spots(self, *, apply: bool) -> list[Spot]:
        return [spot for file in self._files(FILES) if (spot := self._file_spot(file, apply=apply)) is not None]

    def _files(self, stage: str) -> Iterator[File]:
        places = Places(self._house.home.root, self._workspaces, every_file=self._params.files)
        files = [file for file in places.files() if not any(map(file.path.is_relative_to, self._copied))]
        for done, file in enumerate(files):
            self._tell(stage, done, len(files))
            yield file

    def _file_spot(self, file: File, *, apply: bool) -> Spot | None:
        name = self._shown(file.path)
        if file.kind.treatment == "index":
            return None if apply else self._index_spot(file, name)
        if self._is_result(file):
            if apply:
                file.path.unlink(missing_ok=True)
            return Spot(name, "remove", 1)
        blocks = rewrite_blocks(file.path, self._marks, apply=apply) if self._is_memory(file) and self._marks else 0
        words = self._scope.words if self._is_memory(file) else self._said
        count = count_lines(file, words) if words else 0
        count = count or int(self._in_rows and file.path.name.startswith("home.sqlite.before-"))
        if not count and not blocks:
            return None
        if file.kind.treatment == "remove":
            quotes = self._quotes(file)
            if apply:
                file.path.unlink(missing_ok=True)
            return Spot(name, "remove", 1, quotes=quotes)
        if file.kind.treatment == "stays":
            return None if apply else Spot(name, "stays", count, file.kind.why, self._quotes(file))
        quotes = self._quotes(file)
        if apply and count:
            rewrite(file, words)
        return Spot(name, "rewrite", count + blocks, quotes=quotes)

    def _quotes(self, file: File) -> tuple[str, ...]:
        return quotes_in(file, self._words) if self._quoting else ()

    def _index_spot(self, file: File, name: str) -> Spot | None:
        """The database itself is gone through row by row; what is derived from it, and from files, is made anew."""
        derived = name.startswith("derived/") and bool(self._words) and holds(file.path, self._words)
        return Spot(name, "index anew", 1) if derived else None

    def _is_memory(self, file: File) -> bool:
        return bool(file.agent)

    def _is_result(self, file: File) -> bool:
        """Results that were kept whole for a conversation which goes as a whole."""
        folders = {hashlib.sha256(key.encode()).hexdigest()[:32] for key in self._scope.keys}
        return file.path.parent.name in folders and file.path.parent.parent.name == "results"

    def _elsewhere(self, looked: Looked) -> list[Spot]:
        return [
            *in_histories(self._workspaces, self._scope.words),
            *backup_spots(in_backups(self._backups, looked.since)),
        ]

    async def _probe(self, copies: CopiesDesk) -> tuple[list[Spot], tuple[Probe, ...]]:
        columns = await self._store.remains(self._words, partial(self._tell, AGAIN))
        remains = [Spot(f"home.sqlite {name}", "stays", n, kept_why(name)) for name, n in columns.items()]
        remains += await asyncio.to_thread(self._raw_remains, bool(columns))
        probes = [
            Probe("rows of the database", sum(columns.values())),
            Probe("files, byte by byte", len(remains) - len(columns)),
        ]
        probes += [Probe("search in conversations", await self._found_in_talks())]
        probes += [Probe(f"memory search of {agent}", await self._found_in_memory(agent)) for agent in self._workspaces]
        outside = await asyncio.to_thread(copies.remains)
        probes += [Probe("wikis and exports", len(outside))] if copies else []
        return [*remains, *outside], tuple(probes)

    def _raw_remains(self, rows: bool) -> list[Spot]:
        found = []
        for file in self._files(AGAIN):
            if not self._words or not holds(file.path, self._words):
                continue
            name = self._shown(file.path)
            if name.startswith("home.sqlite") and rows:
                continue  # told above, row by row
            found.append(Spot(name, "stays", 1, file.kind.why or "the same words stand there, said elsewhere or anew"))
        return found

    async def _found_in_talks(self) -> int:
        texts = self._words.texts[:5]
        hits = [hit for text in texts for hit in await self._house.index.search(text)]
        return sum(self._words.hold(hit.snippet) for hit in hits)

    async def _found_in_memory(self, agent: str) -> int:
        if not (self._house.home.root / "derived" / "memory" / f"{agent}.sqlite").exists():
            return 0
        found = 0
        for text in self._words.texts[:5]:
            try:
                answer = await self._house.memory(agent).search(Question(text))
            except PalinurusError:  # a workspace that is gone
                continue
            found += sum(self._words.hold(msgspec.json.encode(each).decode()) for each in answer.results)
        return found

    def _shown(self, path: Path) -> str:
        root = self._house.home.root.resolve()
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _workspaces(house: House, agent: str = "") -> dict[str, Path]:
    try:
        config = load_config(house.home, os.environ).config
    except ConfigError:
        return {}
    ids = [each for each in agent_ids(config) if agent in ("", each)]
    if not ids:
        raise NotFound(f"there is no agent {agent!r}", hint="`pal agents list` shows them")
    return {each: agent_settings(config, house.home, each).workspace for each in ids}


def _numbers_holding(payloads: list[str], words: Words) -> frozenset[int]:
    return frozenset(n for n, text in enumerate(payloads, start=1) if forget_in_json(text, words) != text)


def _redactor(house: House) -> Redactor:
    try:
        return Redactor(load_config(house.home, os.environ).secrets)
    except ConfigError:
        return Redactor()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
