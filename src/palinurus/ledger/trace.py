"""What a run did and when: it waited, asked models, used tools, was asked about, and ended. Pure.

A trace is made of the run's own events and holds no words of anybody: what was said stands in the transcript, what was
done in the audit log. All times in it are milliseconds since the message was accepted. It is kept by the way, when the
run is over; a crash loses the trace and nothing else.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

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

Status = Literal["waiting", "running", "ok", "error", "aborted"]
STATUSES: tuple[Status, ...] = ("waiting", "running", "ok", "error", "aborted")
MOST_STEPS = 200
MOST_NOTICES = 20  # of a run
LONGEST = 240  # characters of a line
LONGEST_NAME = 80


class ModelStep(Struct, frozen=True, tag_field="kind", tag="model", rename="camel", omit_defaults=True):
    """One call of a model, its retries included."""

    at: int
    provider: str
    model: str
    ms: int | None = None  # None: it goes on
    first_token: int | None = None  # after the call
    usage: Usage = Usage()
    stop_reason: str = ""
    error: str = ""  # domain/errors.py: Failure
    notices: tuple[str, ...] = ()  # retries and failovers, one line each


class ToolStep(Struct, frozen=True, tag_field="kind", tag="tool", rename="camel", omit_defaults=True):
    """One call of a tool, the wait for a person included."""

    at: int
    name: str
    ms: int | None = None
    where: str = ""  # domain/plan.py: Where
    is_error: bool = False
    approval: str = ""  # how the last question came out; "waiting" while it is open
    approval_ms: int = 0  # spent on waiting for people
    notices: tuple[str, ...] = ()


Step = ModelStep | ToolStep


class RunTrace(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One run. `started`: when its turn came, None before that; `ms`: all of it, up to now while it goes on."""

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
    joined: str = ""  # the run whose turn answered this one too
    steps: tuple[Step, ...] = ()
    left_out: int = 0  # steps beyond MOST_STEPS


class RunLine(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A trace in one line of a list."""

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
    return RunLine(
        trace.run_id,
        trace.session_key,
        trace.channel,
        trace.accepted_at,
        trace.status,
        trace.started,
        trace.ms,
        trace.model,
        trace.usage,
        models,
        len(trace.steps) - models,
        trace.error,
        trace.joined,
    )


class Collector:
    """Follows one run. Calls of models and tools do not overlap within a run: at most one step is open."""

    def __init__(self, run_id: str, session_key: str, channel: str, accepted_at: int) -> None:
        self._trace = RunTrace(run_id, session_key, channel, accepted_at, "waiting")
        self._steps: list[Step] = []
        self._left_out = 0
        self._notices = 0
        self._open: Step | None = None
        self._asked_at = 0

    def hear(self, event: RunEvent, now: int) -> None:
        """What happened at this moment, in milliseconds since 1970. Never raises."""
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
        """All of it so far; with a result, as it is kept."""
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
        self._end(self._open)  # one that never ended: it stays without an end
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
        self._end(
            ModelStep(
                step.at,
                _name(event.provider),
                _name(event.model),
                max(0, at - step.at),
                None if event.first_token is None else max(0, round(event.first_token * 1000)),
                event.usage,
                event.stop_reason,
                event.error,
                step.notices,
            )
        )

    def _finished(self, event: ToolFinished, at: int) -> None:
        """A call that was skipped was never started."""
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


def _clip(text: str, longest: int = LONGEST) -> str:
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _name(text: str) -> str:
    """Names may be made up by a model."""
    return text if len(text) <= LONGEST_NAME and text.isprintable() else _clip(text, LONGEST_NAME)
