"""What waits to be sent to one client: a queue with a cap, and a number on every event.

Events beyond the cap are left out, and the gap in `seq` tells the client so. Answers are never left out: a client that
asks and asks and does not read is closed instead.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from palinurus.gateway.frames.protocol import MAX_BUFFERED, EventFrame

WAITING_OUT = 2_000  # frames of one client; events beyond them are left out
WAITING_BYTES = 8 * 1024 * 1024
FEED_AHEAD = 200  # frames that a feed may be ahead of its reader
WRITE_SECONDS = 30.0  # that a client may take to read one frame
FLUSH_SECONDS = 1.0

encode = msgspec.json.Encoder().encode


class Gone(Exception):
    """The other side has left."""


class Sender(Protocol):
    async def send(self, text: str) -> None:
        """Returns when the frame has left or may wait with little else. Raises Gone."""


class Outgoing:
    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._bytes = 0
        self._seq = 0
        self._room = asyncio.Event()
        self._room.set()

    def event(self, name: str, payload: msgspec.Raw) -> None:
        self._seq += 1
        if self._frames.qsize() < WAITING_OUT and self._bytes <= WAITING_BYTES:
            self._put(encode(EventFrame(name, payload, self._seq)))

    def answer(self, frame: msgspec.Struct) -> bool:
        """False when so much waits already that the client cannot be reading."""
        if self._bytes > MAX_BUFFERED:
            return False
        self._put(encode(frame))
        return True

    def _put(self, frame: bytes) -> None:
        self._bytes += len(frame)
        self._frames.put_nowait(frame)
        if self._frames.qsize() >= FEED_AHEAD:
            self._room.clear()

    async def room(self) -> None:
        """Until the client has read most of what waits. A feed waits for its reader; events do not."""
        await self._room.wait()

    async def run(self) -> None:
        """Send what waits, for ever. Raises Gone, also for a client that does not read."""
        while True:
            frame = self._take(await self._frames.get())
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._sender.send(frame)
            except TimeoutError:
                raise Gone from None

    async def flush(self) -> None:
        """Send what still waits, if that is soon done. Raises Gone."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while not self._frames.empty():
                    await self._sender.send(self._take(self._frames.get_nowait()))
        except TimeoutError:
            raise Gone from None

    def _take(self, frame: bytes) -> str:
        self._bytes -= len(frame)
        if self._frames.qsize() < FEED_AHEAD:
            self._room.set()
        return frame.decode()
