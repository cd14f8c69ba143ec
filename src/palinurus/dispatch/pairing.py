"""Pairing: an unknown sender gets a code, and a person who looks after the home approves it or does not.

A code has 8 characters and is good for an hour. At most three senders of an account wait at a time; others get no
answer. A code is told once. Guessing codes is bounded: after some wrong ones only the sender's id is taken.
Approved senders may write directly to that account of that channel, and nothing more.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, QueueFull
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries, decoded, encoded

declare_queries("pairing", __file__)

Status = Literal["pending", "approved", "rejected"]
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # none that is read as another
LENGTH = 8
LIVES_MS = 3_600_000
MOST_PENDING = 3  # of one account
MOST_GUESSES = 10  # wrong codes in an hour
LONGEST = 200  # characters of an id or a name

Choose = Callable[[int], int]
"""A random number below another one, which nobody can predict."""


class Pairing(Struct, frozen=True, rename="camel"):
    """A sender in direct chats of one account."""

    channel: str
    account: str
    sender: str
    status: Status
    asked_at: int
    code: str = ""  # of one that waits
    sender_name: str = ""  # as people see it; proves nothing
    last_seen_at: int = 0
    decided_at: int = 0
    decided_by: str = ""

    @property
    def identity(self) -> str:
        return f"{self.channel}:{self.sender}"


class PairingStore:
    """Keeps pairings. When a write returns it is on the disk."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Pairing]:
        return [_read(row) for (row,) in await self._database.read(lambda tx: tx.all("pairing.list"))]

    async def find(self, channel: str, account: str, sender: str) -> Pairing | None:
        where = {"channel": channel, "account": account, "sender": sender}
        row = await self._database.read(lambda tx: tx.value("pairing.find", **where))
        return None if row is None else _read(row)

    async def change(self, work: Callable[[Transaction], Pairing | None]) -> Pairing | None:
        return await self._database.write(work)


def put_pairing(tx: Transaction, pairing: Pairing) -> Pairing:
    where = {"channel": pairing.channel, "account": pairing.account, "sender": pairing.sender}
    tx.run("pairing.put", **where, status=pairing.status, row=encoded(pairing))
    return pairing


def keep_pairings(tx: Transaction, pairings: Iterable[Pairing]) -> int:
    """Adds those that are not there; returns how many."""
    added = 0
    for each in pairings:
        if tx.value("pairing.find", channel=each.channel, account=each.account, sender=each.sender) is None:
            put_pairing(tx, each)
            added += 1
    return added


def _read(row: str) -> Pairing:
    return decoded(row, Pairing, "the row of a pairing")


class Pairings:
    """Those who wait for an approval, and those who have it."""

    def __init__(self, store: PairingStore, clock: Clock, choose: Choose) -> None:
        self._store = store
        self._clock = clock
        self._choose = choose
        self._wrong: deque[int] = deque(maxlen=MOST_GUESSES)  # when wrong codes were tried
        self._deciding = asyncio.Lock()
        self.changed: Callable[[Pairing], None] = lambda _: None
        """Told of every new request and every decision. Must neither block nor raise."""

    async def is_approved(self, channel: str, account: str, sender: str) -> bool:
        found = await self._store.find(channel, account, sender)
        return found is not None and found.status == "approved"

    async def ask(self, channel: str, account: str, sender: str, name: str = "") -> Pairing | None:
        """A new request, whose code the sender is to be told; None: they wait already, or too many do."""
        now = self._clock.now_ms()
        code = "".join(LETTERS[self._choose(len(LETTERS))] for _ in range(LENGTH))
        fresh = Pairing(channel, account, sender[:LONGEST], "pending", now, code, name[:LONGEST], now)

        def work(tx: Transaction) -> Pairing | None:
            known = [_read(row) for (row,) in tx.all("pairing.of_account", channel=channel, account=account)]
            alive = [each for each in known if now - each.asked_at < LIVES_MS]
            for each in known:
                if each not in alive:
                    tx.run("pairing.drop", channel=channel, account=account, sender=each.sender)
            mine = next((each for each in alive if each.sender == fresh.sender), None)
            if mine is not None:
                put_pairing(tx, msgspec.structs.replace(mine, last_seen_at=now))
                return None
            if sum(each.status == "pending" for each in alive) >= MOST_PENDING:
                return None
            return put_pairing(tx, fresh)

        asked = await self._store.change(work)
        if asked is not None:
            self.changed(asked)
        return asked

    async def entries(self) -> list[Pairing]:
        """Those who wait first, then those who were approved, the newest first."""
        now = self._clock.now_ms()
        found = [each for each in await self._store.all() if each.status == "approved" or _waits(each, now)]
        return sorted(found, key=lambda each: (each.status != "pending", -each.asked_at))

    async def approve(self, which: str, by: str) -> Pairing:
        """`which` is a code, or channel:id of one that waits. Raises NotFound and QueueFull."""
        return await self._decide(which, "approved", by)

    async def reject(self, which: str, by: str) -> Pairing:
        """The same; also for one that was approved, who may not write from then on."""
        return await self._decide(which, "rejected", by)

    async def _decide(self, which: str, status: Status, by: str) -> Pairing:
        now = self._clock.now_ms()
        async with self._deciding:
            found = self._find(await self._store.all(), which, now, approved=status == "rejected")
            asked_at = found.asked_at if status == "approved" else now  # who was rejected cannot ask again at once
            decided = msgspec.structs.replace(
                found, status=status, asked_at=asked_at, code="", decided_at=now, decided_by=by
            )
            await self._store.change(lambda tx: put_pairing(tx, decided))
        self.changed(decided)
        return decided

    def _find(self, known: list[Pairing], which: str, now: int, *, approved: bool) -> Pairing:
        wanted = which.strip()
        if not wanted:
            raise BadRequest("which pairing?", hint="its code, or channel:id as `pal pairing list` shows it")
        open_ = [each for each in known if _waits(each, now) or (approved and each.status == "approved")]
        if ":" in wanted:
            named = [each for each in open_ if wanted.lower() in (each.identity, _with_account(each))]
            if len(named) == 1:
                return named[0]
            many = f"{wanted} waits at several accounts" if named else f"{wanted[:LONGEST]} does not wait"
            raise NotFound(many, hint="`pal pairing list` shows who does")
        if len(self._wrong) == MOST_GUESSES and now - self._wrong[0] < LIVES_MS:
            raise QueueFull("too many wrong codes were tried", hint="name the sender instead: channel:id")
        fitting = [each for each in open_ if each.code and _same(each.code, wanted)]
        if len(fitting) != 1:
            self._wrong.append(now)
            raise NotFound("there is no such code, or it is older than an hour", hint="`pal pairing list` shows them")
        return fitting[0]


def _waits(pairing: Pairing, now: int) -> bool:
    return pairing.status == "pending" and now - pairing.asked_at < LIVES_MS


def _with_account(pairing: Pairing) -> str:
    return f"{pairing.channel}:{pairing.account}:{pairing.sender}"


def _same(code: str, said: str) -> bool:
    """In a time that says nothing about how much of it is right."""
    return hmac.compare_digest(code.encode(), said.upper().encode("utf-8", "replace"))
