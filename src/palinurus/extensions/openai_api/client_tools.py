"""Tools that the client runs itself: which it offers, the ids of their calls, the calls that wait for results, and a
history with calls as entries of a transcript.

The id of a call contains the run and a number (`call_<run>_0`), so a result leads to the session in which the call is
open, even after a restart and when the client does not name the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.agent.resume import CLIENT_SOURCE, CLIENTS
from palinurus.context.assemble import unanswered
from palinurus.dispatch.runs import Run
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.events import RunResult
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Image,
    Message,
    Origin,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.domain.tool import MALFORMED, ToolSpec
from palinurus.extensions.openai_api.messages import ChatTool, ClientCall, ClientMessage, ResponseTool
from palinurus.extensions.openai_api.pictures import read_pictures
from palinurus.operations.services import Services

MOST_TOOLS = 128
MAX_DEPTH = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL = re.compile(r"call_([0-9a-f]{16})_(\d{1,4})")


class ToolAnswers(Struct, frozen=True):
    """Results of open tool calls."""

    run: Run  # which made the calls
    results: tuple[ToolResult, ...]


def named_calls(result: RunResult) -> Iterator[tuple[str, ToolCall]]:
    """The calls for the client, with the ids that it sees."""
    return ((f"call_{result.run_id}_{number}", call) for number, call in enumerate(result.calls))


def arguments_of(call: ToolCall) -> str:
    """The arguments as JSON, or what the model sent instead of JSON."""
    if MALFORMED in call.arguments:
        return str(call.arguments[MALFORMED])
    return msgspec.json.encode(call.arguments).decode()


async def find_answers(services: Services, messages: Sequence[ClientMessage]) -> ToolAnswers | None:
    """The results of the open calls, if the messages end with them. Raises BadRequest when some are missing."""
    sent = {message.call_id: message for message in messages if message.role == "tool"}
    found = _CALL.fullmatch(_last_call(messages))
    run = await find_run(services, found[1]) if found else None
    if run is None or run.result is None or not run.result.calls:
        return None
    view = await services.turns.history.view_of(run.key)
    open_calls = {call.id for call in unanswered([line.message for line in view.lines])}
    if open_calls != {call.id for call in run.result.calls}:
        return None  # there was another message since
    results = []
    for call_id, call in named_calls(run.result):
        if call_id not in sent:
            raise BadRequest(f"the call {call_id} of {call.name} has no result", hint="send one for each call")
        results.append(await _result(services, call, sent[call_id]))
    return ToolAnswers(run, tuple(results))


def _last_call(messages: Sequence[ClientMessage]) -> str:
    """The call with the last result, unless a reply follows it."""
    return next((message.call_id for message in reversed(messages) if message.role != "user"), "")


async def find_run(services: Services, run_id: str) -> Run | None:
    try:
        return await services.dispatcher.find(run_id)
    except NotFound:
        return None


async def _result(services: Services, call: ToolCall, message: ClientMessage) -> ToolResult:
    images = await read_pictures(services, message.pictures)
    content: str | tuple[Text | Image, ...] = (Text(message.text), *images) if images else message.text
    return ToolResult(call.id, call.name, content, message.is_error, origin=Origin.OUTSIDE, details=dict(CLIENTS))


def entries_of(
    said: Sequence[ClientMessage], pictures: Iterator[Image], now: int
) -> tuple[tuple[Message, ...], tuple[ContextNote, ...]]:
    """The messages as those of a transcript, and notes for the next: results of calls that are not there.

    `pictures`: those of all messages, in their order.
    """
    entries: list[Message | list[Text | ToolCall]] = []  # a reply as its parts: some formats send them one by one
    notes: list[ContextNote] = []
    open_calls: set[str] = set()
    for at, each in enumerate(said):
        shown = tuple(islice(pictures, len(each.pictures)))
        text = (Text(each.text),) if each.text.strip() else ()
        if each.role == "assistant":
            if not entries or not isinstance(reply := entries[-1], list):
                reply, open_calls = [], set()
                entries.append(reply)
            calls = [_call_block(call, at) for call in each.calls]
            reply += [*text, *calls]
            open_calls.update(call.id for call in calls if isinstance(call, ToolCall))
        elif each.role == "tool" and each.call_id in open_calls:
            result = (*text, *shown) if shown else each.text
            outside = Origin.OUTSIDE, None, (CLIENT_SOURCE,)
            entries.append(ToolResult(each.call_id, each.name, result, each.is_error, now, *outside))
        elif each.role == "tool":
            labelled = " ".join((f"Tool:{each.name}:", each.text, *("[picture]" for _ in shown)))
            notes.append(ContextNote("history", labelled, origin=Origin.OUTSIDE, sources=(CLIENT_SOURCE,)))
        else:
            entries.append(UserMessage((*text, *shown), now, context=tuple(notes)))
            open_calls, notes = set(), []
    whole = (AssistantMessage(tuple(each), timestamp=now) if isinstance(each, list) else each for each in entries)
    return tuple(whole), tuple(notes)


def _call_block(call: ClientCall, at: int) -> ToolCall | Text:
    """A call that no provider would take is told as text."""
    if not _NAME.fullmatch(call.name):
        return Text(f"[called {call.text}]")
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or is_deep(arguments):
        arguments = {MALFORMED: call.arguments}
    return ToolCall(call.id or f"call-{at}-{call.name}", call.name, arguments)


def read_tools(tools: Iterable[ChatTool | ResponseTool]) -> Iterator[ToolSpec]:
    """Raises BadRequest for a tool that is not a function, or that a model cannot use."""
    for tool in tools:
        function = tool.function if isinstance(tool, ChatTool) else tool
        if tool.type != "function" or function is None:
            raise BadRequest(f"tools of the type {tool.type[:40]!r} are not supported", hint="use functions")
        name, parameters = function.name, function.parameters
        if not _NAME.fullmatch(name):
            raise BadRequest(f"not a tool name: {name[:80]!r}", hint="up to 64 letters, digits, - and _")
        if is_deep(parameters):
            why = f"the parameters of {name} are nested more than {MAX_DEPTH} deep"
            raise BadRequest(why, hint="use a simpler schema")
        schema = {"type": "object", "properties": {}} | (parameters or {})
        yield ToolSpec(name, function.description or "", schema)


def is_deep(value: Any) -> bool:
    """Whether JSON is nested more than MAX_DEPTH deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [item for each in inner for item in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return True


def check_tools(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The client's tools. Raises BadRequest when there are too many, or two have one name."""
    found = tuple(specs)
    if len(found) > MOST_TOOLS:
        raise BadRequest(f"{len(found)} tools in one request; the limit is {MOST_TOOLS}", hint="send fewer")
    names = [spec.name for spec in found]
    if doubled := next((name for name in names if names.count(name) > 1), ""):
        raise BadRequest(f"two tools have the name {doubled}", hint="rename one of them")
    return found
