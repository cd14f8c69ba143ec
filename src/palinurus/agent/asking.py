"""Ask a model one thing beside the conversation, such as a summary: no tools, a limit of time, and STOP is heard."""

from __future__ import annotations

import asyncio

from palinurus.agent.loop import Pen
from palinurus.agent.stop import Stop, Stopped
from palinurus.domain.messages import AssistantMessage
from palinurus.providers.provider import ModelRequest, Provider, ReplyDone


class Asking:
    """Asks as often as it is called, all within one limit."""

    def __init__(self, provider: Provider, pen: Pen, stop: Stop, seconds: float) -> None:
        self._provider = provider
        self._pen = pen
        self._stop = stop
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def __call__(self, request: ModelRequest) -> AssistantMessage | None:
        """The reply; None when there was none, or not in time, or somebody said stop."""
        reply: AssistantMessage | None = None
        try:
            async with asyncio.timeout_at(self._deadline):
                with self._stop.interruptible():
                    async for event in self._provider.stream(request):
                        if isinstance(event, ReplyDone):
                            reply = event.message
        except (Stopped, TimeoutError):
            return None
        return self._pen.clean(reply) if reply else None  # a part of it may be sent again
