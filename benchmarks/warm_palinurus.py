"""Warm turns of ours: the runtime of a real home, its SQLite files and its provider over the wire."""

from __future__ import annotations

import asyncio
import os

from benchmarks import warm
from palinurus.config.home import find_home
from palinurus.domain.clock import random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import AssistantDelta
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Text, UserMessage
from palinurus.runtime.runtime import Runtime


async def _with_history(runtime: Runtime) -> str:
    """A session in which 50 messages were said: two by a turn, which opens the epoch, the others written down."""
    name = f"agent:main:explicit:{random_id()}"
    run = await runtime.services.dispatcher.submit(Inbound("hello", random_id(), session_key=name))
    await run.wait(30)
    session = await runtime.services.sessions.open(SessionKey.parse(name))
    journal = runtime.services.turns.history.journal(session, await runtime.services.turns.history.view(session))
    said = [
        AssistantMessage((Text(line["content"]),)) if line["role"] == "assistant" else UserMessage(line["content"])
        for line in warm.history(warm.HISTORY - 2)
    ]
    await journal.write([journal.message(message) for message in said])
    return name


async def _turn(runtime: Runtime, session: str) -> dict[str, float]:
    watch = warm.Stopwatch()
    run = await runtime.services.dispatcher.submit(Inbound(warm.QUESTION, random_id(), session_key=session))
    watch.accepted()
    async with asyncio.timeout(30):
        async for event in run.events():
            if isinstance(event, AssistantDelta):
                watch.heard()
    result = await run.wait(30)
    return watch.read(result.text or result.error)


def main() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def start() -> Runtime:
        return Runtime(find_home(os.environ), os.environ)

    runtime = loop.run_until_complete(start())

    async def batch(turns: int) -> list[dict[str, float]]:
        sessions = [await _with_history(runtime) for _ in range(turns)]
        return [await _turn(runtime, session) for session in sessions]

    warm.answer(warm.run_in(loop, batch))
    loop.run_until_complete(runtime.close())
    loop.close()


if __name__ == "__main__":
    main()
