"""Resumes a turn from the transcript: after a crash, or when its client returns the results of its tools.

What a run had done when its process died or the disk failed is read from the transcript.

A client may run some tools itself. A call of such a tool ends the turn with the call open. The client returns its
result, and the next turn continues from there; if it never does, assembly closes the call at the next message. The
result of a client's tool is outside text, whatever client sent it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from palinurus.agent.agent import TurnContext
from palinurus.agent.loop import TurnTools
from palinurus.context.assemble import TurnInput, unanswered
from palinurus.context.view import Line, View
from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import AssistantMessage, Message, Origin, ToolResult, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, ToolSpec
from palinurus.sessions.transcript import SENT
from palinurus.tools.registry import characters_for_window, clip_output

CLIENTS = {"by": "client"}
"""The details of a result that a client sent."""
CLIENT_SOURCE = "client"


class TurnToolset(Struct, frozen=True):
    """The tools of a turn: the runner of ours, the specs of all, and which of them the client runs."""

    runner: TurnTools
    specs: tuple[ToolSpec, ...]
    client: frozenset[str]


def offer_tools(runner: TurnTools, theirs: Sequence[ToolSpec]) -> TurnToolset:
    """Our tools and the client's, sorted by name. The client's take precedence: ours of the same name is not offered.

    A call is the client's by its name, so ours never runs what was meant for the client.
    """
    own = runner.specs()
    added = {spec.name: spec for spec in theirs}
    if not added:
        return TurnToolset(runner, own, frozenset())
    specs = (*(spec for spec in own if spec.name not in added), *added.values())
    return TurnToolset(runner, tuple(sorted(specs, key=lambda spec: spec.name)), frozenset(added))


async def take_results(turn: TurnContext, message: TurnInput, view: View, now: int) -> TurnInput:
    """The message with the results that the client brings as stored: cut to what the model can use, and marked.

    Raises BadRequest if no call waits for any of them.
    """
    earlier, results = message.inbound.earlier, message.inbound.results
    if not earlier and not results:
        return message
    waiting = {call.id for call in unanswered([line.message for line in view.lines])}
    late = results and not any(result.tool_call_id in waiting for result in results)
    if late and message.run_id not in view.stored_ids:
        raise BadRequest("the session continued before the results of these calls came", hint="ask again")
    limit = characters_for_window(turn.window)
    run = ToolRun(turn.key, turn.run_id, turn.key.is_private, max_characters=limit)
    stored = tuple([await _stored(result, run, turn, now) for result in results])
    before = tuple([await _stored(each, run, turn, now) if isinstance(each, ToolResult) else each for each in earlier])
    return msgspec.structs.replace(
        message, inbound=msgspec.structs.replace(message.inbound, earlier=before, results=stored)
    )


async def _stored(result: ToolResult, run: ToolRun, turn: TurnContext, now: int) -> ToolResult:
    cut = await clip_output(run, result.tool_name, ToolOutput(result.content), outside=True)
    by = Origin.OUTSIDE, dict(CLIENTS), (CLIENT_SOURCE,)
    stored = ToolResult(result.tool_call_id, result.tool_name, cut.content, result.is_error, now, *by)
    return stored if turn.agent.skills is None else turn.agent.skills.marked(stored)


_TOO_LATE = AssistantMessage(
    (), stop_reason="error", error_message="the conversation went on before this could be answered"
)


def earlier_reply(view: View, run_id: str, client_tools: Collection[str] = ()) -> list[Message]:
    """The reply that this run already has, and the results after it if it waits for its client.

    None if it has none. `client_tools`: names of the client's tools. If the session has continued since then, it is too
    late for a reply, and a reply that says so is returned.
    """
    if run_id not in view.stored_ids:
        return []
    at = next((index for index, line in enumerate(view.lines) if _holds(line, run_id)), None)
    if at is None and run_id in view.cut_runs:  # its text is in the summary, and the turn continues after it
        at = 0
    if at is None:  # it is before a reset
        return [_TOO_LATE]
    own, went_on = _own([line.message for line in view.lines[at:] if SENT not in line.id])
    if own and isinstance(last := own[-1], AssistantMessage) and not last.calls:
        return [last]
    waiting = unanswered(own)
    if waiting and all(call.name in client_tools for call in waiting):
        at = max(index for index, message in enumerate(own) if isinstance(message, AssistantMessage))
        return own[at:]
    return [_TOO_LATE] if went_on else []


def waiting_turn(view: View) -> list[Message]:
    """The turn at the end of the session that its client continues, including messages that joined it."""
    messages = [line.message for line in view.lines]
    for at in range(len(messages) - 1, 0, -1):
        if isinstance(messages[at], UserMessage) and not isinstance(messages[at - 1], ToolResult):
            return messages[at:]
    return messages


def turn_so_far(view: View, run_id: str) -> list[Message]:
    """The messages of the turn before it was interrupted."""
    if run_id not in view.stored_ids and run_id not in view.cut_runs:
        return []
    known = 0 if run_id in view.cut_runs else len(view.lines)
    at = next((index for index, line in enumerate(view.lines) if _holds(line, run_id)), known)
    return [line.message for line in view.lines[at:]]


def _own(later: Sequence[Message]) -> tuple[list[Message], bool]:
    """The messages of the turn that the first one opens, and whether another turn has followed.

    A message directly after the results of all calls joins the turn; any other opens the next one, and so does a client
    that returns a result.
    """
    own: list[Message] = []
    waiting: set[str] = set()
    for before, message in pairwise(later):
        if isinstance(message, UserMessage) and (waiting or not isinstance(before, ToolResult)):
            return own, True
        if isinstance(message, ToolResult) and (message.details or {}).get("by") == "client":
            return own, True
        if isinstance(message, AssistantMessage):
            waiting = {call.id for call in message.calls}
        elif isinstance(message, ToolResult):
            waiting.discard(message.tool_call_id)
        own.append(message)
    return own, False


def _holds(line: Line, run_id: str) -> bool:
    return line.id == run_id or (isinstance(line.message, UserMessage) and run_id in line.message.also)
