"""What a run had already done when its process died or the disk failed: read off the transcript. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from palinurus.agent.clients import is_clients
from palinurus.context.assemble import unanswered
from palinurus.context.view import Line, View
from palinurus.domain.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from palinurus.sessions.transcript import SENT

_TOO_LATE = AssistantMessage(
    (), stop_reason="error", error_message="the conversation went on before this could be answered"
)


def answered_before(view: View, run_id: str, asked: Collection[str] = ()) -> list[Message]:
    """The reply that this run had already been given, and the results behind it when it waits for its client.

    Nothing when it had been given none. `asked` are the tools that its client does.

    When the conversation has gone on since then it is too late for one.
    """
    if run_id not in view.said:
        return []
    at = next((index for index, line in enumerate(view.lines) if _holds(line, run_id)), None)
    if at is None and run_id in view.cut_runs:  # its words are in the summary, and the turn goes on behind it
        at = 0
    if at is None:  # it stands before a reset
        return [_TOO_LATE]
    own, went_on = _own([line.message for line in view.lines[at:] if SENT not in line.id])
    if own and isinstance(last := own[-1], AssistantMessage) and not last.calls:
        return [last]
    waiting = unanswered(own)
    if waiting and all(call.name in asked for call in waiting):
        at = max(index for index, message in enumerate(own) if isinstance(message, AssistantMessage))
        return own[at:]
    return [_TOO_LATE] if went_on else []


def calls_so_far(view: View, run_id: str) -> list[ToolCall]:
    """What the turn had called when it was cut off."""
    return [call for message in _since(view, run_id) if isinstance(message, AssistantMessage) for call in message.calls]


def results_so_far(view: View, run_id: str) -> list[str]:
    """What the turn had been shown by tools when it was cut off."""
    return [message.text for message in _since(view, run_id) if isinstance(message, ToolResult)]


def waiting_turn(view: View) -> list[Message]:
    """The turn at the end of the conversation, which its client goes on with; what was said into it included."""
    messages = [line.message for line in view.lines]
    for at in range(len(messages) - 1, 0, -1):
        if isinstance(messages[at], UserMessage) and not isinstance(messages[at - 1], ToolResult):
            return messages[at:]
    return messages


def _since(view: View, run_id: str) -> list[Message]:
    if run_id not in view.said and run_id not in view.cut_runs:
        return []
    known = 0 if run_id in view.cut_runs else len(view.lines)
    at = next((index for index, line in enumerate(view.lines) if _holds(line, run_id)), known)
    return [line.message for line in view.lines[at:]]


def _own(later: Sequence[Message]) -> tuple[list[Message], bool]:
    """What belongs to the turn that the first message opens, and whether another has followed.

    Who speaks right behind the results of all calls speaks into the turn; anybody else opens the next one, and so does
    the client that brings a result of its own.
    """
    own: list[Message] = []
    waiting: set[str] = set()
    for before, message in pairwise(later):
        if isinstance(message, UserMessage) and (waiting or not isinstance(before, ToolResult)):
            return own, True
        if isinstance(message, ToolResult) and is_clients(message):
            return own, True
        if isinstance(message, AssistantMessage):
            waiting = {call.id for call in message.calls}
        elif isinstance(message, ToolResult):
            waiting.discard(message.tool_call_id)
        own.append(message)
    return own, False


def _holds(line: Line, run_id: str) -> bool:
    return line.id == run_id or (isinstance(line.message, UserMessage) and run_id in line.message.also)
