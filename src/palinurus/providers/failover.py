"""Failover: what happens if a model call fails.

A request is retried where that helps, then sent with the next credential, then to the next model; one table decides. A
bad request never cools a credential down: it is not the credential's fault. Each step is one notice, and if all models
fail, the error lists what was tried and why it failed. One FailoverProvider serves one turn: the model that answered
comes first for the rest of it, and the next turn begins with the configured model again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure, ProviderError
from palinurus.providers.keys.credential_file import Credential
from palinurus.providers.keys.pool import LONGEST_REST, CredentialPool
from palinurus.providers.provider import (
    ModelRef,
    ModelRequest,
    Provider,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    ReplyNotice,
    TextDelta,
    Unavailable,
)

ATTEMPTS = 3  # of one request with one credential
LONGEST_WAIT = 30.0
JITTER = 0.1
COOLDOWNS = (30.0, 60.0, 300.0)  # seconds, for the first, second and every later failure in a row
BILLING_COOLDOWN = 600.0
Cools = Literal["", "model", "key"]
"""What cools down: nothing, the key for this model only, or the key for all models of its provider."""


class FailoverRule(Struct, frozen=True):
    """How a kind of failure is handled."""

    again: bool  # whether a retry of the same request may work
    cools: Cools
    then: Literal["credential", "model", "stop"]  # the next step if retries do not help


RULES: dict[Failure, FailoverRule] = {
    # A refusal may concern the model and not the key (not permitted, not in the plan): another model may work.
    **dict.fromkeys((Failure.AUTH, Failure.BILLING), FailoverRule(again=False, cools="model", then="credential")),
    Failure.RATE_LIMIT: FailoverRule(again=True, cools="key", then="credential"),
    **dict.fromkeys(
        (Failure.OVERLOAD, Failure.NETWORK, Failure.TIMEOUT, Failure.MALFORMED),
        FailoverRule(again=True, cools="", then="model"),
    ),
    **dict.fromkeys((Failure.MODEL_NOT_FOUND, Failure.BAD_REQUEST), FailoverRule(again=False, cools="", then="model")),
    # Another model would get the same too long prompt, or the same refused request.
    **dict.fromkeys((Failure.CONTEXT_OVERFLOW, Failure.REFUSAL), FailoverRule(again=False, cools="", then="stop")),
}


class Decision(Struct, frozen=True):
    step: Literal["again", "credential", "model", "stop"]
    wait: float = 0.0  # seconds before the retry
    cooldown: float = 0.0  # seconds that the credential cools down
    cools: Cools = ""


def decide(error: ProviderError, *, attempt: int, failures_in_a_row: int, dice: float) -> Decision:
    """The next step. `attempt` counts from 1 with this credential; `dice` in [0, 1) randomises the waits."""
    rule = RULES[error.kind]
    wait = _wait(error.retry_after, attempt, dice)
    if rule.again and attempt < ATTEMPTS and wait <= LONGEST_WAIT * (1 + JITTER):
        return Decision("again", wait=wait)
    return Decision(rule.then, cooldown=_cooldown(error, failures_in_a_row) if rule.cools else 0.0, cools=rule.cools)


def _wait(retry_after: float | None, attempt: int, dice: float) -> float:
    """The wait the provider requests, or else a second that doubles, plus a random part to spread the load."""
    base = retry_after if retry_after is not None else min(2.0 ** (attempt - 1), LONGEST_WAIT)
    return base * (1 + JITTER * dice)


def _cooldown(error: ProviderError, failures_in_a_row: int) -> float:
    """The cooldown that the provider states, or else our own estimate."""
    usual = COOLDOWNS[min(failures_in_a_row, len(COOLDOWNS) - 1)]
    if error.kind is Failure.RATE_LIMIT:
        usual = usual if error.retry_after is None else error.retry_after
    elif error.kind is Failure.BILLING:
        usual = BILLING_COOLDOWN
    return min(usual, LONGEST_REST)


log = logging.getLogger(__name__)
Sleep = Callable[[float], Awaitable[None]]
Open = Callable[[Credential | None], Provider]
"""Returns the provider that uses this credential, the same one each time. Must not raise."""

Renew = Callable[[Credential, str], Awaitable[Credential]]
"""Returns a usable credential, different from the refused secret, if there is one. Raises ProviderError if there is
none.
"""

ONE_LINE = 240


class ModelCandidate(Struct, frozen=True):
    """A model to try, and the keys to try it with. Without keys it is called without one."""

    ref: ModelRef
    open: Open
    credentials: tuple[Credential, ...] = ()
    order: tuple[str, ...] = ()  # ids, if the owner configured an order


class Leg(Struct, frozen=True):
    candidate: ModelCandidate
    credential: Credential | None

    def __str__(self) -> str:
        if self.credential is None or len(self.candidate.credentials) == 1:
            return str(self.candidate.ref)
        return f"{self.candidate.ref} with {self.credential.id}"


class Fault(Struct, frozen=True):
    """A failed leg: a model with a credential."""

    leg: Leg
    error: ProviderError
    attempts: int
    partial: str = ""


class FailoverProvider:
    """Implements Provider around candidates, the configured one first. It has the name and wire of that one."""

    def __init__(
        self,
        candidates: Sequence[ModelCandidate],
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
        first = self._legs()[0]
        primary = first.candidate.open(first.credential)
        self.name, self.wire, self.context_window = primary.name, primary.wire, primary.context_window
        self._answered: Leg | None = None
        self._used: Credential | None = None  # of the last request, if it may have been renewed

    async def close(self) -> None:
        """Does nothing: the providers belong to their creator."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        legs, faults = self._legs(), list[Fault]()
        leg, attempt, refused = self._next(legs), 1, ""
        while leg is not None:
            streamed = False
            outcome: ReplyDone | ReplyFailed | None = None
            self._pool.begin(leg.credential)
            provider = await self._ready(leg, refused)
            # Read to the end of the stream: a half-read generator leaves its connection open.
            async for event in provider.stream(msgspec.structs.replace(request, model=leg.candidate.ref.model)):
                if isinstance(event, ReplyDone | ReplyFailed):
                    outcome = event
                else:
                    streamed = streamed or isinstance(event, TextDelta)
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
                yield self._notice(error, f"trying again in {decision.wait:.0f} s", streamed)
                await self._sleep(decision.wait)
                attempt += 1
                continue
            await self._pool.keep()
            faults.append(Fault(leg, error, attempt, partial))
            legs = _left(legs, leg, decision)
            leg, attempt, refused = self._next(legs), 1, ""
            if leg is not None:
                yield self._notice(error, f"going on with {leg}", streamed)
        yield self._gave_up(faults)

    def _legs(self) -> list[Leg]:
        """Everything to try: models in order, for each its keys in order."""
        legs: list[Leg] = []
        for candidate in self._candidates:
            usable = self._pool.order(candidate.credentials, candidate.order, candidate.ref.model)
            legs += [Leg(candidate, credential) for credential in usable] or [Leg(candidate, None)]
        return legs

    def _next(self, legs: list[Leg]) -> Leg | None:
        """The leg that answered in this turn, or else the first whose key is not cooling down, or else any."""
        ready = [leg for leg in legs if not self._pool.rests(leg.credential, leg.candidate.ref.model)]
        if self._answered in ready:
            return self._answered
        return next(iter(ready or legs), None)

    async def _ready(self, leg: Leg, refused: str) -> Provider:
        """The same with a renewed credential if necessary."""
        self._used = None
        if self._renew is None or leg.credential is None or not leg.credential.refresh:
            return leg.candidate.open(leg.credential)
        try:
            self._used = await self._renew(leg.credential, refused)
        except ProviderError as error:
            return Unavailable(leg.candidate.ref.provider, error)
        return leg.candidate.open(self._used)

    def _refused(self, error: ProviderError) -> str:
        """The refused secret of a sign-in that has not expired: it may be revoked, and is renewed once."""
        used = self._used
        return used.secret if error.kind is Failure.AUTH and used is not None and used.refresh else ""

    def _decide(self, leg: Leg, error: ProviderError, attempt: int) -> Decision:
        model = leg.candidate.ref.model
        tired = self._pool.failures(leg.credential, model)
        decision = decide(error, attempt=attempt, failures_in_a_row=tired, dice=self._dice())
        if decision.cooldown:
            self._pool.cool(leg.credential, decision.cooldown, model if decision.cools == "model" else "")
        return decision

    def _notice(self, error: ProviderError, then: str, streamed: bool) -> ReplyNotice:
        text = f"{self._line(error.message)}; {then}"
        log.info("%s", text)
        return ReplyNotice(text, discard=streamed)

    def _gave_up(self, faults: list[Fault]) -> ReplyFailed:
        """The final error. Kind and hint are those of the failure that ended the attempts, or else of the configured
        model.
        """
        first = next((fault for fault in faults if RULES[fault.error.kind].then == "stop"), faults[0])
        error = first.error
        if len(faults) == 1:
            times = f" (tried {first.attempts} times)" if first.attempts > 1 else ""
            message = self._redact(error.message) + times
        else:
            message = f"no model answered: {'; '.join(self._describe(fault) for fault in faults)}"
        whole = ProviderError(
            message, kind=error.kind, hint=self._redact(error.hint), status=error.status, retry_after=error.retry_after
        )
        return ReplyFailed(whole, faults[-1].partial)

    def _describe(self, fault: Fault) -> str:
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
    """The legs left to try after this failure."""
    if decision.step == "stop":
        return []
    others = [other for other in legs if other != leg]
    if decision.step == "model":
        return [other for other in others if other.candidate.ref != leg.candidate.ref]
    return others
