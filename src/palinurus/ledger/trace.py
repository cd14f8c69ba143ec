"""Traces: what a run did and when, with its waits, model calls, tool calls and approvals.

A trace is made from the run's events and holds no message text: that is in the transcript, and what tools did is in the
audit log. All times are milliseconds since the message was accepted. It is stored after the run ends; a crash loses
only the trace.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from palinurus.domain.errors import StorageError
from palinurus.domain.events import (
    ApprovalAsked,
    ApprovalSettled,
    Lifecycle,
    ModelAnswered,
    ModelCalled,
    Notice,
    RunEvent,
    RunResult,
    ToolFinished,
    ToolStarted,
)
from palinurus.domain.messages import Usage
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries

log = logging.getLogger(__name__)
declare_queries("traces", __file__)
KEPT = 5_000  # about a kilobyte each, 60 at most
Status = Literal["waiting", "running", "ok", "error", "aborted"]
MOST_STEPS = 200
MOST_NOTICES = 20  # of a run
LONGEST = 240  # characters of a line
LONGEST_NAME = 80


class ModelStep(Struct, frozen=True, tag_field="kind", tag="model", rename="camel", omit_defaults=True):
    """One model call, including its retries."""

    at: int
    provider: str
    model: str
    ms: int | None = None  # None: still running
    first_token: int | None = None  # after the call
    usage: Usage = Usage()
    stop_reason: str = ""
    error: str = ""  # domain/errors.py: Failure
    notices: tuple[str, ...] = ()  # retries and failovers, one line each


class ToolStep(Struct, frozen=True, tag_field="kind", tag="tool", rename="camel", omit_defaults=True):
    """One tool call, including the wait for approval."""

    at: int
    name: str
    ms: int | None = None
    where: str = ""  # domain/events.py: Where
    is_error: bool = False
    approval: str = ""  # outcome of the last approval; "waiting" while it is open
    approval_ms: int = 0  # spent waiting for approvals
    notices: tuple[str, ...] = ()


Step = ModelStep | ToolStep


class RunTrace(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One run. `started`: when its turn began, None before that; `ms`: total duration, up to now while it runs."""

    run_id: str
    session_key: str
    channel: str
    accepted_at: int  # milliseconds since 1970
    status: Status
    started: int | None = None
    ms: int = 0
    model: str = ""  # provider/model of the last reply
    usage: Usage = Usage()
    error: str = ""
    error_kind: str = ""
    joined: str = ""  # the run that also answered this message
    steps: tuple[Step, ...] = ()
    left_out: int = 0  # steps beyond MOST_STEPS


class RunLine(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A trace as one line of a list."""

    run_id: str
    session_key: str
    channel: str
    accepted_at: int
    status: Status
    started: int | None
    ms: int
    model: str
    usage: Usage
    model_calls: int
    tool_calls: int
    error: str = ""
    joined: str = ""


def line_of(trace: RunTrace) -> RunLine:
    models = sum(isinstance(step, ModelStep) for step in trace.steps)
    same = {field: getattr(trace, field) for field in RunLine.__struct_fields__ if field in RunTrace.__struct_fields__}
    return RunLine(**same, model_calls=models, tool_calls=len(trace.steps) - models)


class Collector:
    """Follows one run. Model and tool calls do not overlap within a run: at most one step is open."""

    def __init__(self, run_id: str, session_key: str, channel: str, accepted_at: int) -> None:
        self._trace = RunTrace(run_id, session_key, channel, accepted_at, "waiting")
        self._steps: list[Step] = []
        self._left_out = 0
        self._notices = 0
        self._open: Step | None = None
        self._asked_at = 0

    def hear(self, event: RunEvent, now: int) -> None:
        """Records an event at a time in milliseconds since 1970. Never raises."""
        at = max(0, now - self._trace.accepted_at)
        match event:
            case Lifecycle(phase="start", detail=detail):
                joined = detail.removeprefix("joined ") if detail.startswith("joined ") else ""
                self._trace = structs.replace(self._trace, status="running", started=at, joined=joined)
            case ModelCalled():
                self._begin(ModelStep(at, _name(event.provider), _name(event.model)))
            case ModelAnswered():
                self._answered(event, at)
            case ToolStarted():
                self._begin(ToolStep(at, _name(event.name)))
            case ToolFinished():
                self._finished(event, at)
            case ApprovalAsked() | ApprovalSettled():
                self._asked(event, at)
            case Notice():
                self._noticed(event.text)
            case _:
                pass

    def trace(self, now: int, result: RunResult | None = None) -> RunTrace:
        """The trace so far; with a result, as it is stored."""
        steps = (*self._steps, *((self._open,) if self._open is not None else ()))
        ms = max(0, now - self._trace.accepted_at)
        trace = structs.replace(self._trace, ms=ms, steps=steps, left_out=self._left_out)
        if result is None:
            return trace
        return structs.replace(
            trace,
            status=result.status,
            model=_name(result.model),
            usage=result.usage,
            error=_clip(result.error),
            error_kind=result.error_kind,
            joined=result.joined,
        )

    def _begin(self, step: Step) -> None:
        self._end(self._open)  # a step that never ended has no end time
        self._open = step

    def _end(self, step: Step | None) -> None:
        self._open = None
        if step is None:
            return
        if len(self._steps) < MOST_STEPS:
            self._steps.append(step)
        else:
            self._left_out += 1

    def _answered(self, event: ModelAnswered, at: int) -> None:
        step = self._open
        if not isinstance(step, ModelStep):
            step = ModelStep(max(0, at - round(event.seconds * 1000)), "", "")
        ended = structs.replace(
            step,
            provider=_name(event.provider),
            model=_name(event.model),
            ms=max(0, at - step.at),
            first_token=None if event.first_token is None else max(0, round(event.first_token * 1000)),
            usage=event.usage,
            stop_reason=event.stop_reason,
            error=event.error,
        )
        self._end(ended)

    def _finished(self, event: ToolFinished, at: int) -> None:
        """Ends a tool step. A skipped call was never started."""
        step = self._open if isinstance(self._open, ToolStep) else ToolStep(at, _name(event.name))
        self._end(structs.replace(step, ms=max(0, at - step.at), where=event.where, is_error=event.is_error))

    def _asked(self, event: ApprovalAsked | ApprovalSettled, at: int) -> None:
        step = self._open
        if not isinstance(step, ToolStep):
            return
        if isinstance(event, ApprovalAsked):
            self._asked_at = at
            self._open = structs.replace(step, approval="waiting")
        elif step.approval == "waiting":
            waited = step.approval_ms + max(0, at - self._asked_at)
            self._open = structs.replace(step, approval=event.status, approval_ms=waited)

    def _noticed(self, text: str) -> None:
        if self._open is not None and self._notices < MOST_NOTICES:
            self._notices += 1
            self._open = structs.replace(self._open, notices=(*self._open.notices, _clip(text)))


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RunTrace)


class TraceStore:
    """Stores the traces of the newest runs in the home's database; older ones are removed.

    They are written with the next commit.
    """

    def __init__(self, database: Database, *, kept: int = KEPT) -> None:
        self._database = database
        self._kept = kept
        self._noted: set[asyncio.Future[None]] = set()

    def note(self, trace: RunTrace) -> None:
        """Stores a trace, replacing an earlier one of the same run. Neither waits nor raises."""
        try:
            future = self._database.enqueue(lambda tx: self._keep(tx, trace))
        except StorageError as error:
            log.info("the trace of run %s was not stored: %s", trace.run_id, error)
            return
        self._noted.add(future)
        future.add_done_callback(self._was_noted)

    async def recent(self, *, limit: int, session: str = "", status: Status | None = None) -> list[RunTrace]:
        """Newest first, by end time. Includes what was noted before."""
        return await self._traces("traces.recent", limit=limit, session=session, status=status or "")

    async def find(self, beginning: str) -> list[RunTrace]:
        """At most two traces whose run id starts with `prefix`, in order."""
        return await self._traces("traces.beginning", beginning=beginning)

    def _keep(self, tx: Transaction, trace: RunTrace) -> None:
        """Runs on the writer thread, encoding included, so that the turn does not wait."""
        row = _encoder.encode(trace).decode()
        tx.run("traces.keep", run_id=trace.run_id, session_key=trace.session_key, status=trace.status, row=row)
        tx.run("traces.forget", kept=self._kept)

    def _was_noted(self, future: asyncio.Future[None]) -> None:
        self._noted.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            log.info("the trace of a run was not stored: %s", error)

    async def _traces(self, query: str, **values: Any) -> list[RunTrace]:
        if self._noted:
            await self._database.flush()

        def work(tx: Transaction) -> list[RunTrace]:
            return [trace for (row,) in tx.each(query, **values) if (trace := _read(row))]

        return await self._database.read(work)


def _read(row: str) -> RunTrace | None:
    """Decodes a trace; None if it cannot be read."""
    try:
        return _decoder.decode(row)
    except msgspec.DecodeError as error:
        log.info("a trace cannot be read: %s", error)
        return None


def _clip(text: str, longest: int = LONGEST) -> str:
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _name(text: str) -> str:
    """Clips a name, because a model may invent names of any length."""
    return text if len(text) <= LONGEST_NAME and text.isprintable() else _clip(text, LONGEST_NAME)
