"""Events of a run, and the exact plan of a tool call that a person is shown and approves."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from msgspec import Struct

from palinurus.domain.messages import ToolCall, Usage

Where = Literal["sandbox", "host", ""]


class Invocation(Struct, frozen=True, rename="camel"):
    """One program that a command would start.

    Both paths matter: several names may link to one program that acts by its name, and a name may later point to
    another program.
    """

    name: str  # as written
    binary: str  # path before following the last link; empty if not found
    resolved: str  # path after following links
    args: tuple[str, ...] = ()


class Plan(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a tool call will do. Of environment variables only the names are included: values may be secrets."""

    tool: str
    summary: str  # one line for a person, such as the command as written
    where: Where = ""
    argv: tuple[str, ...] = ()  # the program and its arguments; for a shell string: the shell and the string
    cwd: str = ""
    env: tuple[str, ...] = ()
    network: bool = False
    invocations: tuple[Invocation, ...] = ()  # all programs of a parsed command; empty if it could not be parsed
    patterns: tuple[str, ...] = ()  # the current matches of each file name pattern, as text
    arguments: dict[str, Any] = {}  # of tools other than exec

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class Lifecycle(Struct, frozen=True, tag_field="stream", tag="lifecycle", omit_defaults=True):
    phase: Literal["accepted", "start", "end", "error", "aborted"]
    detail: str = ""


class AssistantDelta(Struct, frozen=True, tag_field="stream", tag="assistant"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="stream", tag="thinking"):
    text: str


class Notice(Struct, frozen=True, tag_field="stream", tag="notice", omit_defaults=True):
    """One line about the run, for example that failover switched to another model.

    `discard`: the text streamed since the last tool call belongs to a failed attempt.
    """

    text: str
    discard: bool = False


class ModelCalled(Struct, frozen=True, tag_field="stream", tag="model.start"):
    """A model call starts; `model` is the first candidate."""

    provider: str
    model: str


class ModelAnswered(Struct, frozen=True, tag_field="stream", tag="model.end", rename="camel", omit_defaults=True):
    """A model call ended or failed: the last model tried, its duration and usage."""

    provider: str
    model: str
    seconds: float
    first_token: float | None = None  # seconds until the first text or thinking of the successful attempt
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
    where: Where = ""  # for tools that run commands


class ApprovalAsked(Struct, frozen=True, tag_field="stream", tag="approval.asked", rename="camel"):
    """The run waits for approval. Every surface may answer, by the id, until the deadline (milliseconds)."""

    id: str
    plan: Plan
    digest: str
    reason: str
    deadline: int
    sources: tuple[str, ...] = ()  # of the outside text that made approval necessary


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
    """How a run ended. Stored with the run, so that a repeated query returns the same result."""

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
    joined: str = ""  # the run that also answered this message; its reply is stored there
    footer: str = ""  # what `/usage` shows below the reply
    stop_reason: str = "stop"  # of the last reply; `length`: it was cut off
    calls: tuple[ToolCall, ...] = ()  # tool calls that the client must run; the client's results continue the run
