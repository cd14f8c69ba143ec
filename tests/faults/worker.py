"""A client of a home for the fault suites: reads messages as JSON lines, has them answered, says what it hears.

Messages of one session are sent in order, each as soon as the one before it was accepted; sessions go side by side.
It prints `accepted KEY`, `delta KEY`, `tool KEY` and `done KEY STATUS`, and ends when its input has ended and every
message is answered.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import msgspec

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import AssistantDelta, RunEvent, ToolStarted
from palinurus.operations.runs import AcceptedMessage, converse
from palinurus.runtime.home_access import HomeAccess

AT_ONCE = 8  # messages of one session that may be on their way
LINE_LIMIT = 4 * 1024 * 1024


def tell(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def lines() -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


async def exchange(door: HomeAccess, inbound: Inbound, accepted: asyncio.Event, free: asyncio.Semaphore) -> None:
    key = inbound.idempotency_key

    def on_accepted(_: AcceptedMessage) -> None:
        if not accepted.is_set():
            tell("accepted", key)
            accepted.set()

    def on_event(event: RunEvent) -> None:
        if isinstance(event, AssistantDelta | ToolStarted):
            tell("delta" if isinstance(event, AssistantDelta) else "tool", key)

    result = await converse(door, inbound, on_event, on_accepted)
    tell("done", key, result.status)
    free.release()


async def speak(door: HomeAccess, messages: asyncio.Queue[Inbound | None]) -> None:
    """One session's messages, in order."""
    free = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as exchanges:
        while (inbound := await messages.get()) is not None:
            await free.acquire()
            accepted = asyncio.Event()
            exchanges.create_task(exchange(door, inbound, accepted, free))
            await accepted.wait()


async def main() -> None:
    home = find_home(os.environ)
    sessions: dict[str, asyncio.Queue[Inbound | None]] = {}
    async with (
        HomeAccess(home, os.environ, "worker", warn=lambda text: tell("warning", text)) as door,
        asyncio.TaskGroup() as speakers,
    ):
        tell("ready")
        async for line in lines():
            inbound = msgspec.json.decode(line, type=Inbound)
            if inbound.session_key not in sessions:
                sessions[inbound.session_key] = asyncio.Queue()
                speakers.create_task(speak(door, sessions[inbound.session_key]))
            sessions[inbound.session_key].put_nowait(inbound)
        for queue in sessions.values():
            queue.put_nowait(None)


if __name__ == "__main__":
    asyncio.run(main())
