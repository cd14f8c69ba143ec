"""Telegram's fake server on a thread of its own, for tests whose gateway is another process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from channels.network import SentMessage
from channels.networks.telegram import FakeTelegram

PATIENCE = 60.0
T = TypeVar("T")


class TelegramServer:
    """A context manager; people write by `write`."""

    def __init__(self) -> None:
        self.network = FakeTelegram()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self.network.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.network.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    @property
    def token(self) -> str:
        return self.network.token

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.network.port}"

    def write(self, text: str, **more: Any) -> str:
        return self._run(self.network.write(text, **more))

    def sent(self) -> list[SentMessage]:
        return [each for each in self.network.sent if not each.deleted]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)
