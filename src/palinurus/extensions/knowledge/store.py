"""What is derived from an agent's facts, in its own file, `derived/knowledge/<agent>.sqlite`.

It may be deleted at any time: the next question reads the markdown anew. A file that cannot be read is deleted here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory
from palinurus.domain.errors import StorageDamaged
from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.entities import Declaration, Merge, NamedIn, called_in, resolve_names
from palinurus.extensions.knowledge.facts import Fact, FactReading, FactTrouble
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.storage.migrations import Series, declare_series
from palinurus.storage.transaction import Transaction, Work, declare_queries
from palinurus.text.words import index_words

declare_queries("knowledge", __file__)
declare_series("knowledge", Series("knowledge", Path(__file__).parent / "sql" / "sqlite" / "knowledge_steps"))
T = TypeVar("T")
REMEMBERED = timedelta(90)  # for so long counts that a fact was recalled


class Entity(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A person, place or thing that facts name."""

    name: str
    facts: int
    also: tuple[str, ...] = ()  # other names
    first_day: str = ""
    last_day: str = ""


class StoredFact(Struct, frozen=True):
    number: int
    fact: Fact
    entities: tuple[str, ...]  # under which they are listed


class FactQuery(Struct, frozen=True):
    """One of the queries `by_…`."""

    name: str
    most: int
    values: dict[str, Any]


class KnowledgeStore:
    """When a write returns, all of it is there, or nothing after an error."""

    def __init__(self, path: Path | None) -> None:
        """Without a path it is in memory."""
        self._path = path
        self._database: Database | None = None
        self._names: dict[str, str] | None = None  # as long as nothing is written

    async def stamps(self) -> dict[str, str]:
        return dict(await self._read(lambda tx: tx.all("knowledge.files")))

    async def replace(
        self, changed: Mapping[str, tuple[str, FactReading]], gone: Collection[str], declared: Sequence[Declaration]
    ) -> None:
        """Files by path, each with its stamp and its facts; then names are resolved anew."""

        def work(tx: Transaction) -> None:
            for path in (*gone, *changed):
                for query in ("drop_words", "drop_mentions", "drop_facts", "drop_file"):
                    tx.run(f"knowledge.{query}", path=path)
            number = tx.value("knowledge.next_number")
            for path, (stamp, reading) in changed.items():
                troubles = msgspec.json.encode(reading.troubles).decode()
                tx.many("knowledge.put_file", [(path, stamp, troubles)])
                number = _put_facts(tx, number, reading.facts)
            _resolve(tx, declared)

        self._names = None
        await self._write(work)
        self._names = None  # they may have been read meanwhile

    async def entities(self) -> list[Entity]:
        rows = await self._read(lambda tx: tx.all("knowledge.entities"))
        return [
            Entity(
                name, facts, tuple(sorted(each for each in json.loads(names) if each != name)), first or "", last or ""
            )
            for name, names, facts, first, last in rows
        ]

    async def merges(self) -> list[Merge]:
        return [Merge(*row) for row in await self._read(lambda tx: tx.all("knowledge.merges"))]

    async def troubles(self) -> list[FactTrouble]:
        rows = await self._read(lambda tx: tx.all("knowledge.troubles"))
        return [each for (text,) in rows for each in msgspec.json.decode(text, type=list[FactTrouble])]

    async def names(self) -> dict[str, str]:
        """Every name, and the entity under which it is listed."""
        if self._names is None:
            self._names = dict(await self._read(lambda tx: tx.all("knowledge.known_names")))
        return self._names

    async def look(self, queries: Sequence[FactQuery]) -> tuple[list[list[int]], dict[int, StoredFact]]:
        """Numbers of facts for each, the best first; and the facts."""

        def work(tx: Transaction) -> tuple[list[list[int]], dict[int, StoredFact]]:
            found = [
                [number for (number,) in tx.all(f"knowledge.{each.name}", most=each.most, **each.values)]
                for each in queries
            ]
            wanted = json.dumps(list({number for numbers in found for number in numbers}))
            return found, _stored(tx, tx.all("knowledge.facts", numbers=wanted))

        return await self._read(work)

    async def facts_at(self, places: Sequence[tuple[str, int, int]]) -> dict[int, StoredFact]:
        """Facts in lines of files: path, first and last line."""
        if not places:
            return {}
        return await self._read(lambda tx: _stored(tx, tx.all("knowledge.facts_at", places=json.dumps(places))))

    async def facts_of(self, kind: str) -> list[StoredFact]:
        return list((await self._read(lambda tx: _stored(tx, tx.all("knowledge.facts_of_kind", kind=kind)))).values())

    async def all_facts(self) -> list[StoredFact]:
        return list((await self._read(lambda tx: _stored(tx, tx.all("knowledge.all_facts")))).values())

    async def note_recalled(self, facts: Sequence[str], question: str, today: date) -> None:
        """That these facts, by their ids, were the best answers to a question. What is long ago is forgotten."""

        def work(tx: Transaction) -> None:
            tx.run("knowledge.forget_recalled", before=(today - REMEMBERED).isoformat())
            tx.many("knowledge.put_recalled", [(fact, question, today.isoformat()) for fact in facts])

        await self._write(work)

    async def often_recalled(self, least: int) -> dict[str, int]:
        """Ids of facts that so many different questions have found, and how many did."""
        return dict(await self._read(lambda tx: tx.all("knowledge.often_recalled", least=least)))

    async def count(self) -> int:
        return int(await self._read(lambda tx: tx.value("knowledge.count")))

    async def close(self) -> None:
        self._names = None
        if self._database is not None:
            database, self._database = self._database, None
            await database.close()

    async def _read(self, work: Work[T]) -> T:
        return await self._opened().read(work)

    async def _write(self, work: Work[T]) -> T:
        return await self._opened().write(work)

    def _opened(self) -> Database:
        if self._database is None:
            try:
                self._database = self._open()
            except StorageDamaged:
                assert self._path is not None  # noqa: S101  one in memory is never damaged
                for suffix in ("", "-wal", "-shm"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                self._database = self._open()
        return self._database

    def _open(self) -> Database:
        if self._path is None:
            return MemoryDatabase("knowledge")
        make_directory(self._path.parent)
        return Database(self._path, "knowledge", derived=True)


def _put_facts(tx: Transaction, number: int, facts: Sequence[Fact]) -> int:
    """Returns the next free number."""
    numbered = list(enumerate(facts, number))
    tx.many(
        "knowledge.put_fact",
        [
            (
                at, each.id, each.path, each.line, each.last_line, each.kind, each.text,
                json.dumps(each.entities, ensure_ascii=False), each.said_on, each.first_day, each.last_day,
                each.confidence, str(each.origin), each.instead_of,
            )
            for at, each in numbered
        ],
    )  # fmt: skip
    tx.many("knowledge.put_words", [(at, index_words(" ".join((each.text, *each.entities)))) for at, each in numbered])
    tx.many("knowledge.put_mention", [(name, at) for at, each in numbered for name in each.entities])
    return number + len(numbered)


def _resolve(tx: Transaction, declared: Sequence[Declaration]) -> None:
    """What is not the owner's word names somebody, but says nothing of who is the same."""
    mentions, called = [], list[Declaration]()
    for name, said_on, names, text, origin in tx.all("knowledge.mentioned"):
        company: tuple[str, ...] = ()
        day = date.fromisoformat(said_on) if said_on and origin == Origin.OWNER else None
        if origin == Origin.OWNER and len(others := json.loads(names)) > 1:
            one = called_in(text)
            if one is None:
                company = tuple(each for each in others if each != name)
            elif one[0] == name:
                called.append(Declaration(*one))
        mentions.append(NamedIn(name, day, company))
    listed, merges = resolve_names(mentions, (*called, *declared))
    tx.run("knowledge.forget_names")
    tx.run("knowledge.forget_merges")
    tx.many("knowledge.put_name", list(listed.items()))
    tx.many("knowledge.put_merge", [(each.name, each.into, each.score, each.why) for each in merges])


def _stored(tx: Transaction, rows: Sequence[Any]) -> dict[int, StoredFact]:
    entities: dict[int, list[str]] = defaultdict(list)
    for number, name in tx.all("knowledge.entities_of", numbers=json.dumps([row[0] for row in rows])):
        if name not in entities[number]:
            entities[number].append(name)
    found = {}
    for number, id_, kind, text, names, path, line, last, said_on, first, end, confidence, origin, instead in rows:
        fact = Fact(
            id_,
            kind,
            text,
            tuple(json.loads(names)),
            path,
            line,
            last,
            said_on,
            first,
            end,
            confidence,
            Origin(origin),
            instead,
        )
        found[number] = StoredFact(number, fact, tuple(entities[number]))
    return found
