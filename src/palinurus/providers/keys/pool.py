"""Which key is asked next: what answered last, then by trust and kind, the one that rested longest; tired ones last.

Staying with the key that answered keeps the provider's cache warm; the others take their turn when it tires. All of
it lives in memory and outlives a change of config; a new secret under an old id starts fresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.providers.keys.credentials import KINDS, TRUST, Credential


class CredentialState(Struct, frozen=True, rename="camel"):
    """How a credential stands, without its secret."""

    id: str
    provider: str
    kind: str
    source: str
    state: Literal["ready", "resting", "expired"]
    rests_seconds: float = 0.0
    last_good: bool = False
    failures: int = 0
    last_used_at: int = 0


class _Past(Struct):
    rests_until: int = 0
    failures: int = 0  # in a row
    used_at: int = 0


class CredentialPool:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._past: dict[tuple[str, str], _Past] = {}
        self._last_good: dict[str, str] = {}  # provider -> id

    def order(self, credentials: Sequence[Credential], prescribed: Sequence[str] = ()) -> list[Credential]:
        """Those that can be used, in the order in which they are asked. `prescribed` ids go before the others."""
        usable = [credential for credential in credentials if not self.expired(credential)]
        return sorted(usable, key=lambda credential: self._rank(credential, prescribed))

    def expired(self, credential: Credential) -> bool:
        return credential.expires_at is not None and credential.expires_at <= self._clock.now_ms()

    def rests(self, credential: Credential | None) -> float:
        """Seconds until it should be asked again; 0 when it may be asked now. No credential never tires."""
        if credential is None:
            return 0.0
        return max(0.0, (self._of(credential).rests_until - self._clock.now_ms()) / 1000)

    def failures(self, credential: Credential | None) -> int:
        return 0 if credential is None else self._of(credential).failures

    def begin(self, credential: Credential | None) -> None:
        if credential is not None:
            self._of(credential).used_at = self._clock.now_ms()

    def good(self, credential: Credential | None) -> None:
        """It answered."""
        if credential is not None:
            past = self._of(credential)
            past.failures = past.rests_until = 0
            self._last_good[credential.provider] = credential.id

    def cool(self, credential: Credential | None, seconds: float) -> None:
        """It failed in a way that is its own fault, or its own limit."""
        if credential is not None:
            past = self._of(credential)
            past.failures += 1
            past.rests_until = self._clock.now_ms() + int(seconds * 1000)

    def state(self, credential: Credential) -> CredentialState:
        past, rests = self._of(credential), self.rests(credential)
        return CredentialState(
            credential.id,
            credential.provider,
            credential.kind,
            credential.source,
            "expired" if self.expired(credential) else "resting" if rests else "ready",
            round(rests, 1),
            self._is_last_good(credential),
            past.failures,
            past.used_at,
        )

    def _is_last_good(self, credential: Credential) -> bool:
        return self._last_good.get(credential.provider) == credential.id

    def _rank(self, credential: Credential, prescribed: Sequence[str]) -> tuple[float, bool, int, int, int, int, str]:
        place = prescribed.index(credential.id) if credential.id in prescribed else len(prescribed)
        return (
            self.rests(credential),
            not self._is_last_good(credential),
            place,
            TRUST.index(credential.source),
            KINDS.index(credential.kind),
            self._of(credential).used_at,
            credential.id,
        )

    def _of(self, credential: Credential) -> _Past:
        return self._past.setdefault((credential.id, credential.secret), _Past())
