"""What happens during a run, as it happens. Every door shows the same events."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from palinurus.domain.messages import ToolCall, Usage
from palinurus.domain.plan import Plan, Where


class Lifecycle(Struct, frozen=True, tag_field="stream", tag="lifecycle", omit_defaults=True):
    phase: Literal["accepted", "start", "end", "error", "aborted"]
    detail: str = ""


class AssistantDelta(Struct, frozen=True, tag_field="stream", tag="assistant"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="stream", tag="thinking"):
    text: str


class Notice(Struct, frozen=True, tag_field="stream", tag="notice", omit_defaults=True):
    """One line about the run, such as that another model goes on with it.

    `discard`: the text streamed since the last tool call belongs to an attempt that was given up.
    """

    text: str
    discard: bool = False


class ModelCalled(Struct, frozen=True, tag_field="stream", tag="model.start"):
    """A model is asked: the one that comes first in line."""

    provider: str
    model: str


class ModelAnswered(Struct, frozen=True, tag_field="stream", tag="model.end", rename="camel", omit_defaults=True):
    """A model call has ended, well or badly: who was asked last, how long it took, what it used."""

    provider: str
    model: str
    seconds: float
    first_token: float | None = None  # seconds until the first word or thought of the attempt that counted
    usage: Usage = Usage()
    stop_reason: str = "stop"
    error: str = ""  # domain/errors.py: Failure


class ToolStarted(Struct, frozen=True, tag_field="stream", tag="tool.start"):
    id: str
    name: str
    arguments: dict[str, Any]


class ToolFinished(Struct, frozen=True, tag_field="stream", tag="tool.end", omit_defaults=True):
    id: str
    name: str
    text: str
    is_error: bool
    seconds: float
    where: Where = ""  # for what runs commands


class ApprovalAsked(Struct, frozen=True, tag_field="stream", tag="approval.asked", rename="camel"):
    """The run waits for a person. Any door may answer, by the id, until the deadline (milliseconds)."""

    id: str
    plan: Plan
    digest: str
    reason: str
    deadline: int
    sources: tuple[str, ...] = ()  # of the text from outside because of which it is asked


class ApprovalSettled(Struct, frozen=True, tag_field="stream", tag="approval.settled", rename="camel"):
    id: str
    status: str  # tools/approvals/approval.py: Status
    by: str = ""


RunEvent = (
    Lifecycle
    | AssistantDelta
    | ThinkingDelta
    | Notice
    | ModelCalled
    | ModelAnswered
    | ToolStarted
    | ToolFinished
    | ApprovalAsked
    | ApprovalSettled
)


class RunResult(Struct, frozen=True, rename="camel", omit_defaults=False):
    """How a run ended. Kept with the run's row, so that asking again gives the same answer."""

    run_id: str
    session_key: str
    session_id: str
    status: Literal["ok", "error", "aborted"]
    text: str = ""
    model: str = ""
    usage: Usage = Usage()
    error: str = ""
    error_kind: str = ""
    duration_ms: int = 0
    joined: str = ""  # the run whose turn answered this one too: its text stands there already
    footer: str = ""  # what `/usage` asks to be shown below the reply
    stop_reason: str = "stop"  # of the last reply; `length`: it was cut off
    calls: tuple[ToolCall, ...] = ()  # what the model asks its client to do; the client's results go on from here
