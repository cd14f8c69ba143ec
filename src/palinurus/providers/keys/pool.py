"""Chooses the next credential: the one that answered last, then by precedence and kind; failed ones last.

Staying with the key that answered keeps the provider's cache warm. Which keys are cooling down and which answered last
is stored, so that a process that is started for one message knows it too:

    {"version": 1, "lastGood": {"openai": "openai:work"},
     "rests": [{"id": "openai:home", "key": "9f86d081…", "model": "m", "until": 1794772097429, "failures": 2}]}

The file holds no key, only a digest that shows whether it is still the same: a changed key starts fresh. The file lies
below `derived` and may be deleted.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.clock import Clock
from palinurus.domain.errors import StorageError
from palinurus.providers.keys.credential_file import KINDS, TRUST, Credential

LONGEST_REST = 3600.0  # seconds, whatever a provider requests: one attempt per hour costs nothing
NAME = "cooldowns.json"
MOST = 1000  # cooldowns in one file
LARGEST = 1 << 20
log = logging.getLogger(__name__)


class Rest(Struct, frozen=True, omit_defaults=True):
    """A cooldown of a key, for one model or ("") for all."""

    id: str
    key: str  # see `fingerprint`
    model: str = ""
    until: int = 0  # milliseconds
    failures: int = 0  # in a row


class Cooldowns(Struct, frozen=True, rename="camel"):
    last_good: dict[str, str] = {}  # provider -> id
    rests: tuple[Rest, ...] = ()
    version: int = 1


def read_cooldowns(path: Path) -> Cooldowns:
    """The content of the file; empty if it is missing or invalid, because it is only a hint. Never raises."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(LARGEST), type=Cooldowns)
    except (OSError, msgspec.DecodeError):
        return Cooldowns()


def write_cooldowns(path: Path, cooldowns: Cooldowns) -> None:
    """Never raises: a full disk must not prevent model calls."""
    try:
        make_directory(path.parent)
        write_atomic(path, msgspec.json.format(msgspec.json.encode(cooldowns)))
    except StorageError as error:
        log.warning("the cooldowns of keys could not be stored: %s", error)


def fingerprint(secret: str) -> str:
    """Shows whether a key is the same as before, and nothing else about it."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32]


class CredentialState(Struct, frozen=True, rename="camel"):
    """The state of a credential, without its secret."""

    id: str
    provider: str
    kind: str
    source: str
    state: Literal["ready", "resting", "expired"]
    rests_seconds: float = 0.0
    last_good: bool = False
    failures: int = 0
    last_used_at: int = 0
    models: tuple[str, ...] = ()  # that it cools down for; empty: all of them


FORGOTTEN_AFTER_MS = 24 * 3600 * 1000  # how long failures count after their cooldown


def _place(rest: Rest) -> tuple[str, str, str]:
    return rest.id, rest.key, rest.model


class CredentialPool:
    """`file` is read once, at the start: only one process calls models."""

    def __init__(self, clock: Clock, file: Path | None = None, *, readonly: bool = False) -> None:
        self._clock = clock
        self._file = None if readonly else file
        known = read_cooldowns(file) if file is not None else Cooldowns()
        self._rests = {_place(rest): rest for rest in known.rests if self._counts(rest)}
        self._used_at: dict[tuple[str, str], int] = {}
        self._last_good = dict(known.last_good)
        self._changed = False
        self._keeping = asyncio.Lock()

    def order(
        self, credentials: Sequence[Credential], prescribed: Sequence[str] = (), model: str = ""
    ) -> list[Credential]:
        """The usable credentials, in order. `prescribed` ids come first."""
        usable = [credential for credential in credentials if not self.expired(credential)]
        return sorted(usable, key=lambda credential: self._rank(credential, prescribed, model))

    def expired(self, credential: Credential) -> bool:
        """Whether it has expired and cannot be renewed."""
        ends = credential.expires_at
        return not credential.refresh and ends is not None and ends <= self._clock.now_ms()

    def rests(self, credential: Credential | None, model: str = "") -> float:
        """Seconds until the end of its cooldown; 0 if it can be used now. Always 0 without a credential."""
        until = max((rest.until for rest in self._of(credential, model)), default=0)
        return max(0.0, (until - self._clock.now_ms()) / 1000)

    def failures(self, credential: Credential | None, model: str = "") -> int:
        return max((rest.failures for rest in self._of(credential, model)), default=0)

    def begin(self, credential: Credential | None) -> None:
        if credential is not None:
            self._used_at[credential.id, credential.secret] = self._clock.now_ms()

    def good(self, credential: Credential | None, model: str = "") -> None:
        """Records a success: ends its cooldowns for this model and for all."""
        if credential is None:
            return
        for rest in self._of(credential, model):
            del self._rests[_place(rest)]
            self._changed = True
        if not self._is_last_good(credential):
            self._last_good[credential.provider] = credential.id
            self._changed = True

    def cool(self, credential: Credential | None, seconds: float, model: str = "") -> None:
        """Records a failure or a limit of the credential; for one model, or ("") for all."""
        if credential is not None:
            until = self._clock.now_ms() + int(seconds * 1000)
            count = self.failures(credential, model) + 1
            rest = Rest(credential.id, fingerprint(credential.secret), model, until, count)
            self._rests[_place(rest)] = rest
            self._changed = True

    async def keep(self) -> None:
        """Stores changes, if there are any."""
        if self._file is None or not self._changed:
            return
        async with self._keeping:
            self._changed = False
            self._rests = {place: rest for place, rest in self._rests.items() if self._counts(rest)}
            newest = sorted(self._rests.values(), key=lambda rest: -rest.until)[:MOST]
            await asyncio.to_thread(write_cooldowns, self._file, Cooldowns(dict(self._last_good), tuple(newest)))

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
        """Whether a cooldown still counts: not an old one, nor one too far in the future because the clock was set
        back.
        """
        now = self._clock.now_ms()
        return now - FORGOTTEN_AFTER_MS < rest.until <= now + LONGEST_REST * 1000

    def _of(self, credential: Credential | None, model: str = "") -> list[Rest]:
        """The cooldowns of a credential for this model; without a model, any."""
        if credential is None or not self._rests:
            return []
        place = (credential.id, fingerprint(credential.secret))
        found = [rest for (*key, _), rest in self._rests.items() if tuple(key) == place]
        return [rest for rest in found if not model or rest.model in ("", model)]
