"""The fake Telegram of the tests in a process of its own, for benchmarks/channels.py.

Prints the config of its account as JSON. Then each line of its input is `CHATS TIMES WORDS`: so many people say WORDS
so many times, each again when the answer is there. When the last one is answered it says how many messages it got.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

from channels.networks.telegram import FakeTelegram

ANSWER_SECONDS = 120.0
ENDED = re.compile(r"(arrived \d+|word\.)\s*$")  # how the answers of benchmarks/model.py end
FIRST = 100  # the number of the first person


async def talk(network: FakeTelegram, chat: str, times: int, words: str) -> None:
    """It looks again and again: that costs this process, which is not measured."""
    for _ in range(times):
        before = len(network.sent)
        await network.write(words, sender=chat)
        async with asyncio.timeout(ANSWER_SECONDS):
            while not any(each.chat == chat and ENDED.search(each.text) for each in network.sent[before:]):
                await asyncio.sleep(0.002)


async def serve() -> None:
    network = FakeTelegram()
    await network.start()
    print(json.dumps(network.config()), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        chats, times, words = line.strip().split(" ", 2)
        before = len(network.sent)
        await asyncio.gather(*(talk(network, str(FIRST + chat), int(times), words) for chat in range(int(chats))))
        print(len(network.sent) - before, flush=True)
    await network.stop()


if __name__ == "__main__":
    asyncio.run(serve())
