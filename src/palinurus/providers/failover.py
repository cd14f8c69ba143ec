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
LONGEST_REST = 3600.0  # whatever a provider asks for: asking once an hour costs nothing

Cools = Literal["", "model", "key"]
"""Who rests: nobody, the key for this model alone, or the key for all of its provider's models."""


class Rule(Struct, frozen=True):
    """How a kind of failure is met."""

    again: bool  # whether the same request may go through a moment later
    cools: Cools
    then: Literal["credential", "model", "stop"]  # what is tried when trying again does not help


RULES: dict[Failure, Rule] = {
    # A refusal may be of the model and not of the key (not permitted, not in the plan): another model is worth asking.
    Failure.AUTH: Rule(again=False, cools="model", then="credential"),
    Failure.BILLING: Rule(again=False, cools="model", then="credential"),
    Failure.RATE_LIMIT: Rule(again=True, cools="key", then="credential"),
    Failure.OVERLOAD: Rule(again=True, cools="", then="model"),
    Failure.NETWORK: Rule(again=True, cools="", then="model"),
    Failure.TIMEOUT: Rule(again=True, cools="", then="model"),
    Failure.MALFORMED: Rule(again=True, cools="", then="model"),
    Failure.MODEL_NOT_FOUND: Rule(again=False, cools="", then="model"),
    Failure.BAD_REQUEST: Rule(again=False, cools="", then="model"),
    # Another model would get the same too long prompt, or be asked to do what one has refused.
    Failure.CONTEXT_OVERFLOW: Rule(again=False, cools="", then="stop"),
    Failure.REFUSAL: Rule(again=False, cools="", then="stop"),
}


class Decision(Struct, frozen=True):
    step: Literal["again", "credential", "model", "stop"]
    wait: float = 0.0  # seconds before trying again
    cooldown: float = 0.0  # seconds that the credential rests
    cools: Cools = ""


def decide(error: ProviderError, *, attempt: int, failures_in_a_row: int, dice: float) -> Decision:
    """The next step. `attempt` counts from 1 with this credential; `dice` in [0, 1) spreads the waits."""
    rule = RULES[error.kind]
    wait = _wait(error.retry_after, attempt, dice)
    if rule.again and attempt < ATTEMPTS and wait <= LONGEST_WAIT * (1 + JITTER):
        return Decision("again", wait=wait)
    return Decision(rule.then, cooldown=_cooldown(error, failures_in_a_row) if rule.cools else 0.0, cools=rule.cools)


def _wait(retry_after: float | None, attempt: int, dice: float) -> float:
    """What the provider asks for, else a second that doubles; a little more by chance, so that not all come at once."""
    base = retry_after if retry_after is not None else min(2.0 ** (attempt - 1), LONGEST_WAIT)
    return base * (1 + JITTER * dice)


def _cooldown(error: ProviderError, failures_in_a_row: int) -> float:
    """What the provider says of its own limit holds, long or short; our own guess is for when it says nothing."""
    usual = COOLDOWNS[min(failures_in_a_row, len(COOLDOWNS) - 1)]
    if error.kind is Failure.RATE_LIMIT:
        usual = usual if error.retry_after is None else error.retry_after
    elif error.kind is Failure.BILLING:
        usual = BILLING_COOLDOWN
    return min(usual, LONGEST_REST)
