"""Warm turns of nanobot, through the door that it offers to Python programs. Run by its own interpreter."""

from __future__ import annotations

import asyncio
import uuid

from loguru import logger
from nanobot import Nanobot

from benchmarks import warm


def main() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    logger.disable("nanobot")  # as its own command line does: writing the log costs a tenth of the turn
    bot = Nanobot.from_config()

    async def turn(session: str) -> dict[str, float]:
        watch = warm.Stopwatch()
        result = await bot.run(warm.QUESTION, session_key=session)
        return watch.read(result.content or "")

    async def batch(turns: int) -> list[dict[str, float]]:
        sessions = [f"bench:{uuid.uuid4()}" for _ in range(turns)]
        for session in sessions:
            await bot.sessions.ingest(session, warm.history())
        return [await turn(session) for session in sessions]

    warm.answer(warm.run_in(loop, batch))
    loop.run_until_complete(bot.aclose())


if __name__ == "__main__":
    main()
