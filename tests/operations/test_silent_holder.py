"""A holder that is stopped is as good as gone: nobody waits for it without limit (promise 10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from palinurus.domain.errors import HolderLost
from palinurus.operations.remote import Hello, HomeIdentity, RemoteCaller
from palinurus.operations.runs import WaitForRun, wait_for_run

HELLO = Hello(HomeIdentity("config", ""), 1, "pal test")


class FakeHolder:
    """Says hello, then answers nothing but pings, or nothing at all."""

    def __init__(self, *, answers_pings: bool) -> None:
        self._answers_pings = answers_pings
        self._left = asyncio.Event()
        self.pinged_often = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(msgspec.json.encode(HELLO) + b"\n")
        pings = 0
        while line := await reader.readline():
            pings += b'"ping"' in line
            if b'"ping"' in line and self._answers_pings:
                writer.write(b'{"id":0,"end":true}\n')
            if pings == 3:
                self.pinged_often.set()
        writer.close()
        await writer.wait_closed()
        self._left.set()

    @asynccontextmanager
    async def caller(self, path: Path) -> AsyncIterator[RemoteCaller]:
        server = await asyncio.start_unix_server(self.serve, path)
        caller = await RemoteCaller.connect(path, HELLO, quiet_seconds=0.05)
        yield caller
        await caller.close()
        await asyncio.wait_for(self._left.wait(), 60)
        server.close()


async def test_a_caller_of_a_holder_that_says_nothing_any_more_is_told_that_it_is_lost(tmp_path: Path) -> None:
    async with FakeHolder(answers_pings=False).caller(tmp_path / "s") as caller:
        with pytest.raises(HolderLost):
            await asyncio.wait_for(caller.call(wait_for_run, WaitForRun("run")), 60)


async def test_a_holder_that_answers_pings_may_take_its_time(tmp_path: Path) -> None:
    holder = FakeHolder(answers_pings=True)
    async with holder.caller(tmp_path / "s") as caller:
        waiting = asyncio.create_task(caller.call(wait_for_run, WaitForRun("run")))
        await asyncio.wait_for(holder.pinged_often.wait(), 60)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
