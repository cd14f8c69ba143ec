"""The memory slot: one backend answers for an agent's memory, and the builtin engine where that one fails.

The builtin engine (`memory.py`) is the first backend. Another one is named by the config and declared by an extension
or a plugin (`Extension.memory_backends`): only one is active. It is a program or a library of somebody else, so it gets
most of a search's time and no more, and what it answers is checked. When it crashes, is late or answers nonsense, the
builtin engine answers within what is left, and the answer and the status say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.load import Config
from palinurus.domain.clock import Clock
from palinurus.domain.errors import BackendError, BackendTimeout, PalinurusError
from palinurus.memory.answer import MemoryStatus, OnProgress, SearchAnswer, SyncReport
from palinurus.memory.question import Question
from palinurus.memory.settings import BUILTIN, MemorySettings

if TYPE_CHECKING:
    from palinurus.memory.conversations import StoredDocuments
    from palinurus.memory.memory import Memory, OnSync
    from palinurus.memory.scan import Scanner

T = TypeVar("T")
log = logging.getLogger(__name__)
RESERVE_SHARE, RESERVE_SECONDS = 0.25, 1.0  # of a search's time, kept for the builtin engine
STATUS_SECONDS = 10.0
SLOW_TIMES, REST_MS = 3, 60_000  # after so many late answers in a row it is not asked for a minute


class MemoryBackend(Protocol):
    """Indexes and searches one agent's markdown and sessions. Any method may raise a PalinurusError; another exception
    counts as a crash. A call that is cancelled ends what it has started.
    """

    least_seconds: float
    """A search that has less time is not given to it: 0 for what answers in milliseconds."""

    async def search(self, question: Question) -> SearchAnswer:
        """Results best first, within the question's limits, scores from 0 to 1, and how fresh they are (promise 11)."""

    async def sync(self, *, force: bool = False, progress: OnProgress | None = None) -> SyncReport:
        """Brings the index up to date, however long it takes. `force` rebuilds it."""

    async def forget(self) -> SyncReport:
        """After words were forgotten in files and sessions: when this returns, no byte of the index has them."""

    async def status(self, *, deep: bool = False) -> MemoryStatus: ...

    def own_path(self, path: str) -> str:
        """The path by which the home knows a path of its results: `memory/…`, `<collection>/…`, `sessions/…`. What is
        none of its own paths is returned as it is. Does not block."""

    def start(self) -> None:
        """Indexes now and keeps up from then on. A second call does nothing."""

    async def close(self) -> None:
        """Ends everything it has started."""


class AgentMemory(MemoryBackend, Protocol):
    """An agent's memory as everybody uses it: the builtin engine alone, or with another backend in front of it."""

    settings: MemorySettings

    @property
    def builtin(self) -> Memory:
        """The builtin engine, whichever backend answers: it has the embedder and its vectors."""

    async def read_conversation(self, path: str) -> str | None:
        """The text of a past session, by its own path; None if there is none."""

    def listen(self, on_sync: OnSync) -> Callable[[], None]:
        """Calls `on_sync` for each indexed change; returns a function that stops it."""


class BackendPlace(Struct, frozen=True):
    """What a backend is opened with."""

    agent: str
    folder: Path  # its own, for this agent; made when needed. What is in it can be rebuilt, and is in no backup
    workspace: Path
    settings: MemorySettings
    config: Config
    env: Mapping[str, str]
    clock: Clock
    files: Scanner
    conversations: StoredDocuments
    redact: Callable[[str], str]
    on_sync: OnSync  # called for each change that was indexed
    readonly: bool = False


OpenBackend = Callable[[BackendPlace], MemoryBackend]
"""What `Extension.memory_backends` names. Does not block: it neither starts nor reads anything."""


class FallbackMemory:
    """Implements AgentMemory: the chosen backend, and the builtin engine where that fails."""

    least_seconds = 0.0

    def __init__(
        self, name: str, builtin: Memory, open_chosen: Callable[[OnSync], MemoryBackend], clock: Clock
    ) -> None:
        self.settings = builtin.settings
        self.builtin = builtin
        self._name = name
        self._open = open_chosen
        self._clock = clock
        self._chosen: MemoryBackend | None = None
        self._listeners: list[OnSync] = []
        self._late = 0
        self._rests_until = 0
        self._stays = self._closed = False
        self._reason = ""  # why the builtin engine served last; empty: it did not
        builtin.listen(self._tell)

    async def search(self, question: Question) -> SearchAnswer:
        began, limit = perf_counter(), question.budget.seconds
        most = limit - min(RESERVE_SECONDS, limit * RESERVE_SHARE)
        try:
            answer = await self._asked(_within(question, most), most)
        except BackendError as error:
            self._fell_back(str(error))
        else:
            self._reason = ""
            return replace(answer, backend=self._name)
        left = max(limit - (perf_counter() - began), limit * RESERVE_SHARE)
        answer = await self.builtin.search(_within(question, left))
        why = "; ".join(part for part in (f"the builtin engine answered: {self._reason}", answer.freshness.why) if part)
        return replace(answer, backend=BUILTIN, freshness=replace(answer.freshness, why=why))

    async def sync(self, *, force: bool = False, progress: OnProgress | None = None) -> SyncReport:
        try:
            return await self._run(lambda backend: backend.sync(force=force, progress=progress))
        except BackendError as error:
            self._fell_back(error.message)
            report = await self.builtin.sync(force=force, progress=progress)
            return replace(report, trouble=report.trouble or error.message)

    async def forget(self) -> SyncReport:
        """In both: the builtin index may have been filled while the other one failed."""
        report = await self.builtin.forget()
        try:
            other = await self._run(lambda backend: backend.forget())
        except BackendError as error:
            raise PalinurusError(f"{error.message}; its index may still hold them", hint=error.hint) from None
        return replace(report, changed=report.changed + other.changed, removed=report.removed + other.removed)

    async def read_conversation(self, path: str) -> str | None:
        return await self.builtin.read_conversation(path)

    async def status(self, *, deep: bool = False) -> MemoryStatus:
        """Of the one that served the last search, or that would serve the next."""
        try:
            status = await self._run(lambda backend: backend.status(deep=deep), STATUS_SECONDS)
            reason = self._reason
        except BackendError as error:
            reason = error.message
        if reason:
            status = await self.builtin.status(deep=deep)
        name = BUILTIN if reason else self._name
        return replace(status, backend=name, backend_wanted=self._name, backend_reason=reason)

    def own_path(self, path: str) -> str:
        try:
            return self._opened().own_path(path)
        except BackendError:  # a backend that cannot be opened has told no paths
            return path
        except Exception as error:  # code of a plugin
            log.warning("the memory backend %s cannot say where %.100r is", self._name, path, exc_info=error)
            return path

    def listen(self, on_sync: OnSync) -> Callable[[], None]:
        self._listeners.append(on_sync)
        return lambda: self._listeners.remove(on_sync)

    def start(self) -> None:
        self._stays = True
        try:
            self._opened().start()
        except BackendError as error:
            self._fell_back(error.message)
        except Exception as error:  # code of a plugin
            log.warning("the memory backend %s cannot be started", self._name, exc_info=error)
            self._fell_back(f"{self._name} cannot be started: {type(error).__name__}: {error}")

    async def close(self) -> None:
        self._closed = True
        if self._chosen is not None:
            with suppress(BackendError):  # it ends with the process
                await self._run(lambda backend: backend.close(), STATUS_SECONDS)
        await self.builtin.close()

    async def _asked(self, question: Question, seconds: float) -> SearchAnswer:
        """Raises BackendError."""
        if self._clock.now_ms() < self._rests_until:
            raise BackendError(self._reason)
        least = self._opened().least_seconds
        if seconds < least:
            raise BackendError(f"{self._name} takes longer than the {seconds:g} s that there were")
        try:
            answer = await self._run(lambda backend: backend.search(question), seconds)
        except BackendTimeout:
            self._late += 1
            if self._late >= SLOW_TIMES:
                self._rests_until = self._clock.now_ms() + REST_MS
                log.warning(
                    "%s is not asked for %d s: it was too late %d times", self._name, REST_MS // 1000, self._late
                )
            raise
        if why := _nonsense(answer):
            raise BackendError(f"the answer of {self._name} cannot be read: {why}")
        self._late = 0
        return answer

    async def _run(self, call: Callable[[MemoryBackend], Awaitable[T]], seconds: float | None = None) -> T:
        """Whatever it raises becomes a BackendError; with `seconds` a BackendTimeout, even if it does not let itself
        be cancelled."""
        task = asyncio.ensure_future(_awaited(call, self._opened()))
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is looked at
        if not task.done():
            raise BackendTimeout(f"{self._name} did not answer within {seconds:g} s")
        try:
            return task.result()
        except BackendError:
            raise
        except PalinurusError as error:
            raise BackendError(f"{self._name}: {error.message}", hint=error.hint) from error
        except Exception as error:
            log.warning("the memory backend %s failed", self._name, exc_info=error)
            raise BackendError(f"{self._name} failed: {type(error).__name__}: {error}") from error

    def _opened(self) -> MemoryBackend:
        if self._chosen is None:
            try:
                self._chosen = self._open(self._tell)
            except PalinurusError as error:
                raise BackendError(error.message, hint=error.hint) from None
            except Exception as error:  # code of a plugin
                log.warning("the memory backend %s cannot be opened", self._name, exc_info=error)
                raise BackendError(f"{self._name} cannot be opened: {type(error).__name__}: {error}") from error
        return self._chosen

    def _fell_back(self, reason: str) -> None:
        if reason != self._reason:
            log.warning("the builtin memory engine serves: %s", reason)
        self._reason = reason
        if self._stays and not self._closed:
            self.builtin.start()  # so that the next answer finds its index complete

    def _tell(self, report: SyncReport) -> None:
        for listener in list(self._listeners):
            listener(report)


async def _awaited(call: Callable[[MemoryBackend], Awaitable[T]], backend: MemoryBackend) -> T:
    return await call(backend)


def _within(question: Question, seconds: float) -> Question:
    return replace(question, budget=replace(question.budget, seconds=seconds))


def _nonsense(answer: object) -> str:
    """What is wrong with an answer; empty: nothing."""
    if not isinstance(answer, SearchAnswer):
        return f"it is a {type(answer).__name__}"
    try:
        msgspec.convert(msgspec.to_builtins(answer), SearchAnswer)
    except (msgspec.MsgspecError, TypeError, RecursionError) as error:  # a struct takes whatever it is made with
        return str(error)[:200]
    for each in answer.results:
        if not 0 <= each.score <= 1:
            return f"a score of {each.score}"
        if not each.path or not 1 <= each.start_line <= each.end_line:
            return f"lines {each.start_line} to {each.end_line} of {each.path!r}"
    return ""
