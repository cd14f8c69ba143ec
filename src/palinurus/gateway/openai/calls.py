"""Tools that a client does: what it offers, how a call is named to it, and which calls wait for its results.

The id of a call names the run that made it and its number (`call_<run>_0`), so a client that comes back with a result
leads us to the session in which the call is open, also after a restart, and whether or not it says who it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.agent.clients import CLIENTS
from palinurus.context.assemble import unanswered
from palinurus.dispatch.runs import Run
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.events import RunResult
from palinurus.domain.messages import Image, Origin, Text, ToolCall, ToolResult
from palinurus.domain.tool import MALFORMED, ToolSpec
from palinurus.gateway.openai.history import Line
from palinurus.gateway.openai.pictures import pictures
from palinurus.gateway.openai.shapes import ChatTool, ResponseTool
from palinurus.operations.house import House

MOST_TOOLS = 128
DEEPEST = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL = re.compile(r"call_([0-9a-f]{16})_(\d{1,4})")


class Answers(Struct, frozen=True):
    """Results of calls that wait for them."""

    run: Run  # which asked for them
    results: tuple[ToolResult, ...]


def call_id(run_id: str, number: int) -> str:
    return f"call_{run_id}_{number}"


def named_calls(result: RunResult) -> Iterator[tuple[str, ToolCall]]:
    """What the client is asked to do, under the ids that it is told."""
    return ((call_id(result.run_id, number), call) for number, call in enumerate(result.calls))


def arguments_of(call: ToolCall) -> str:
    """The arguments as JSON; or what the model sent instead, as its own client would get it."""
    if MALFORMED in call.arguments:
        return str(call.arguments[MALFORMED])
    return msgspec.json.encode(call.arguments).decode()


async def waiting_for(house: House, lines: Sequence[Line]) -> Answers | None:
    """What the conversation waits for, if these lines end with it. Raises BadRequest when only a part of it came."""
    came = {line.call_id: line for line in lines if line.role == "tool"}
    found = _CALL.fullmatch(_last_call(lines))
    run = await _find(house, found[1]) if found else None
    if run is None or run.result is None or not run.result.calls:
        return None
    view = await house.turns.view_of(run.key)
    if {call.id for call in unanswered([line.message for line in view.lines])} != {
        call.id for call in run.result.calls
    }:
        return None  # somebody has spoken since
    results = []
    for named, call in named_calls(run.result):
        if named not in came:
            raise BadRequest(f"the call {named} of {call.name} has no result", hint="send one for each call")
        results.append(await _result(call, came[named]))
    return Answers(run, tuple(results))


def _last_call(lines: Sequence[Line]) -> str:
    """The call whose result came last, unless a reply stands behind it."""
    for line in reversed(lines):
        if line.role != "user":
            return line.call_id
    return ""


async def _find(house: House, run_id: str) -> Run | None:
    try:
        return await house.dispatcher.find(run_id)
    except NotFound:
        return None


async def _result(call: ToolCall, line: Line) -> ToolResult:
    images = await pictures(line.pictures)
    content: str | tuple[Text | Image, ...] = (Text(line.text), *images) if images else line.text
    return ToolResult(call.id, call.name, content, origin=Origin.OUTSIDE, details=dict(CLIENTS))


def of_chat(tools: Iterable[ChatTool]) -> Iterator[ToolSpec]:
    for tool in tools:
        if tool.type != "function" or tool.function is None:
            raise _no_function(tool.type)
        yield _spec(tool.function.name, tool.function.description, tool.function.parameters)


def of_responses(tools: Iterable[ResponseTool]) -> Iterator[ToolSpec]:
    for tool in tools:
        if tool.type != "function":
            raise _no_function(tool.type)
        yield _spec(tool.name, tool.description, tool.parameters)


def _no_function(kind: str) -> BadRequest:
    return BadRequest(f"a tool of the type {kind[:40]!r} is not offered here", hint="tools of a client are functions")


def _spec(name: str, description: str | None, parameters: dict[str, Any] | None) -> ToolSpec:
    if not _NAME.fullmatch(name):
        raise BadRequest(f"not a name for a tool: {name[:80]!r}", hint="up to 64 letters, digits, - and _")
    if _is_deep(parameters):
        raise BadRequest(f"the parameters of {name} are nested more than {DEEPEST} deep", hint="make them simpler")
    return ToolSpec(name, description or "", {"type": "object", "properties": {}} | (parameters or {}))


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [item for each in inner for item in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return True


async def checked(house: House, agent: str, specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The client's tools, if none takes the name of another or of ours. Raises BadRequest."""
    found = tuple(specs)
    if not found:
        return ()
    if len(found) > MOST_TOOLS:
        raise BadRequest(f"{len(found)} tools in one request, and {MOST_TOOLS} is the limit", hint="send fewer")
    names = [spec.name for spec in found]
    if doubled := _twice(names):
        raise BadRequest(f"two tools are called {doubled}", hint="rename one of them")
    ours = {tool.spec.name for tool in await house.hands.tools(agent)}
    if taken := next((name for name in names if name in ours), ""):
        raise BadRequest(f"the agent has a tool called {taken} of its own", hint="give yours another name")
    return found


def _twice(names: Collection[str]) -> str:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), "")  # type: ignore[func-returns-value]
