"""How a `pal` process gets into a home: it holds the lock, or sends operations to the process that does.

The holder runs the services in its process and answers others on a unix socket. When the holder ends, the next caller
takes the lock or finds the new holder, and repeats its operation: that is safe, because operations with effects have an
idempotency key. A gateway that starts asks a chat to hand the home over: the chat finishes what runs, releases the lock
and continues as a client.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Self

from palinurus.config.home import Home
from palinurus.domain.errors import (
    HolderLost,
    HomeHeld,
    HomeTaken,
    PalinurusError,
    StorageFull,
    StorageReadOnly,
    UnknownOperation,
)
from palinurus.operations.remote import Hello, HomeIdentity, RemoteCaller, Server
from palinurus.operations.services import Services
from palinurus.operations.table import Feed, LocalCaller, Operation, P, R
from palinurus.runtime.lock import HomeLock
from palinurus.runtime.logs import Logs
from palinurus.runtime.runtime import Runtime, make_home
from palinurus.runtime.table import TABLE

log = logging.getLogger(__name__)

REACH_SECONDS = 10.0  # how long a holder may be out of reach: it may be starting, or just have died
HAND_OVER_SECONDS = 900.0  # that a holder may take to finish what runs
YIELD_SECONDS = 5.0  # that a holder which handed over leaves the lock to the one who asked for it
LOCK_SECONDS = 1.0  # between two looks whether the lock is still there
INSIDE_SECONDS = 5.0  # that a question of our own, asked before the home was handed over, may still take
STAYING = ("pal chat", "pal gateway", "pal mcp", "pal up")  # those who may work for a person at another terminal
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.2


class HomeAccess:
    """Implements operations.Caller for as long as the process lives."""

    def __init__(
        self,
        home: Home,
        env: Mapping[str, str],
        command: str,
        *,
        warn: Callable[[str], None],
        reach_seconds: float = REACH_SECONDS,
        logs: Logs | None = None,
    ) -> None:
        self._home = home
        self._env = env
        self._command = command
        self._warn = warn
        self._logs = logs
        self._reach_seconds = reach_seconds
        self._lock = HomeLock(home.root / "lock")
        self._socket = home.root / "pal.sock"
        self._runtime: Runtime | None = None
        self._server: Server | None = None
        self._caller: LocalCaller | RemoteCaller | None = None
        self._reader: Runtime | None = None
        self._entering = asyncio.Lock()
        self._handing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.taken = False  # another process holds the home that this one held
        self._yields_until = 0.0
        self._questions = 0  # of our own, that are being answered
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __aenter__(self) -> Self:
        if self._logs is not None:
            self._logs.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def holds(self) -> bool:
        return self._runtime is not None

    @property
    def busy(self) -> int:
        """Runs that closing will wait for."""
        return self._runtime.services.busy if self._runtime else 0

    async def finish_upkeep(self) -> None:
        """Wait for what follows a reply when this process holds the home: a model may take notes, within its limit."""
        if self._runtime is not None:
            await self._runtime.idle()

    async def enter(self) -> None:
        """Come in to write, or raise what prevents it: for those to whom reading alone is of no use."""
        await self._enter(reading=False)

    async def call(self, operation: Operation[P, R], params: P, idempotency_key: str = "") -> R:
        """Have it done, by this process or by the holder, and by the next one when the holder goes away."""
        backoff = _Backoff()
        while True:
            caller = await self._enter(reading=operation.scope == "read")
            try:
                with self._inside():
                    return await caller.call(operation, params, idempotency_key)
            except HolderLost:
                await self._lose(caller)
                await backoff.pause()
            except HomeTaken:  # nothing of it was stored; the process that took the home is asked
                await self._hand_over()
                await backoff.pause()

    async def follow(self, feed: Feed[P, R], params: P) -> AsyncIterator[R]:
        """The items of a feed. Raises HolderLost when its source goes away: the caller must ask anew what to follow."""
        caller = await self._enter(reading=True)
        try:
            async for item in caller.follow(feed, params):
                yield item
        except HolderLost:
            await self._lose(caller)
            raise

    async def close(self) -> None:
        """Finish what was accepted, then let the next one in."""
        if self._handing is not None:
            await asyncio.wait([self._handing])
        if isinstance(self._caller, RemoteCaller):
            await self._caller.close()
        if self._reader is not None:
            await self._reader.close()
        await self._let_go()
        if self._logs is not None:
            self._logs.stop()

    async def hold(self) -> Runtime:
        """Come in as the one who holds the home, for a process that serves others.

        A chat that holds it is asked to hand it over. Raises HomeHeld when a gateway holds it, or nobody lets go.
        """
        make_home(self._home.root)
        reach, backoff, asked = _Backoff(self._reach_seconds), _Backoff(HAND_OVER_SECONDS), ""
        async with self._entering:
            while not self._lock.acquire(self._command):
                holder = self._lock.holder()
                if holder != asked and await self._ask_for_home():
                    asked = holder
                await backoff.pause()
                if backoff.over or (not asked and reach.over):
                    raise _unmoved(holder, self._home)
            self._caller = await self._hold()
            assert self._runtime is not None  # noqa: S101  # what holding means
            return self._runtime

    async def reach(self) -> RemoteCaller | None:
        """The one who holds the home, if there is one; this process itself never comes in. The caller closes it."""
        backoff = _Backoff(self._reach_seconds)
        while not backoff.over:
            try:
                return await RemoteCaller.connect(self._socket, self._hello(), timeout=self._reach_seconds / 2)
            except HolderLost:  # it is leaving just now, or it is stuck
                await backoff.pause()
            except OSError:  # no home, or nobody listens in it
                return None
        raise _unmoved(self._lock.holder(), self._home)

    async def _enter(self, *, reading: bool) -> LocalCaller | RemoteCaller:
        async with self._entering:
            if self._caller is None:
                try:
                    self._caller = await self._hold_or_connect()
                except (HomeHeld, StorageFull, StorageReadOnly) as error:
                    if not reading or not os.access(self._home.root / "home.sqlite", os.R_OK):
                        raise
                    return self._only_read(error)
            return self._caller

    async def _hold_or_connect(self) -> LocalCaller | RemoteCaller:
        make_home(self._home.root)
        backoff = _Backoff(self._reach_seconds)
        while time.monotonic() < self._yields_until or not self._lock.acquire(self._command):
            try:
                found = await RemoteCaller.connect(self._socket, self._hello(), timeout=self._reach_seconds / 2)
            except (OSError, HolderLost):  # it is starting, or it has just died
                await backoff.pause()
            else:
                self._yields_until = 0.0  # somebody has taken it
                return found
            if backoff.over:
                raise _unmoved(self._lock.holder(), self._home)
        return await self._hold()

    async def _hold(self) -> LocalCaller:
        try:
            stays = f"pid {os.getpid()} ({self._command})" if self._command in STAYING else ""
            self._runtime = Runtime(self._home, self._env, process=stays)
            await self._runtime.recover()
            self._server = Server(self._runtime.services, TABLE, self._hello())
            await self._server.start(self._socket)
        except BaseException:
            self._runtime = None
            self._lock.release()
            raise
        self._runtime.services.holder.hand_over = self._hand_over
        if self._logs is not None:
            self._logs.redact = partial(_redact, self._runtime.services, self._logs.redact)  # it hears of new keys
        self._watching = asyncio.create_task(self._watch_lock(), name="watch the lock")
        log.info("holds the home: %s", self._command, extra={"clean": True})
        return LocalCaller(self._runtime.services)

    async def _watch_lock(self) -> None:
        """Somebody may remove the file, and the next process would lock another one of that name."""
        while self._lock.keep(self._command):  # noqa: ASYNC110  # a file that goes tells nobody
            await asyncio.sleep(LOCK_SECONDS)
        log.error("%s has taken the home: the file lock was removed", self._lock.holder())
        self.taken = True
        end = self._runtime.services.holder.end if self._runtime is not None else None
        if end is None:
            await self._hand_over()
        else:
            end()
            end()  # at once: what runs can no longer be stored

    async def _let_go(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        try:
            if self._runtime is not None:
                await self._runtime.close()
                log.info("releases the home: %s", self._command, extra={"clean": True})
            if self._server is not None:
                await self._server.close()
        finally:
            self._runtime, self._server, self._caller = None, None, None
            self._lock.release()

    async def _ask_for_home(self) -> bool:
        """Whether the holder was reached. Raises HomeHeld when it will not let go."""
        from palinurus.operations.gateway import hand_over_home

        try:
            holder = await RemoteCaller.connect(self._socket, self._hello(), timeout=self._reach_seconds / 2)
        except (OSError, HolderLost):
            return False
        try:
            async with asyncio.timeout(self._reach_seconds):
                told = await holder.call(hand_over_home, hand_over_home.params())
        except (HolderLost, TimeoutError):
            return True  # it is leaving already
        except UnknownOperation:
            raise HomeHeld(f"{self._lock.holder()} holds the home and is of another release", hint="end it") from None
        finally:
            await holder.close()
        finishing = f", once it has finished {told.busy} run(s)" if told.busy else ""
        self._warn(f"pid {told.pid} ({holder.holder.command}) hands the home over{finishing}")
        return True

    async def _hand_over(self) -> int:
        """Implements operations.Holder.hand_over."""
        if self._handing is None:
            self._handing = asyncio.create_task(self._pass_on(), name="hand over")
        return self.busy

    async def _pass_on(self) -> None:
        """Finish what runs, let go, and leave the lock to the one who asked: the next question goes to it."""
        if self._runtime is None:
            return
        log.info("hands the home over: %s", self._command)
        try:
            with suppress(HomeTaken):  # what runs here cannot be stored: whoever took the home runs it again
                await self._runtime.drain()  # our own person may still look and stop
            async with self._entering:
                with suppress(TimeoutError):
                    async with asyncio.timeout(INSIDE_SECONDS):
                        await self._quiet.wait()
                self._yields_until = time.monotonic() + YIELD_SECONDS
                await self._let_go()
        except PalinurusError as error:
            log.warning("the home was handed over after an error: %s", error)
        finally:
            self._handing = None

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._questions += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._quiet.set()

    def _only_read(self, why: PalinurusError) -> LocalCaller:
        """Nobody can write for us; what is stored may still be looked at."""
        if self._reader is None:
            self._warn(f"only reading: {why}")
            self._reader = Runtime(self._home, self._env, readonly=True)
        return LocalCaller(self._reader.services)

    async def _lose(self, caller: LocalCaller | RemoteCaller) -> None:
        if isinstance(caller, RemoteCaller):
            log.info("the holder went away: pid %d (%s)", caller.holder.pid, caller.holder.command)
            await caller.close()
            if self._caller is caller:
                self._caller = None

    def _hello(self) -> Hello:
        workspace = self._home.workspace_override
        identity = HomeIdentity(str(self._home.config_path), str(workspace or ""))
        return Hello(identity, os.getpid(), self._command)


def _redact(services: Services, otherwise: Callable[[str], str], text: str) -> str:
    agents = services.built("agents")
    return str(agents.redact(text)) if agents is not None else otherwise(text)


def _unmoved(holder: str, home: Home) -> HomeHeld:
    return HomeHeld(f"{holder} holds the home {home.root} and does not answer", hint="end it, or wait until it is done")


class _Backoff:
    """Pauses that grow, up to a limit."""

    def __init__(self, seconds: float | None = None) -> None:
        self._until = time.monotonic() + seconds if seconds is not None else None
        self._pause = FIRST_PAUSE

    @property
    def over(self) -> bool:
        return self._until is not None and time.monotonic() > self._until

    async def pause(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 1.5, LONGEST_PAUSE)
