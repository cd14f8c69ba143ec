"""Faults at the borders: stores and tools that are slow, fail, or take the house down with them, by seeded dice.

A wrapper implements the same protocol as what it wraps. Failures come before anything was applied, as the protocols
promise; a crash comes before or after. What happens is written to a trace, so two lives can be compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from palinurus.domain.errors import StorageError, StorageFull
from palinurus.domain.keys import SessionKey
from palinurus.storage.jobs import Job, JobKind

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
    return random.Random(f"{seed}/{name}")  # a life must repeat


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


class _Faulty:
    """Another object, whose calls cross a border. Calls that are no coroutines stay what they are."""

    def __init__(self, inner: object, border: Border, only: Collection[str]) -> None:
        self._inner = inner
        self._border = border
        self._only = only

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(call) or (self._only and name not in self._only):
            return call

        async def crossing(*args: Any, **values: Any) -> Any:
            what = f"{name} {_named(args[0])}" if args else name
            return await self._border.cross(what, lambda: call(*args, **values))

        setattr(self, name, crossing)  # the next one finds it at once
        return crossing


def faulty(store: T, border: Border, *only: str) -> T:
    """The store behind a border: each of its calls, or only those that are named, may be late, fail, or be the last."""
    return cast("T", _Faulty(store, border, only))


def _named(argument: object) -> str:
    """What an argument says in a trace."""
    match argument:
        case Job():
            return f"{argument.kind} {argument.idempotency_key} {argument.state}"
        case JobKind():
            return argument.name
        case str() | SessionKey():
            return str(argument)
        case _:
            return ""
