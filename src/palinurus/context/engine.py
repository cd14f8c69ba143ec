"""Context engines, which decide what a model reads, and the guard that keeps their errors from failing a turn.

`legacy` is built in: what `assemble` makes of the stored rows, and a summary by the model or by rule. A plugin may
provide another engine. It sees every message, may send other messages than legacy would, and may write the summary of
what is cut. Its results are checked; the promises (notes before a cut, one append, the epoch) hold around it and do not
depend on it. An engine that raises or returns an invalid result is disabled until the process ends, with a warning, and
legacy is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from palinurus.context.assemble import violations
from palinurus.domain.messages import AssistantMessage, Message
from palinurus.sessions.session import Session

if TYPE_CHECKING:
    from palinurus.context.summary import SummaryOrder

log = logging.getLogger(__name__)
STEP_SECONDS = 60.0  # seconds for one step of an engine
T = TypeVar("T")
Warn = Callable[[str], None]
"""Shows one line to the followers of the run. Must neither block nor raise."""


class Assembly(Struct, frozen=True):
    """The request before the engine."""

    messages: tuple[Message, ...]  # as legacy would send them: valid, and within an epoch a prefix of the next list
    window: int
    epoch: str  # why the epoch began


class ContextEngine(Protocol):
    """One way to decide what a model reads. Any of its methods may raise, which disables it."""

    @property
    def name(self) -> str: ...

    async def bootstrap(self, session: Session) -> None:
        """Called once for each session that this process opens, before its first turn."""

    async def ingest(self, session: Session, message: Message) -> None:
        """Called for each message of a turn, after it was stored."""

    async def assemble(self, session: Session, assembly: Assembly) -> Sequence[Message]:
        """The messages to send. Within an epoch a list should begin with the one before, or caches miss."""

    async def compact(self, session: Session, wanted: SummaryOrder) -> str:
        """A summary of what is cut, in the requested form; empty to use the built-in one."""

    async def after_turn(self, session: Session) -> None:
        """Called when the reply has been delivered. It may take a moment."""


class LegacyEngine:
    """Implements ContextEngine: the stored rows, unchanged."""

    name = "legacy"

    async def bootstrap(self, session: Session) -> None:
        pass

    async def ingest(self, session: Session, message: Message) -> None:
        pass

    async def assemble(self, session: Session, assembly: Assembly) -> Sequence[Message]:
        return assembly.messages

    async def compact(self, session: Session, wanted: SummaryOrder) -> str:
        return ""

    async def after_turn(self, session: Session) -> None:
        pass


LEGACY = LegacyEngine()


class Engines:
    """The engine in use, and legacy as its fallback."""

    def __init__(self, chosen: ContextEngine | None = None) -> None:
        self._engine: ContextEngine = chosen or LEGACY
        self._known: set[str] = set()  # ids of sessions that the engine has opened
        self.trouble = ""  # why the chosen engine was disabled

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def is_legacy(self) -> bool:
        return self._engine is LEGACY

    @property
    def warnings(self) -> tuple[str, ...]:
        return (self.trouble,) if self.trouble else ()

    async def bootstrap(self, session: Session, warn: Warn) -> None:
        if session.id not in self._known:
            self._known.add(session.id)
            await self._guarded("bootstrap", lambda engine: engine.bootstrap(session), None, warn)

    async def ingest(self, session: Session, message: Message, warn: Warn) -> None:
        await self._guarded("ingest", lambda engine: engine.ingest(session, message), None, warn)

    async def assemble(self, session: Session, assembly: Assembly, warn: Warn) -> tuple[Message, ...]:
        legacy: Sequence[Message] = assembly.messages
        made = await self._guarded("assemble", lambda engine: engine.assemble(session, assembly), legacy, warn)
        messages = tuple(made)
        if wrong := _refusable(messages):
            self._set_aside("assemble", f"messages that no provider takes ({wrong})", warn)
            return assembly.messages
        return messages

    async def compact(self, session: Session, wanted: SummaryOrder, warn: Warn) -> str:
        """A checked summary, or ""."""
        if self.is_legacy:
            return ""
        from palinurus.context.summary import faults  # most turns have no compaction

        text = await self._guarded("compact", lambda engine: engine.compact(session, wanted), "", warn)
        if text and (wrong := faults(text, wanted)):
            self._set_aside("compact", f"a summary that cannot be used ({wrong[0]})", warn)
            return ""
        return text

    async def after_turn(self, session: Session, warn: Warn) -> None:
        if not self.is_legacy:
            await self._guarded("after_turn", lambda engine: engine.after_turn(session), None, warn)

    async def _guarded(self, step: str, work: Callable[[ContextEngine], Awaitable[T]], otherwise: T, warn: Warn) -> T:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                return await work(self._engine)
        except Exception as error:  # foreign code: whatever it raises, the turn continues
            log.exception("the context engine %s broke in %s", self._engine.name, step)
            self._set_aside(step, repr(error), warn)
            return otherwise

    def _set_aside(self, step: str, why: str, warn: Warn) -> None:
        name, self._engine = self._engine.name, LEGACY
        self.trouble = f"the context engine {name} is disabled: {step} gave {why}; legacy is used until a restart"
        log.warning("%s", self.trouble)
        warn(self.trouble)


def _refusable(messages: Sequence[Message]) -> str:
    if not messages:
        return "none at all"
    if isinstance(messages[-1], AssistantMessage):
        return "the last one is a reply"
    return next(iter(violations(messages)), "")
