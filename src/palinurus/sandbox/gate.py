"""The moment between the walls and the command: bubblewrap says who is inside and waits for our word."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Self

import msgspec

SECONDS = 20.0  # for bubblewrap to say anything; it takes milliseconds


class _Info(msgspec.Struct, rename="kebab"):
    child_pid: int


class Gate:
    """Two pipes. `theirs` are the ends that bubblewrap gets."""

    def __init__(self) -> None:
        self._info, self.tell = os.pipe()
        reading, self._word = os.pipe()
        # Opened for writing too, it never ends by itself: if we die now, no command runs without its limits.
        self.hold = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)
        os.close(reading)
        self._open = {self._info, self.tell, self.hold, self._word}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(*tuple(self._open))

    @property
    def theirs(self) -> tuple[int, int]:
        return self.tell, self.hold

    def handed_over(self) -> None:
        """Bubblewrap has its ends now. As long as we held them too, we would not hear of its end."""
        self._close(*self.theirs)

    async def who(self) -> int | None:
        """The first process inside, or None when bubblewrap ended without making one."""
        os.set_blocking(self._info, False)
        loop = asyncio.get_running_loop()
        said = b""
        async with asyncio.timeout(SECONDS):
            while piece := await _next(self._info, loop):
                said += piece
        return msgspec.json.decode(said, type=_Info).child_pid if said.strip() else None

    def open(self) -> None:
        os.write(self._word, b"x")

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._open:
                self._open.remove(fd)
                os.close(fd)


async def _next(fd: int, loop: asyncio.AbstractEventLoop) -> bytes:
    while True:
        try:
            return os.read(fd, 4096)
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_reader(fd, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(fd)
