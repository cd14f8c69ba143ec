"""Hands a request on until a model answers: again, with the next key, with the next model.

What to do after a failure is read from the table in failover.py; this is the walk along it. Each step is told in one
line, and when nobody answers, the failure lists who was asked and why each did not answer. One relay serves one turn:
whoever answered is asked first for the rest of it, and the next turn begins with the configured model again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure, ProviderError
from palinurus.providers.failover import RULES, Decision, decide
from palinurus.providers.keys.credentials import Credential
from palinurus.providers.keys.pool import CredentialPool
from palinurus.providers.provider import (
    ModelRef,
    ModelRequest,
    Notice,
    Provider,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    TextDelta,
)
from palinurus.providers.unavailable import Unavailable

log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
Open = Callable[[Credential | None], Provider]
"""Gives the provider that uses this credential, the same one each time. Must not raise."""
Renew = Callable[[Credential, str], Awaitable[Credential]]
"""Gives the credential as it can be used now, another one than the secret that was refused, if one was. Raises
ProviderError when there is none."""

ONE_LINE = 240


class Candidate(Struct, frozen=True):
    """A model that may be asked, and the keys it may be asked with. No key: it is asked without one."""

    ref: ModelRef
    open: Open
    credentials: tuple[Credential, ...] = ()
    order: tuple[str, ...] = ()  # ids, where the owner prescribes an order


class Leg(Struct, frozen=True):
    candidate: Candidate
    credential: Credential | None

    def __str__(self) -> str:
        if self.credential is None or len(self.candidate.credentials) == 1:
            return str(self.candidate.ref)
        return f"{self.candidate.ref} with {self.credential.id}"


class Fault(Struct, frozen=True):
    """A leg that was given up."""

    leg: Leg
    error: ProviderError
    attempts: int
    partial: str = ""


class FailoverProvider:
    """Implements Provider around candidates, the configured one first. It has the name and wire of that one."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        pool: CredentialPool,
        *,
        sleep: Sleep = asyncio.sleep,
        renew: Renew | None = None,
        dice: Callable[[], float] = random.random,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._candidates = candidates
        self._pool = pool
        self._sleep = sleep
        self._renew = renew
        self._dice = dice
        self._redact = redact
        self._primary = self._open(self._legs()[0])
        self._answered: Leg | None = None
        self._used: Credential | None = None  # by the last request, if it may have been renewed for it

    @property
    def name(self) -> str:
        return self._primary.name

    @property
    def wire(self) -> str:
        return self._primary.wire

    def context_window(self, model: str) -> int:
        return self._primary.context_window(model)

    async def close(self) -> None:
        """The providers belong to whoever made them."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        legs, faults = self._legs(), list[Fault]()
        leg, attempt, refused = self._next(legs), 1, ""
        while leg is not None:
            heard = False
            outcome: ReplyDone | ReplyFailed | None = None
            self._pool.begin(leg.credential)
            provider = await self._ready(leg, refused)
            # To the very end of the stream: leaving a generator half-way leaves its connection open.
            async for event in provider.stream(msgspec.structs.replace(request, model=leg.candidate.ref.model)):
                if isinstance(event, ReplyDone | ReplyFailed):
                    outcome = event
                else:
                    heard = heard or isinstance(event, TextDelta)
                    yield event
            if isinstance(outcome, ReplyDone):
                self._pool.good(leg.credential, leg.candidate.ref.model)
                self._answered = leg
                await self._pool.keep()
                yield outcome
                return
            error, partial = _failure(leg, outcome)
            if not refused and (refused := self._refused(error)):
                continue
            decision = self._decide(leg, error, attempt)
            if decision.step == "again":
                yield self._notice(error, f"trying again in {decision.wait:.0f} s", heard)
                await self._sleep(decision.wait)
                attempt += 1
                continue
            await self._pool.keep()
            faults.append(Fault(leg, error, attempt, partial))
            legs = _left(legs, leg, decision)
            leg, attempt, refused = self._next(legs), 1, ""
            if leg is not None:
                yield self._notice(error, f"going on with {leg}", heard)
        yield self._gave_up(faults)

    def _legs(self) -> list[Leg]:
        """Everybody who can be asked: models in their order, for each its keys in theirs."""
        legs: list[Leg] = []
        for candidate in self._candidates:
            usable = self._pool.order(candidate.credentials, candidate.order, candidate.ref.model)
            legs += [Leg(candidate, credential) for credential in usable] or [Leg(candidate, None)]
        return legs

    def _next(self, legs: list[Leg]) -> Leg | None:
        """Who answered in this turn, else the first whose key does not rest; one that rests is better than none."""
        ready = [leg for leg in legs if not self._pool.rests(leg.credential, leg.candidate.ref.model)]
        if self._answered in ready:
            return self._answered
        return next(iter(ready or legs), None)

    def _open(self, leg: Leg) -> Provider:
        return leg.candidate.open(leg.credential)

    async def _ready(self, leg: Leg, refused: str) -> Provider:
        """The same with a credential that was renewed where it had to be."""
        self._used = None
        if self._renew is None or leg.credential is None:
            return self._open(leg)
        try:
            self._used = await self._renew(leg.credential, refused)
        except ProviderError as error:
            return Unavailable(leg.candidate.ref.provider, error)
        return leg.candidate.open(self._used)

    def _refused(self, error: ProviderError) -> str:
        """The secret of a sign-in that should have been good: it may have been taken back, and is renewed once."""
        used = self._used
        return used.secret if error.kind is Failure.AUTH and used is not None and used.refresh else ""

    def _decide(self, leg: Leg, error: ProviderError, attempt: int) -> Decision:
        model = leg.candidate.ref.model
        tired = self._pool.failures(leg.credential, model)
        decision = decide(error, attempt=attempt, failures_in_a_row=tired, dice=self._dice())
        if decision.cooldown:
            self._pool.cool(leg.credential, decision.cooldown, model if decision.cools == "model" else "")
        return decision

    def _notice(self, error: ProviderError, then: str, heard: bool) -> Notice:
        text = f"{self._line(error.message)}; {then}"
        log.info("%s", text)
        return Notice(text, discard=heard)

    def _gave_up(self, faults: list[Fault]) -> ReplyFailed:
        """What the whole walk came to. Kind and hint are those of what ended it, else of the configured model."""
        first = next((fault for fault in faults if RULES[fault.error.kind].then == "stop"), faults[0])
        error = first.error
        if len(faults) == 1:
            times = f" (tried {first.attempts} times)" if first.attempts > 1 else ""
            message = self._redact(error.message) + times
        else:
            message = f"no model answered: {'; '.join(self._told(fault) for fault in faults)}"
        told = ProviderError(
            message, kind=error.kind, hint=self._redact(error.hint), status=error.status, retry_after=error.retry_after
        )
        return ReplyFailed(told, faults[-1].partial)

    def _told(self, fault: Fault) -> str:
        times = f", {fault.attempts} times" if fault.attempts > 1 else ""
        said = fault.error.message.removeprefix(f"{fault.leg.candidate.ref} ")
        return f"{fault.leg}{times}: {self._line(said)}"

    def _line(self, text: str) -> str:
        line = " ".join(self._redact(text).split())
        return line if len(line) <= ONE_LINE else line[: ONE_LINE - 1] + "…"


def _failure(leg: Leg, outcome: ReplyFailed | None) -> tuple[ProviderError, str]:
    if outcome is not None:
        return outcome.error, outcome.partial
    said = f"{leg.candidate.ref} ended its stream without a reply"
    return ProviderError(said, kind=Failure.MALFORMED, hint="try again"), ""


def _left(legs: list[Leg], leg: Leg, decision: Decision) -> list[Leg]:
    """Who can still be asked after this failure."""
    if decision.step == "stop":
        return []
    others = [other for other in legs if other != leg]
    if decision.step == "model":
        return [other for other in others if other.candidate.ref != leg.candidate.ref]
    return others
