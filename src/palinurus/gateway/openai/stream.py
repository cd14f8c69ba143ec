"""A run told while it goes on, as server-sent events; and one told at its end. Both notice when the client goes away.

What has piled up since the last write is one write. Nothing is written before there is something to say, so a run that
fails at once is told by its status, as OpenAI does; but a client never waits longer than a keep-alive for a sign.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from palinurus.dispatch.runs import Run
from palinurus.domain.events import AssistantDelta, Lifecycle, Notice, RunEvent, RunResult, ToolStarted
from palinurus.gateway.openai.asking import Asked
from palinurus.gateway.openai.troubles import Trouble, failure, of_result

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0
STALLED_SECONDS = 120.0  # a client that takes nothing for so long is gone
KEEP_ALIVE = b": keep-alive\n\n"
BREAK = "\n\n"


class Teller(Protocol):
    """How one endpoint tells a run. Each gives the bytes of its events."""

    def begin(self) -> bytes: ...

    def say(self, text: str) -> bytes: ...

    def end(self, result: RunResult) -> bytes: ...

    def fail(self, trouble: Trouble) -> bytes: ...


class Gone(Exception):
    """The client is not there any more."""


class Client:
    """Somebody who waits for an answer."""

    def __init__(self, receive: Receive) -> None:
        self._gone = False
        self._limit: asyncio.Timeout | None = None
        self._watching = asyncio.create_task(_leaves(receive))
        self._watching.add_done_callback(self._left)

    @contextmanager
    def _noticed(self, limit: asyncio.Timeout) -> Iterator[None]:
        if self._gone:
            raise Gone
        self._limit = limit
        try:
            yield
        finally:
            self._limit = None

    async def more(self, run: Run, after: int) -> Sequence[RunEvent] | None:
        """What has happened since; None when that is nothing for the time of a keep-alive. Raises Gone."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS) as limit:
                with self._noticed(limit):
                    return await run.more(after)
        except TimeoutError:
            if self._gone:
                raise Gone from None
            return None

    async def result(self, run: Run) -> RunResult:
        """Raises Gone."""
        try:
            async with asyncio.timeout(None) as limit:
                with self._noticed(limit):
                    return await run.wait()
        except TimeoutError:
            raise Gone from None

    def _left(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self._gone = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        self._watching.cancel()


async def _leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def finished(asked: Asked, receive: Receive) -> RunResult:
    """How a run came out, for a client that waits for all of it. Raises Gone."""
    if asked.run.result is not None:
        return asked.run.result
    client = Client(receive)
    try:
        return await client.result(asked.run)
    except Gone:
        _leave(asked)
        raise
    finally:
        client.close()


def _leave(asked: Asked) -> None:
    """Nobody reads on. What was asked in a lasting session goes on: its answer will be in the transcript."""
    if asked.abandoned:
        asked.run.stop.request("the client went away")


class Stream(Response):
    """Server-sent events of one run."""

    def __init__(self, asked: Asked, teller: Teller) -> None:
        self._asked = asked
        self._teller = teller
        self._begun = False  # whether anything was sent
        self._spoke = False
        self._break = ""  # what stands before the next words

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(receive)
        try:
            trouble = await self._tell(client, send)
            if trouble is not None:
                await failure(trouble, self._naming())(scope, receive, send)
        except (Gone, TimeoutError):
            _leave(self._asked)
        finally:
            client.close()

    async def _tell(self, client: Client, send: Send) -> Trouble | None:
        """Gives the trouble of a run that failed before a word was said."""
        run, at = self._asked.run, 0
        while True:
            news = await client.more(run, at)
            if news is None:
                await self._write(send, self._lead() + KEEP_ALIVE)
                continue
            at += len(news)
            told = self._words(news)
            if run.result is not None and _is_over(news):
                return await self._end(run.result, told, send)
            if told:
                await self._write(send, self._lead() + self._teller.say(told))

    async def _end(self, result: RunResult, told: str, send: Send) -> Trouble | None:
        trouble = of_result(result)
        if trouble is not None and not self._begun and not told:
            return trouble
        if not self._spoke and trouble is None:
            told, self._spoke = result.text, bool(result.text)  # a run that was over before: nobody kept its pieces
        said = self._lead() + (self._teller.say(told) if told else b"")
        last = self._teller.end(result) if trouble is None else self._teller.fail(trouble)
        await self._write(send, said + last, more=False)
        return None

    def _words(self, news: Sequence[RunEvent]) -> str:
        """The words in these events. What was said before a tool was called stands in a paragraph of its own."""
        pieces: list[str] = []
        for event in news:
            if isinstance(event, AssistantDelta):
                pieces += (self._break, event.text) if self._break else (event.text,)
                self._break, self._spoke = "", True
            elif isinstance(event, ToolStarted):
                self._break = BREAK if self._spoke else ""
            elif isinstance(event, Notice) and event.discard and self._spoke:
                self._break = f"{BREAK}[{event.text}]{BREAK}"  # what was sent cannot be taken back
        return "".join(pieces)

    def _lead(self) -> bytes:
        return b"" if self._begun else self._teller.begin()

    async def _write(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._begun:
            self._begun = True
            headers = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no", **self._naming()}
            await self._sent(send, {"type": "http.response.start", "status": 200, "headers": _raw(headers)})
        await self._sent(send, {"type": "http.response.body", "body": body, "more_body": more})

    async def _sent(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(STALLED_SECONDS):
            await send(message)

    def _naming(self) -> dict[str, str]:
        return {"x-request-id": self._asked.run.id}


def _is_over(news: Sequence[RunEvent]) -> bool:
    last = news[-1] if news else None
    return last is None or (isinstance(last, Lifecycle) and last.phase in ("end", "error", "aborted"))


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


class Nobody(Response):
    """For a client that has left: nothing is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        log.debug("a client of %s went away", scope.get("path"))
