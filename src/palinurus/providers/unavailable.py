"""A provider that cannot be used, and says why when it is asked.

It stands in for one that config names wrongly: the message is accepted and kept, and the reason is the reply.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from palinurus.domain.errors import ProviderError
from palinurus.providers.provider import ModelRequest, ReplyEvent, ReplyFailed


class Unavailable:
    """Implements Provider."""

    wire = "unavailable"

    def __init__(self, name: str, error: ProviderError) -> None:
        self.name = name
        self._error = error

    def context_window(self, model: str) -> int:
        return 32_000

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        yield ReplyFailed(self._error)

    async def close(self) -> None:
        pass
