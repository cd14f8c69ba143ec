"""What to do when a model does not answer: one table, read by one pure function.

A request is tried again where trying again helps, then with the next credential where another credential helps, then
with the next model. A bad request never cools a credential down: it says nothing about the credential.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import Failure, ProviderError

ATTEMPTS = 3  # of one request with one credential
LONGEST_WAIT = 30.0
JITTER = 0.1
COOLDOWNS = (30.0, 60.0, 300.0)  # seconds, for the first, second and every later failure in a row
BILLING_COOLDOWN = 600.0


class Rule(Struct, frozen=True):
    """How a kind of failure is met."""

    again: bool  # whether the same request may go through a moment later
    cools: bool  # whether the credential rests
    then: Literal["credential", "model", "stop"]  # what is tried when trying again does not help


RULES: dict[Failure, Rule] = {
    Failure.AUTH: Rule(again=False, cools=True, then="credential"),
    Failure.BILLING: Rule(again=False, cools=True, then="credential"),
    Failure.RATE_LIMIT: Rule(again=True, cools=True, then="credential"),
    Failure.OVERLOAD: Rule(again=True, cools=False, then="model"),
    Failure.NETWORK: Rule(again=True, cools=False, then="model"),
    Failure.TIMEOUT: Rule(again=True, cools=False, then="model"),
    Failure.MALFORMED: Rule(again=True, cools=False, then="model"),
    Failure.MODEL_NOT_FOUND: Rule(again=False, cools=False, then="model"),
    Failure.BAD_REQUEST: Rule(again=False, cools=False, then="model"),
    # Another model would get the same too long prompt, or be asked to do what one has refused.
    Failure.CONTEXT_OVERFLOW: Rule(again=False, cools=False, then="stop"),
    Failure.REFUSAL: Rule(again=False, cools=False, then="stop"),
}


class Decision(Struct, frozen=True):
    step: Literal["again", "credential", "model", "stop"]
    wait: float = 0.0  # seconds before trying again
    cooldown: float = 0.0  # seconds that the credential rests


def decide(error: ProviderError, *, attempt: int, failures_in_a_row: int, dice: float) -> Decision:
    """The next step. `attempt` counts from 1 with this credential; `dice` in [0, 1) spreads the waits."""
    rule = RULES[error.kind]
    wait = _wait(error.retry_after, attempt, dice)
    if rule.again and attempt < ATTEMPTS and wait <= LONGEST_WAIT * (1 + JITTER):
        return Decision("again", wait=wait)
    return Decision(rule.then, cooldown=_cooldown(error, failures_in_a_row) if rule.cools else 0.0)


def _wait(retry_after: float | None, attempt: int, dice: float) -> float:
    """What the provider asks for, else a second that doubles; a little more by chance, so that not all come at once."""
    base = retry_after if retry_after is not None else min(2.0 ** (attempt - 1), LONGEST_WAIT)
    return base * (1 + JITTER * dice)


def _cooldown(error: ProviderError, failures_in_a_row: int) -> float:
    if error.kind is Failure.BILLING:
        return BILLING_COOLDOWN
    usual = COOLDOWNS[min(failures_in_a_row, len(COOLDOWNS) - 1)]
    return max(usual, error.retry_after or 0.0)
