"""From stored messages to a request that no provider can refuse. Pure, and proves its own validity.

Every repair adds or drops whole messages by looking only at what stands before and directly after it, so the list
for a longer story begins with the list for the shorter one (promise 20), whatever was wrong with the story:

* a tool call has exactly one result, directly behind it: a missing one is made up as an error, a second one or one
  that comes too late is left out;
* user and assistant take turns: where two users or two assistants meet, a placeholder stands between them. Merging
  them would rewrite a message that was already sent. A user may speak directly behind tool results: that is steering.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage

NO_RESULT = "No result: the run was interrupted before this call finished. It may or may not have taken effect."
_NOBODY_ANSWERED = AssistantMessage((Text("(no reply)"),))
_GO_ON = UserMessage("(continue)")


def assemble(messages: Sequence[Message], *, epoch_start: int = 0) -> tuple[Message, ...]:
    """The message list to send. Notes on files that are older than the epoch's head are left out: it is newer."""
    out: list[Message] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        match message:
            case UserMessage():
                if out and isinstance(out[-1], UserMessage):
                    out.append(_NOBODY_ANSWERED)
                out.append(_without_old_files(message) if index <= epoch_start else message)
            case AssistantMessage():
                if not out or isinstance(out[-1], AssistantMessage):
                    out.append(_GO_ON)
                results: list[ToolResult] = []
                while index < len(messages) and isinstance(follower := messages[index], ToolResult):
                    results.append(follower)
                    index += 1
                out.extend(answered(message, results))
            case ToolResult():
                pass  # directly behind its call it was taken above; anywhere else it answers nothing
    return tuple(out)


def _without_old_files(message: UserMessage) -> UserMessage:
    if not any(note.kind == "file" for note in message.context):
        return message
    kept = tuple(note for note in message.context if note.kind != "file")
    return UserMessage(message.content, message.timestamp, message.origin, kept)


def answered(message: AssistantMessage, results: Sequence[ToolResult]) -> Iterable[Message]:
    """A reply, cleaned, with exactly one result behind it for each of its calls."""
    calls = {call.id: call for call in reversed(message.calls)}  # of two calls with one id, the first
    if len(calls) < len(message.calls) or not message.content or (not message.text and not calls):
        message = _cleaned(message, set(map(id, calls.values())))
    yield message
    by_call: dict[str, ToolResult] = {}
    for result in results:
        by_call.setdefault(result.tool_call_id, result)
    for call in message.calls:
        yield by_call.get(call.id) or _missing(call)


def _cleaned(message: AssistantMessage, kept_calls: set[int]) -> AssistantMessage:
    """Without doubled calls, and with words where there were none: no provider takes an empty message."""
    content = tuple(block for block in message.content if not isinstance(block, ToolCall) or id(block) in kept_calls)
    if not any(isinstance(block, ToolCall) or (isinstance(block, Text) and block.text) for block in content):
        content = (*content, Text(f"(no reply: {message.error_message or 'nothing was said'})"))
    return AssistantMessage(content, message.provider, message.model, message.api, stop_reason=message.stop_reason)


def unanswered(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls of the last reply that have no result yet; none when the story has gone on since."""
    has_result: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            calls = {call.id: call for call in reversed(message.calls)}
            return tuple(call for call in message.calls if calls[call.id] is call and call.id not in has_result)
        if isinstance(message, UserMessage):
            break
        has_result.add(message.tool_call_id)
    return ()


def _missing(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, NO_RESULT, is_error=True)


def violations(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse. Empty for everything that `assemble` makes."""
    wrong: list[str] = []
    waiting: list[str] = []
    previous: Message | None = None
    for index, message in enumerate(messages):
        if isinstance(message, ToolResult):
            if message.tool_call_id not in waiting:
                wrong.append(f"{index}: a result of {message.tool_call_id} that nobody waits for")
            else:
                waiting.remove(message.tool_call_id)
        else:
            if waiting:
                wrong.append(f"{index}: {waiting} have no result")
            waiting = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
            if len(set(waiting)) < len(waiting):
                wrong.append(f"{index}: two calls with one id")
            if isinstance(message, UserMessage) and isinstance(previous, UserMessage):
                wrong.append(f"{index}: nobody answered before the user spoke again")
            if isinstance(message, AssistantMessage) and isinstance(previous, AssistantMessage):
                wrong.append(f"{index}: two replies in a row")
        if index == 0 and not isinstance(message, UserMessage):
            wrong.append("0: the first message is not a user's")
        previous = message
    if waiting:
        wrong.append(f"end: {waiting} have no result")
    return wrong
