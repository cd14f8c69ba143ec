"""Faults at the borders: stores and tools that are slow, fail, or take the house down with them, by seeded dice.

A wrapper implements the same protocol as what it wraps. Failures come before anything was applied, as the protocols
promise; a crash comes before or after. What happens is written to a trace, so two lives can be compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from palinurus.dispatch.inbox import Inbox, RunRecord
from palinurus.dispatch.outbox import Outbox
from palinurus.dispatch.parcel import Parcel, Recipient, State
from palinurus.domain.errors import StorageError, StorageFull
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.ledger.audit import AuditEvent, AuditLog
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry, Row

T = TypeVar("T")


SLOW_DISKS, VERBOSE_MODELS = 0.2, 0.03  # of all lives


class Weather(Struct, frozen=True):
    """How often things go wrong at a border, per call."""

    delay: float = 0.0
    fail: float = 0.0
    crash: float = 0.0
    lie: float = 0.0  # a model or a tool that does not keep to its contract
    slow: float = 0.0  # a disk that takes seconds
    verbose: float = 0.0  # a model that says far too much

    @classmethod
    def drawn(cls, dice: random.Random) -> Weather:
        """Some lives are calm, some have one kind of trouble, some have all kinds."""
        kinds = dice.choice([(), ("delay",), ("fail",), ("crash",), ("lie",), ("delay", "fail", "crash", "lie")])
        most = {"delay": 0.3, "fail": 0.05, "crash": 0.02, "lie": 0.4}
        return cls(**{kind: dice.uniform(0.2, 1.0) * most[kind] for kind in kinds})

    def with_more(self, dice: random.Random) -> Weather:
        """Some lives have a slow disk besides, a few a verbose model. Drawn apart: the others stay as they were."""
        slow = dice.uniform(0.1, 0.6) if dice.random() < SLOW_DISKS else 0.0
        verbose = dice.uniform(0.05, 0.15) if dice.random() < VERBOSE_MODELS else 0.0
        return msgspec.structs.replace(self, slow=slow, verbose=verbose)


CALM = Weather()


def dice_for(seed: int, name: str) -> random.Random:
    """Each part has dice of its own, so that a change of one leaves the luck of the others as it was."""
    return random.Random(f"{seed}/{name}")  # noqa: S311  # a life must repeat


class Trace:
    """What happened, in order. Two lives of one seed have the same digest."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self._hash = hashlib.sha256()

    def add(self, kind: str, what: str = "") -> None:
        line = f"{kind} {what}".rstrip()
        self.lines.append(line)
        self.counts[kind] += 1
        self._hash.update(line.encode("utf-8", "backslashreplace") + b"\n")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class Power:
    """The current that one life of the house runs on. When it is off nothing of that life reaches a border again."""

    def __init__(self) -> None:
        self.on = True
        self._off = asyncio.Event()

    def cut(self) -> None:
        self.on = False
        self._off.set()

    async def lost(self) -> None:
        await self._off.wait()

    async def check(self) -> None:
        """Goes through while there is current; without it, what is here stays here until it is swept away."""
        if not self.on:
            await asyncio.get_running_loop().create_future()


SLOW_SECONDS = (0.1, 1.0, 5.0)


class Border:
    """Where calls of one life cross into what outlives it."""

    def __init__(self, power: Power, weather: Weather, dice: random.Random, trace: Trace) -> None:
        self.power = power
        self.weather = weather
        self.dice = dice
        self.trace = trace

    async def cross(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        await self.power.check()
        await self._wait()
        if self.dice.random() < self.weather.fail:
            self.trace.add("fail", what)
            raise StorageFull("the disk is full") if self.dice.random() < 0.5 else StorageError("the disk is ill")
        await self._maybe_crash("before", what)
        value = await call()
        await self.power.check()
        self.trace.add("call", what)
        await self._maybe_crash("after", what)
        await self._wait()
        return value

    async def _wait(self) -> None:
        if self.dice.random() < self.weather.delay:
            await asyncio.sleep(self.dice.expovariate(2.0))
            await self.power.check()
        if self.weather.slow and self.dice.random() < self.weather.slow:
            await asyncio.sleep(self.dice.choice(SLOW_SECONDS))
            await self.power.check()

    async def _maybe_crash(self, when: str, what: str) -> None:
        if self.dice.random() < self.weather.crash:
            self.trace.add("crash", f"{when} {what}")
            self.power.cut()
            await self.power.check()


class FaultySessions:
    """Implements sessions.store.SessionStore over another one."""

    def __init__(self, inner: SessionStore, border: Border) -> None:
        self._inner = inner
        self._border = border

    async def open(self, key: SessionKey) -> Session:
        return await self._border.cross(f"open {key}", lambda: self._inner.open(key))

    async def find(self, key: SessionKey) -> Session | None:
        return await self._border.cross(f"find {key}", lambda: self._inner.find(key))

    async def recent(self, *, agent: str = "", limit: int = 100, archived: bool = False) -> list[Session]:
        return await self._border.cross(
            "recent", lambda: self._inner.recent(agent=agent, limit=limit, archived=archived)
        )

    async def rows(self, session_id: str, after: int = 0) -> list[Row]:
        return await self._border.cross(f"rows {session_id}", lambda: self._inner.rows(session_id, after))

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        ids = " ".join(entry.id for entry in entries)
        return await self._border.cross(
            f"append {session_id} {ids}", lambda: self._inner.append(session_id, entries, change)
        )

    async def archive(self, session_id: str, mark: str = "") -> Session:
        return await self._border.cross(f"archive {session_id}", lambda: self._inner.archive(session_id, mark))

    async def archived(self, key: SessionKey) -> list[Session]:
        return await self._border.cross(f"archived {key}", lambda: self._inner.archived(key))

    async def cursor(self, session_id: str) -> str:
        return await self._border.cross(f"cursor {session_id}", lambda: self._inner.cursor(session_id))

    async def extractions(self, session_id: str) -> list[Extraction]:
        return await self._border.cross(f"extractions {session_id}", lambda: self._inner.extractions(session_id))

    async def unplaced(self, limit: int = 100) -> list[Extraction]:
        return await self._border.cross("unplaced", lambda: self._inner.unplaced(limit))

    async def set_place(self, extraction_id: str, place: str) -> None:
        await self._border.cross(f"place {extraction_id}", lambda: self._inner.set_place(extraction_id, place))


class FaultyAudit:
    """Implements ledger.audit.AuditLog over another one."""

    def __init__(self, inner: AuditLog, border: Border) -> None:
        self._inner = inner
        self._border = border
        self.note = inner.note
        self.rows = inner.rows
        self.commands = inner.commands
        self.verify = inner.verify
        self.erase = inner.erase
        self.settled = inner.settled

    async def record(self, event: AuditEvent) -> None:
        what = f"record {event.kind} {event.tool} {event.outcome}"
        await self._border.cross(what, lambda: self._inner.record(event))


class FaultyInbox:
    """Implements dispatch.inbox.Inbox over another one."""

    def __init__(self, inner: Inbox, border: Border) -> None:
        self._inner = inner
        self._border = border

    async def accept(self, record: RunRecord) -> RunRecord:
        return await self._border.cross(f"accept {record.idempotency_key}", lambda: self._inner.accept(record))

    async def begin(self, run_id: str) -> None:
        await self._border.cross(f"begin {run_id}", lambda: self._inner.begin(run_id))

    async def finish(self, result: RunResult, parcel: Parcel | None = None) -> Parcel | None:
        what = f"finish {result.run_id} {result.status}"
        return await self._border.cross(what, lambda: self._inner.finish(result, parcel))

    async def find(self, run_id: str) -> RunRecord | None:
        return await self._border.cross(f"find {run_id}", lambda: self._inner.find(run_id))

    async def pending(self) -> list[RunRecord]:
        return await self._border.cross("pending", self._inner.pending)


class FaultyOutbox:
    """Implements dispatch.outbox.Outbox over another one."""

    def __init__(self, inner: Outbox, border: Border) -> None:
        self._inner = inner
        self._border = border

    async def add(self, parcel: Parcel) -> Parcel:
        return await self._border.cross(f"add {parcel.idempotency_key}", lambda: self._inner.add(parcel))

    async def change(self, parcel: Parcel) -> Parcel | None:
        what = f"change {parcel.idempotency_key} {parcel.state}"
        return await self._border.cross(what, lambda: self._inner.change(parcel))

    async def next(self, recipient: Recipient) -> Parcel | None:
        return await self._border.cross(f"next {recipient}", lambda: self._inner.next(recipient))

    async def recipients(self, channel: str = "") -> list[Recipient]:
        return await self._border.cross(f"recipients {channel}", lambda: self._inner.recipients(channel))

    async def unfinished(self) -> list[Parcel]:
        return await self._border.cross("unfinished", self._inner.unfinished)

    async def find(self, beginning: str) -> list[Parcel]:
        return await self._border.cross(f"find {beginning}", lambda: self._inner.find(beginning))

    async def recent(self, *, states: Collection[State] = (), limit: int = 50) -> list[Parcel]:
        return await self._border.cross("recent", lambda: self._inner.recent(states=states, limit=limit))

    async def counts(self) -> dict[tuple[str, State], int]:
        return await self._border.cross("counts", self._inner.counts)

    async def forget(self, before: int) -> int:
        return await self._border.cross("forget", lambda: self._inner.forget(before))
