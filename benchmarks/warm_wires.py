"""How much CPU the wires spend on deltas: whole replies of many small pieces, from the socket to our events.

The model is the loopback one, in a process of its own, so that only our side of the wire is counted. It sends as fast
as it can: what is measured is parsing, not waiting.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from benchmarks import warm
from benchmarks.model import DELTAS
from palinurus.domain.clock import SystemClock
from palinurus.domain.messages import UserMessage
from palinurus.providers.provider import Head, ModelRequest, Provider, ReplyDone, TextDelta
from palinurus.providers.wires.anthropic import AnthropicProvider
from palinurus.providers.wires.google import GoogleProvider
from palinurus.providers.wires.openai import OpenAIProvider

WIRES: dict[str, Callable[..., Provider]] = {
    "openai": OpenAIProvider,
    "anthropic": AnthropicProvider,
    "google": GoogleProvider,
}
PIECES = 10_000


async def _reply(provider: Provider) -> float:
    """Milliseconds of CPU for PIECES deltas."""
    request = ModelRequest("test", Head(""), (UserMessage(f"{DELTAS}{PIECES}"),))
    began = time.process_time_ns()
    deltas = 0
    last: object = None
    async for event in provider.stream(request):
        deltas += isinstance(event, TextDelta)
        last = event
    spent = (time.process_time_ns() - began) / 1e6
    if not isinstance(last, ReplyDone) or deltas < PIECES:
        raise SystemExit(f"{provider.name}: {deltas} deltas arrived, then {last!r:.200}")
    return spent


def main() -> None:
    loop = asyncio.new_event_loop()
    clock, base_url = SystemClock(), os.environ["BENCH_MODEL"]
    opened = {name: wire(name, base_url, None, windows={}, clock=clock) for name, wire in WIRES.items()}

    async def batch(rounds: int) -> list[dict[str, float]]:
        return [{name: await _reply(provider) for name, provider in opened.items()} for _ in range(rounds)]

    warm.answer(warm.run_in(loop, batch))
    for provider in opened.values():
        loop.run_until_complete(provider.close())
    loop.close()


if __name__ == "__main__":
    main()
