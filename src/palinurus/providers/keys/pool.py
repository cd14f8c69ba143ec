"""Which key is asked next: what answered last, then by trust and kind, the one that rested longest; tired ones last.

Staying with the key that answered keeps the provider's cache warm; the others take their turn when it tires. It
outlives a change of config and, with a file to keep it in, the process; a new secret under an old id starts fresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.providers.failover import LONGEST_REST
from palinurus.providers.keys.cooldowns import CooldownFile, Cooldowns, Rest, fingerprint
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
    models: tuple[str, ...] = ()  # that it rests for; none: for all of them


FORGOTTEN_AFTER_MS = 24 * 3600 * 1000  # how long failures count after the rest that they led to
_Place = tuple[str, str, str]  # id, fingerprint, model ("": all)


class CredentialPool:
    """`file` is read once, at the start: one process speaks to models."""

    def __init__(self, clock: Clock, file: CooldownFile | None = None) -> None:
        self._clock = clock
        self._file = file
        known = file.read() if file is not None else Cooldowns()
        self._rests: dict[_Place, Rest] = {
            (rest.id, rest.key, rest.model): rest for rest in known.rests if self._counts(rest)
        }
        self._used_at: dict[tuple[str, str], int] = {}
        self._last_good = dict(known.last_good)
        self._changed = False
        self._keeping = asyncio.Lock()

    def order(
        self, credentials: Sequence[Credential], prescribed: Sequence[str] = (), model: str = ""
    ) -> list[Credential]:
        """Those that can be used, in the order in which they are asked. `prescribed` ids go before the others."""
        usable = [credential for credential in credentials if not self.expired(credential)]
        return sorted(usable, key=lambda credential: self._rank(credential, prescribed, model))

    def expired(self, credential: Credential) -> bool:
        """Whether its time is over for good: one that can be renewed is, before it is used."""
        ends = credential.expires_at
        return not credential.refresh and ends is not None and ends <= self._clock.now_ms()

    def rests(self, credential: Credential | None, model: str = "") -> float:
        """Seconds until it should be asked again; 0 when it may be asked now. No credential never tires."""
        until = max((rest.until for rest in self._of(credential, model)), default=0)
        return max(0.0, (until - self._clock.now_ms()) / 1000)

    def failures(self, credential: Credential | None, model: str = "") -> int:
        return max((rest.failures for rest in self._of(credential, model)), default=0)

    def begin(self, credential: Credential | None) -> None:
        if credential is not None:
            self._used_at[credential.id, credential.secret] = self._clock.now_ms()

    def good(self, credential: Credential | None, model: str = "") -> None:
        """It answered, so it rests neither for this model nor altogether."""
        if credential is None:
            return
        for rest in self._of(credential, model):
            del self._rests[rest.id, rest.key, rest.model]
            self._changed = True
        if not self._is_last_good(credential):
            self._last_good[credential.provider] = credential.id
            self._changed = True

    def cool(self, credential: Credential | None, seconds: float, model: str = "") -> None:
        """It failed in a way that is its own fault, or its own limit; for one model, or ("") for all."""
        if credential is not None:
            until = self._clock.now_ms() + int(seconds * 1000)
            count = self.failures(credential, model) + 1
            rest = Rest(credential.id, fingerprint(credential.secret), model, until, count)
            self._rests[rest.id, rest.key, rest.model] = rest
            self._changed = True

    async def keep(self) -> None:
        """Put on the disk what has changed. Costs nothing when nothing has."""
        if self._file is None or not self._changed:
            return
        async with self._keeping:
            self._changed = False
            self._rests = {place: rest for place, rest in self._rests.items() if self._counts(rest)}
            now = Cooldowns(dict(self._last_good), tuple(self._rests.values()))
            await asyncio.to_thread(self._file.write, now)

    def state(self, credential: Credential) -> CredentialState:
        rests = self.rests(credential)
        return CredentialState(
            credential.id,
            credential.provider,
            credential.kind,
            credential.source,
            "expired" if self.expired(credential) else "resting" if rests else "ready",
            round(rests, 1),
            self._is_last_good(credential),
            self.failures(credential),
            self._used_at.get((credential.id, credential.secret), 0),
            tuple(sorted(rest.model for rest in self._of(credential) if rest.model and rests)),
        )

    def _is_last_good(self, credential: Credential) -> bool:
        return self._last_good.get(credential.provider) == credential.id

    def _rank(
        self, credential: Credential, prescribed: Sequence[str], model: str
    ) -> tuple[float, bool, int, int, int, int, str]:
        place = prescribed.index(credential.id) if credential.id in prescribed else len(prescribed)
        return (
            self.rests(credential, model),
            not self._is_last_good(credential),
            place,
            TRUST.index(credential.source),
            KINDS.index(credential.kind),
            self._used_at.get((credential.id, credential.secret), 0),
            credential.id,
        )

    def _counts(self, rest: Rest) -> bool:
        """Not one of long ago, nor one that ends later than any rest can: the clock was set back since."""
        now = self._clock.now_ms()
        return now - FORGOTTEN_AFTER_MS < rest.until <= now + LONGEST_REST * 1000

    def _of(self, credential: Credential | None, model: str = "") -> list[Rest]:
        """What holds for it with this model; without one, for any."""
        if credential is None or not self._rests:
            return []
        place = (credential.id, fingerprint(credential.secret))
        found = [rest for (*key, _), rest in self._rests.items() if tuple(key) == place]
        return [rest for rest in found if not model or rest.model in ("", model)]
