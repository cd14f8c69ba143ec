"""The answer to a request: a run as server-sent events, or its result at the end. Both notice a disconnected client.

Everything since the last write is one write. Nothing is written before there is text, so that a run that fails at once
has an error status, as with OpenAI; but no client waits longer than a keep-alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, Protocol

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from palinurus.dispatch.runs import Run
from palinurus.domain.events import AssistantDelta, Lifecycle, Notice, RunEvent, RunResult, ToolStarted
from palinurus.extensions.openai_api.errors import ApiError, error_of_result, error_response
from palinurus.extensions.openai_api.reply_format import read_formed_reply
from palinurus.extensions.openai_api.run import StartedRun

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0
STALLED_SECONDS = 120.0  # a client that reads nothing for so long is disconnected
KEEP_ALIVE = b": keep-alive\n\n"
BREAK = "\n\n"


class RunWriter(Protocol):
    """How one endpoint writes a run: the bytes of its events, or all at once."""

    def begin(self) -> bytes: ...

    def say(self, text: str) -> bytes: ...

    def end(self, result: RunResult) -> bytes: ...

    def fail(self, error: ApiError) -> bytes: ...

    def refuse(self, error: ApiError) -> bytes:
        """The body of an answer with an error status: nothing was sent yet."""

    def whole(self, result: RunResult) -> dict[str, Any]: ...


class Disconnected(Exception):
    """The client has disconnected."""


class WaitingClient:
    """Waits for a run, until the client disconnects."""

    def __init__(self, receive: Receive) -> None:
        self._limit: asyncio.Timeout | None = None
        self._watch = asyncio.create_task(_wait_for_disconnect(receive))
        self._watch.add_done_callback(self._disconnected)

    async def more(self, run: Run, after: int) -> Sequence[RunEvent] | None:
        """The events since then; None when there are none for the time of a keep-alive. Raises Disconnected."""
        try:
            async with self._until(KEEP_ALIVE_SECONDS):
                return await run.more(after)
        except TimeoutError:
            return None

    async def result(self, run: Run) -> RunResult:
        """Raises Disconnected."""
        async with self._until(None):
            return await run.wait()

    @asynccontextmanager
    async def _until(self, seconds: float | None) -> AsyncIterator[None]:
        """Raises TimeoutError after so long, and Disconnected as soon as the client has gone."""
        if self._watch.done():
            raise Disconnected
        try:
            async with asyncio.timeout(seconds) as self._limit:
                yield
        except TimeoutError:
            if self._watch.done():
                raise Disconnected from None
            raise
        finally:
            self._limit = None

    def _disconnected(self, task: asyncio.Task[None]) -> None:
        if self._limit is not None and not task.cancelled():
            self._limit.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        self._watch.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def whole_answer(started: StartedRun, writer: RunWriter, request: Request) -> Response:
    """The response for a client that waits for the end of the run."""
    result = started.run.result
    if result is None:
        with closing(WaitingClient(request.receive)) as client:
            try:
                result = await client.result(started.run)
            except Disconnected:
                _stop_unread(started)
                return NoResponse()
    headers = {"x-request-id": started.run.id}
    result, error = _checked(started, result)
    if error is not None:
        return error_response(error, headers, writer.refuse)
    _remember(started, result, result.text)
    return Response(msgspec.json.encode(writer.whole(result)), 200, headers, media_type="application/json")


def _checked(started: StartedRun, result: RunResult) -> tuple[RunResult, ApiError | None]:
    """The result with its text in the requested form, or the error that the client gets instead."""
    error = error_of_result(result)
    if error or started.form is None or result.calls or result.error_kind or result.stop_reason == "length":
        return result, error
    try:
        text = read_formed_reply(started.form, result.text)
    except ApiError as refused:
        return result, refused
    return msgspec.structs.replace(result, text=text), None


def _remember(started: StartedRun, result: RunResult, text: str) -> None:
    """A conversation goes on after a reply. After open calls it goes on with their results."""
    if result.status == "ok" and not result.calls and text:
        started.on_reply(text)


def _stop_unread(started: StartedRun) -> None:
    """Stop the run of a client that has disconnected, unless its session lasts: then the transcript has the answer."""
    if started.stops_with_client:
        started.run.stop.request("the client disconnected")


class EventStream(Response):
    """Server-sent events of one run."""

    def __init__(self, started: StartedRun, writer: RunWriter) -> None:
        self._started = started
        self._writer = writer
        self._begun = False  # whether anything was sent
        self._has_text = False
        self._sent: list[str] = []
        self._break = ""  # before the next text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with closing(WaitingClient(receive)) as client:
            try:
                error = await self._stream(client, send)
                if error is not None:
                    await error_response(error, self._about, self._writer.refuse)(scope, receive, send)
            except (Disconnected, TimeoutError):
                _stop_unread(self._started)

    async def _stream(self, client: WaitingClient, send: Send) -> ApiError | None:
        """Returns the error of a run that failed before it had text."""
        run, at = self._started.run, 0
        while True:
            news = await client.more(run, at)
            if news is None:
                await self._write(send, self._lead() + KEEP_ALIVE)
                continue
            at += len(news)
            text = self._text(news)
            if run.result is not None and _is_over(news):
                return await self._end(run.result, text, send)
            if text:
                self._sent.append(text)
                await self._write(send, self._lead() + self._writer.say(text))

    async def _end(self, result: RunResult, text: str, send: Send) -> ApiError | None:
        result, error = _checked(self._started, result)
        if error is not None and not self._begun and not text:
            return error
        if not self._has_text and error is None:
            text, self._has_text = result.text, bool(result.text)  # a run that had ended before has no events
        _remember(self._started, result, "".join([*self._sent, text]))
        first = self._lead() + (self._writer.say(text) if text else b"")
        last = self._writer.end(result) if error is None else self._writer.fail(error)
        await self._write(send, first + last, more=False)
        return None

    def _text(self, news: Sequence[RunEvent]) -> str:
        """The text in these events. After a tool call a new paragraph begins."""
        pieces: list[str] = []
        if self._started.form is not None:
            return ""  # it is checked first
        for event in news:
            if isinstance(event, AssistantDelta):
                pieces += (self._break, event.text) if self._break else (event.text,)
                self._break, self._has_text = "", True
            elif isinstance(event, ToolStarted):
                self._break = BREAK if self._has_text else ""
            elif isinstance(event, Notice) and event.discard and self._has_text:
                self._break = f"{BREAK}[{event.text}]{BREAK}"  # text that was sent cannot be taken back
        return "".join(pieces)

    def _lead(self) -> bytes:
        return b"" if self._begun else self._writer.begin()

    async def _write(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(STALLED_SECONDS):
            if not self._begun:
                self._begun = True
                headers = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no", **self._about}
                await send({"type": "http.response.start", "status": 200, "headers": Headers(headers).raw})
            await send({"type": "http.response.body", "body": body, "more_body": more})

    @property
    def _about(self) -> dict[str, str]:
        return {"x-request-id": self._started.run.id}


def _is_over(news: Sequence[RunEvent]) -> bool:
    last = news[-1] if news else None
    return last is None or (isinstance(last, Lifecycle) and last.phase in ("end", "error", "aborted"))


class NoResponse(Response):
    """For a client that has disconnected: nothing is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        log.debug("a client of %s disconnected", scope.get("path"))
