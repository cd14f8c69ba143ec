"""Codes by which a browser comes in the first time: made on this machine, good once and for a few minutes.

Only digests are kept, and only in memory: a gateway that is started anew knows no old ones.
"""

from __future__ import annotations

import secrets

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.operations.register import digest_of
from palinurus.operations.scopes import Scope

LIVES_MS = 5 * 60 * 1000
BITS = 128
MOST = 32  # that wait to be used; the oldest goes first


class _Waiting(Struct, frozen=True):
    scopes: tuple[Scope, ...]
    until: int


class Codes:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}  # by digest, oldest first

    def make(self, scopes: tuple[Scope, ...]) -> tuple[str, int]:
        """A new code, and until when it is good."""
        self._sweep()
        while len(self._waiting) >= MOST:
            del self._waiting[next(iter(self._waiting))]
        code, until = secrets.token_urlsafe(BITS // 8), self._clock.now_ms() + LIVES_MS
        self._waiting[digest_of(code)] = _Waiting(scopes, until)
        return code, until

    def take(self, code: str) -> tuple[Scope, ...]:
        """What it is good for, this once; nothing when it is not known, was used, or came too late."""
        self._sweep()
        found = self._waiting.pop(digest_of(code), None)
        return found.scopes if found is not None else ()

    def forget(self) -> None:
        """All of them: the secret of the one who had them made is no longer good."""
        self._waiting.clear()

    def _sweep(self) -> None:
        now = self._clock.now_ms()
        for digest in [digest for digest, each in self._waiting.items() if each.until <= now]:
            del self._waiting[digest]
