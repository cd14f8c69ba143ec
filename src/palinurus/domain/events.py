"""Events of a run, and the exact plan of a tool call that a person is shown and approves.

A plan is shown line by line, the same on every surface. The person must see everything that will happen: omissions are
marked, and characters that are invisible or change the text direction are written as escapes.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator
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
    status: str  # tools/approval.py: Status
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


MOST_SHOWN = 20_000  # characters of one command or argument
MOST_BLANKS = 16  # more consecutive spaces could push the rest out of sight

# Blank or zero-width although their category does not say so: fillers, joiners, variation selectors.
_BLANKS = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_RUN = re.compile(f" {{{MOST_BLANKS + 1},}}")
_PLACES = {"sandbox": "in the sandbox", "host": "on this machine, outside the sandbox", "": ""}
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})


def visible(text: str) -> str:
    """Returns the text as one line in which every character is visible."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(char if _is_seen(char) else _escaped(char) for char in text)
    return _RUN.sub(lambda found: f" [{len(found[0])} spaces] ", text)


def render_plan(plan: Plan) -> list[str]:
    """Describes what will be done, where and with which programs, one label per line."""
    lines = list(_render_action(plan))
    where = [part for part in (_PLACES[plan.where], "with the network" if plan.network else "") if part]
    if where:
        lines.append(f"where     {', '.join(where)}")
    if plan.cwd:
        lines.append(f"folder    {visible(plan.cwd)}")
    lines += (f"files     {visible(each)}" for each in plan.patterns)
    if plan.argv and not plan.invocations:
        lines.append("programs  not understood: it may start any program")
    lines += dict.fromkeys(f"program   {_program(each)}" for each in plan.invocations)  # each once
    if plan.env:
        lines.append(f"variables {', '.join(map(visible, plan.env))}")
    return lines


def without_secrets(plan: Plan, redact: Callable[[str], str]) -> Plan:
    """Returns the plan without secrets, as it is stored and shown. Its digest differs if something was removed."""
    return msgspec.convert(_cleaned(msgspec.to_builtins(plan), redact), Plan)


def _cleaned(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _cleaned(item, redact) for key, item in value.items()}
    return [_cleaned(item, redact) for item in value] if isinstance(value, list | tuple) else value


def _render_action(plan: Plan) -> Iterator[str]:
    argv = plan.argv
    if len(argv) == 3 and argv[1] in ("-c", "-lc", "-ec") and argv[0].rpartition("/")[2] in _SHELLS:
        yield from _lines("command", argv[2])
        yield f"shell     {visible(shlex.join(argv[:2]))}"
    else:
        yield from _lines("command" if argv else "call", plan.summary)
        if argv and not _says(plan.summary, argv):
            yield from _lines("words", shlex.join(argv))
    for name in sorted(plan.arguments):
        value = plan.arguments[name]
        yield from _lines(visible(name), value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _says(summary: str, argv: tuple[str, ...]) -> bool:
    """Whether the summary shows the complete command. In a pipeline the operators count as words."""
    try:
        return tuple(shlex.split(summary)) == argv
    except ValueError:
        return False


def _lines(label: str, text: str) -> Iterator[str]:
    """Puts a bar before each line of a multi-line text, so that no line can look like the end of the plan."""
    left_out = len(text) - MOST_SHOWN
    if left_out > 0:
        yield f"{label:<9} ATTENTION: {left_out:,} characters in the middle are not shown; --json shows all"
        text = f"{text[: MOST_SHOWN // 2]}\n{text[-MOST_SHOWN // 2 :]}"
    first, *others = text.split("\n")
    if not others:
        yield f"{label:<9} {visible(first)}"
        return
    if left_out <= 0:
        yield f"{label:<9} {len(others) + 1} lines"
    yield from (f"  | {visible(line)}" for line in (first, *others))


def _program(invocation: Invocation) -> str:
    if not invocation.binary:
        return f"{visible(invocation.name)} (not found)"
    same = invocation.resolved == invocation.binary
    return visible(invocation.binary) + ("" if same else f" -> {visible(invocation.resolved)}")


def _is_seen(char: str) -> bool:
    return char == " " or (unicodedata.category(char) not in _UNSEEN and not _BLANKS.match(char))


def _escaped(char: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    return named or (f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
