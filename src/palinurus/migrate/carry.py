"""Carry transcripts over: read in a thread, stored in batches, shown at the end all at once.

A transcript is known by its agent, its id and its first line, wherever the home lies. What was carried before is read
again and compared by a running digest. So a second migration changes nothing, one that was cut off goes on where it
was, and a conversation that has grown in the other home grows here, unless it was continued in both.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from msgspec.structs import replace

from palinurus.migrate.foreign import ForeignEntry, ForeignSession
from palinurus.migrate.importer import SessionImporter, Stored
from palinurus.migrate.report import Counted, Findings, FoundSession, Losses, Outcome
from palinurus.migrate.rows import details_of, session_row
from palinurus.migrate.tally import Tally

BATCH_ENTRIES = 8_000
BATCH_CHARACTERS = 6 * 1024 * 1024  # a fraction of a second, for which others wait
PILE_ENTRIES, PILE_CHARACTERS = 2_000, 1024 * 1024  # that are only counted
TOGETHER = 3  # transcripts under way: while one waits for the disk, another is read

Batch = tuple[list[ForeignEntry], str]
"""Entries, and the digest of all up to their end."""

OnBytes = Callable[[int], None]
"""Told how many bytes of transcripts have been read. Must not raise."""


class Carrier:
    """Reads sessions and, unless it only looks, hands them to the importer."""

    def __init__(
        self,
        importer: SessionImporter,
        losses: Losses,
        findings: Findings,
        read: OnBytes = lambda _: None,
        *,
        apply: bool,
        now: int,
    ) -> None:
        self._importer = importer
        self._losses = losses
        self._findings = findings
        self._apply = apply
        self._now = now
        self._read = read
        self._sources: set[str] = set()  # that were carried now
        self._into: dict[tuple[str, str], FoundSession] = {}  # (agent, file) -> what became of it

    async def carry_all(self, sessions: Sequence[ForeignSession]) -> list[FoundSession]:
        """A few at a time; in the order in which they came."""
        places, twins = asyncio.Semaphore(TOGETHER), defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)

        async def carried(session: ForeignSession) -> FoundSession:
            async with twins[session.agent, session.session_id], places:  # an archive may begin like its session
                return await self.carry(session)

        first = [session for session in sessions if not session.same_as]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(carried(session)) for session in first]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        found = iter([task.result() for task in tasks])
        return [await self.carry(session) if session.same_as else next(found) for session in sessions]

    async def carry(self, session: ForeignSession) -> FoundSession:
        """What is in it, and what became of it."""
        earlier = self._into.get((session.agent, session.file))
        if session.same_as and earlier is not None:
            return replace(earlier, key=session.key, label=session.label, same_as=session.same_as)
        tally = Tally(session, self._findings)
        with self._losses.counted() as losses:
            way = _Way(self._importer, session, tally, losses, self._sources, apply=self._apply, now=self._now)
            found = replace(await way.go(), skipped=losses.count)
        self._into[session.agent, session.file] = found
        self._read(session.size)
        return found


class _Way:
    """The way of one transcript."""

    def __init__(
        self,
        importer: SessionImporter,
        session: ForeignSession,
        tally: Tally,
        losses: Counted,
        carried: set[str],
        *,
        apply: bool,
        now: int,
    ) -> None:
        self._importer = importer
        self._session = session
        self._tally = tally
        self._losses = losses
        self._carried = carried
        self._apply = apply
        self._now = now
        self._source = ""

    async def go(self) -> FoundSession:
        entries = self._session.read()
        first = await asyncio.to_thread(next, entries, None)
        if first is None:
            return self._found("left", "", "nothing was said in it")
        self._source = _source(self._session, first)
        known = await self._importer.stored(self._source)
        entries = chain((first,), entries)
        if known is None and self._session.own is not None:
            return await self._own(entries)
        if known is not None:
            await self._count(entries, known.entries)
            if (self._tally.count, self._tally.digest) != (known.entries, known.digest or _NOTHING):
                return await self._differs(entries, known)
        return await self._rest(entries, known)

    async def _own(self, entries: Iterator[ForeignEntry]) -> FoundSession:
        """One that a Palinurus wrote out; perhaps this one, which has it."""
        await self._count(entries)
        here = await self._importer.digest_of(self._session.session_id, self._tally.count)
        if here == self._tally.digest:
            return self._found("same", self._session.session_id)
        self._tally = Tally(self._session, Findings())
        self._losses.again = True
        return await self._rest(self._session.read(), None)

    async def _rest(self, entries: Iterator[ForeignEntry], known: Stored | None) -> FoundSession:
        """From where it is known: nothing, some or all of it."""
        if known is not None and known.continued and known.shown:
            start = self._tally.count
            await self._count(entries)
            more = self._tally.count - start
            note = f"it was continued in both homes; {more} entries of the other one were not taken" if more else ""
            return self._found("left" if more else "same", known.session_id, note)
        if not self._apply:
            start = self._tally.count
            await self._count(entries)
            return self._found(_outcome(known, self._tally.count - start), known.session_id if known else "")
        return await self._store(entries, known)

    async def _store(self, entries: Iterator[ForeignEntry], known: Stored | None) -> FoundSession:
        start = self._tally.count
        into = known or await self._importer.begin(self._source, session_row(self._session, self._tally, self._now))
        batches = _batches(entries, self._tally)
        coming = asyncio.create_task(asyncio.to_thread(next, batches, None))
        try:
            while (batch := await coming) is not None:
                coming = asyncio.create_task(asyncio.to_thread(next, batches, None))  # read while this one is stored
                await self._importer.add(self._source, *batch)
        finally:
            await asyncio.wait([coming])
        more = self._tally.count - start
        if more or not into.finished:
            row = session_row(self._session, self._tally, self._now)
            await self._importer.finish(self._source, row, details_of(self._session))
        self._carried.add(self._source)
        return self._found(_outcome(known, more), into.session_id)

    async def _differs(self, entries: Iterator[ForeignEntry], known: Stored) -> FoundSession:
        """What is here is not how the transcript begins."""
        if not known.shown and self._source not in self._carried:
            if self._apply:
                await self._importer.discard(self._source)
            return await self._again("")
        await self._count(entries)
        if self._tally.count < known.entries:
            note = "it is shorter than what was carried over before, which stays"
            return self._found("left", known.session_id, note)
        return await self._again(self._tally.digest)

    async def _again(self, digest: str) -> FoundSession:
        """From the start: as itself, or beside the one that it was, because it was rewritten since."""
        self._tally = Tally(self._session, Findings())
        self._losses.again = True
        entries = self._session.read()
        self._source += f":{digest[:16]}" if digest else ""
        known = await self._importer.stored(self._source) if digest else None
        if known is not None and known.shown:
            await self._count(entries)
            return self._found("same", known.session_id)
        if known is not None and self._apply:
            await self._importer.discard(self._source)
        if digest:
            self._session = replace(self._session, origin="earlier")
        found = await self._rest(entries, None)
        return replace(found, note="it was rewritten since it was carried over; both are kept") if digest else found

    async def _count(self, entries: Iterator[ForeignEntry], most: int | None = None) -> None:
        await asyncio.to_thread(_count, entries, self._tally, most)

    def _found(self, outcome: Outcome, into: str, note: str = "") -> FoundSession:
        return replace(self._tally.found(), outcome=outcome, into=into, note=note)


_NOTHING = hashlib.sha256().hexdigest()


def _source(session: ForeignSession, first: ForeignEntry) -> str:
    begins = hashlib.sha256(first.row.payload.encode()).hexdigest()[:16]
    return f"openclaw:{session.agent}:{session.session_id}:{begins}"


def _outcome(known: Stored | None, more: int) -> Outcome:
    if known is None or not known.shown:
        return "new"
    return "grown" if more else "same"


def _count(entries: Iterator[ForeignEntry], tally: Tally, most: int | None) -> None:
    """So many of them, or all."""
    for some in _piles(entries, PILE_ENTRIES, PILE_CHARACTERS, most):
        tally.add(some)


def _batches(entries: Iterator[ForeignEntry], tally: Tally) -> Iterator[Batch]:
    for some in _piles(entries, BATCH_ENTRIES, BATCH_CHARACTERS):
        tally.add(some)
        yield some, tally.digest


def _piles(
    entries: Iterator[ForeignEntry], together: int, characters: int, most: int | None = None
) -> Iterator[list[ForeignEntry]]:
    pile: list[ForeignEntry] = []
    size = 0
    for entry in entries if most is None else islice(entries, most):
        pile.append(entry)
        size += len(entry.row.payload)
        if size >= characters or len(pile) >= together:
            yield pile
            pile, size = [], 0
    if pile:
        yield pile
