"""Forget words, or all of a conversation: find every place first, then take them out, then look again.

For those on the machine only. What cannot be reached is named with the reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.load import load_config
from palinurus.config.settings import agent_ids, agent_settings
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, NotOffered, PalinurusError, StorageError
from palinurus.memory.question import Question
from palinurus.migrate.backup.register import Backups
from palinurus.migrate.forgetting.elsewhere import backup_spots, in_backups, in_histories
from palinurus.migrate.forgetting.files import File, Places, count_lines, holds, rewrite, rewrite_blocks
from palinurus.migrate.forgetting.report import Action, ForgetReport, Probe, Spot
from palinurus.migrate.forgetting.store import ForgettingStore, Looked, Scope
from palinurus.migrate.forgetting.words import SHORTEST, Words, said_lines
from palinurus.operations.house import House
from palinurus.operations.table import Operation

NOTE_LETTERS, SAID_LETTERS = 8, 16  # of a line that is looked for elsewhere: shorter ones are anybody's
TABLES: dict[str, tuple[str, Action]] = {
    "entries": ("what was said", "tombstone"),
    "extractions": ("notes of conversations", "tombstone"),
    "runs": ("accepted messages and replies", "tombstone"),
    "sessions": ("names of conversations", "rewrite"),
    "outbox": ("messages on their way out", "tombstone"),
    "imported_documents": ("documents of other homes", "rewrite"),
    "approvals": ("decided approvals", "remove"),
    "grants": ("grants", "remove"),
    "traces": ("traces of runs", "remove"),
    "audit_details": ("details of the audit log", "erase"),
}
KEPT_WHY = {
    "audit": "the audit log's own chain, which covers it",
    "sessions.key": "the name by which a conversation is found",
    "approvals": "a question that still waits for an answer",
}


class Forget(Struct, frozen=True, omit_defaults=True):
    session: str = ""  # key or id
    query: str = ""  # words, in any case
    agent: str = ""  # words are looked for only in what is this one's
    files: bool = False  # also in files of workspaces that are no memory
    apply: bool = False


async def _forget(house: House, params: Forget) -> ForgetReport:
    if house.forgetting is None:
        raise NotOffered("this house keeps nothing that could be forgotten")
    _check(params)
    return await _Forgetting(house, house.forgetting, params).run()


def _check(params: Forget) -> None:
    if bool(params.session) == bool(params.query):
        raise BadRequest("forget what?", hint="either a session or a query")
    if params.query and len(params.query.strip()) < SHORTEST:
        raise BadRequest(f"{params.query!r} stands everywhere", hint=f"at least {SHORTEST} letters")


class _Forgetting:
    def __init__(self, house: House, store: ForgettingStore, params: Forget) -> None:
        self._house, self._store, self._params = house, store, params
        self._id = house.new_id()
        self._workspaces = _workspaces(house, params.agent)
        self._backups = Backups(house.home.root)
        self._scope = Scope(Words(()))
        self._said = self._words = Words(())  # what was typed; all that is looked for afterwards
        self._marks: tuple[str, ...] = ()
        self._in_rows = False  # whether the database holds it, and so each copy that was made of it

    async def run(self) -> ForgetReport:
        await self._find_out()
        looked = await self._store.look(self._scope)
        self._in_rows = bool(looked.rows)
        spots = _row_spots(looked)
        if not self._params.apply:
            spots += await asyncio.to_thread(self._file_spots, apply=False)
            spots += await asyncio.to_thread(self._elsewhere, looked)
            return ForgetReport(self._id, False, tuple(spots), sessions=_keys_of(looked))
        self._check_quiet(looked)
        spots += await self._apply(looked)
        held = await asyncio.to_thread(self._elsewhere, looked)
        remains, probes = await self._probe()
        return ForgetReport(self._id, True, tuple(spots), (*remains, *held), probes, _keys_of(looked))

    async def _find_out(self) -> None:
        """What is looked for, and where."""
        if self._params.query:
            self._words = self._said = Words([self._params.query])
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
        for agent in _workspaces(self._house):
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
        return [spot for file in self._files() if (spot := self._file_spot(file, apply=apply)) is not None]

    def _files(self) -> Iterator[File]:
        places = Places(self._house.home.root, self._workspaces, every_file=self._params.files)
        return places.files()

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
            if apply:
                file.path.unlink(missing_ok=True)
            return Spot(name, "remove", 1)
        if file.kind.treatment == "stays":
            return None if apply else Spot(name, "stays", count, file.kind.why)
        if apply and count:
            rewrite(file, words)
        return Spot(name, "rewrite", count + blocks)

    def _index_spot(self, file: File, name: str) -> Spot | None:
        """The database itself is gone through row by row; what is derived from it, and from files, is made anew."""
        derived = name.startswith("derived/") and bool(self._words) and holds(file.path, self._words.raw())
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

    async def _probe(self) -> tuple[list[Spot], tuple[Probe, ...]]:
        columns = await self._store.remains(self._words)
        remains = [Spot(f"home.sqlite {name}", "stays", n, _kept_why(name)) for name, n in columns.items()]
        remains += await asyncio.to_thread(self._raw_remains, bool(columns))
        probes = [
            Probe("rows of the database", sum(columns.values())),
            Probe("files, byte by byte", len(remains) - len(columns)),
        ]
        probes += [Probe("search in conversations", await self._found_in_talks())]
        probes += [Probe(f"memory search of {agent}", await self._found_in_memory(agent)) for agent in self._workspaces]
        return remains, tuple(probes)

    def _raw_remains(self, rows: bool) -> list[Spot]:
        pattern, found = self._words.raw(), []
        for file in self._files():
            if not self._words or not holds(file.path, pattern):
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


def _row_spots(looked: Looked) -> list[Spot]:
    return [Spot(f"home.sqlite: {TABLES[table][0]}", TABLES[table][1], n) for table, n in looked.rows.items()]


def _keys_of(looked: Looked) -> tuple[str, ...]:
    return tuple(sorted({each.key for each in looked.sessions}))


def _kept_why(column: str) -> str:
    table = column.partition(".")[0]
    return KEPT_WHY.get(column) or KEPT_WHY.get(table) or "the same words stand there, said elsewhere or as a name"


FORGET = Operation("forget", Forget, ForgetReport, "admin", _forget, local=True)
OPERATIONS = (FORGET,)
