"""The loopback model: answers at once, and its answer is the moment at which it begins to answer.

The clock is the monotonic one of the machine, which all its processes share, so whoever asked can subtract.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
from tests.support.wire import Behaviour, Json, Says, WireServer

DELTAS = "deltas wanted: "
_WANTED = re.compile(rf"{DELTAS}(\d+)")
_TURN = re.compile(r"turn (\d+) of session (\w+)")


def _arrived(body: Json) -> Behaviour:
    text = msgspec.json.encode(body).decode()
    if shown := _TURN.findall(text):
        return Says(f"turns {' '.join(number for number, _ in shown)} of session {shown[-1][1]}")
    if wanted := _WANTED.search(text):
        pieces = int(wanted[1])
        return Says("word " * (pieces - 1) + "word.", chunks=pieces)
    return Says(f"arrived {time.monotonic_ns()}")


async def _serve() -> None:
    async with WireServer(otherwise=_arrived, models=("test",)) as server:
        print(server.base_url, flush=True)
        await asyncio.Event().wait()


@contextlib.contextmanager
def loopback_model() -> Iterator[str]:
    """Its base URL, while it runs in a process of its own."""
    with subprocess.Popen([sys.executable, "-m", "benchmarks.model"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_serve())
