"""Lines of standard input, read beside the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading


class InputLines:
    """Lines of standard input.

    A daemon thread: whoever leaves must not wait for a line that nobody will type.
    """

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._loop = asyncio.get_running_loop()
        self._coming: asyncio.Future[str | None] | None = None
        if prompt:
            import readline  # noqa: F401  # gives input() history and editing

    async def next(self) -> str | None:
        """The next line; None at the end. A line that nobody waits for any more goes to whoever asks next."""
        if self._coming is None:
            self._coming = self._loop.create_future()
            threading.Thread(target=self._read, args=(self._coming,), daemon=True).start()
        line = await asyncio.shield(self._coming)
        self._coming = None
        return line

    def _read(self, future: asyncio.Future[str | None]) -> None:
        try:
            line: str | None = input(self._prompt) if self._prompt else _one_line()
        except (EOFError, UnicodeDecodeError) as error:
            line = None if isinstance(error, EOFError) else "\ufffd"
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_hand_over, future, line)


def _one_line() -> str | None:
    line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None


def _hand_over(future: asyncio.Future[str | None], line: str | None) -> None:
    if not future.done():
        future.set_result(line)
