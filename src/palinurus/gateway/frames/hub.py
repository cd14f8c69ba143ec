"""Events on their way to connected clients. An event is encoded once, and only when somebody listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

EVERYTHING = "*"
MOST_SESSIONS = 1_000  # of one listener


class Listener(Protocol):
    """One connected client. Must neither block nor raise; one that cannot keep up says so to its client itself."""

    def hear(self, event: str, payload: msgspec.Raw) -> None: ...


class Hub:
    """Who listens to which session; `*` listens to all."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[Listener]] = {}
        self._heard_by: dict[Listener, dict[str, None]] = {}  # the sessions of each, in the order of asking

    def listen(self, listener: Listener, session_key: str = EVERYTHING) -> None:
        """Who listens to too many sessions stops listening to the one that it named first."""
        own = self._heard_by.setdefault(listener, {})
        own.pop(session_key, None)
        own[session_key] = None
        self._listeners.setdefault(session_key, set()).add(listener)
        if len(own) > MOST_SESSIONS:
            self.leave(listener, next(key for key in own if key != EVERYTHING))

    def leave(self, listener: Listener, session_key: str | None = None) -> None:
        """Stop listening to one session, or to all."""
        own = self._heard_by.get(listener, {})
        for key in [session_key] if session_key is not None else list(own):
            own.pop(key, None)
            listeners = self._listeners.get(key, set())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(key, None)
        if not own:
            self._heard_by.pop(listener, None)

    def publish(self, event: str, session_key: str, payload: Callable[[], Any]) -> None:
        """Tell those who listen to this session. The payload is made when there is somebody to hear it."""
        one, everybody = self._listeners.get(session_key), self._listeners.get(EVERYTHING)
        if not one and not everybody:
            return
        encoded = msgspec.Raw(msgspec.json.encode(payload()))
        for listener in (one or set()) | (everybody or set()):
            listener.hear(event, encoded)

    @property
    def listeners(self) -> int:
        return len(self._heard_by)
