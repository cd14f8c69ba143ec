"""A provider that cannot be used, and says why when it is asked.

It stands in for one that config names wrongly: the message is accepted and kept, and the reason is the reply.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from palinurus.domain.errors import ProviderError
from palinurus.providers.provider import ModelRequest, ReplyEvent, ReplyFailed


class Unavailable:
    """Implements Provider."""

    def __init__(self, name: str, error: ProviderError, *, wire: str = "unavailable", window: int = 32_000) -> None:
        """`wire` and `window` are those it would have, so that nothing changes once it can be used."""
        self.name = name
        self.wire = wire
        self.error = error
        self._window = window

    def context_window(self, model: str) -> int:
        return self._window

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        yield ReplyFailed(self.error)

    async def close(self) -> None:
        pass
