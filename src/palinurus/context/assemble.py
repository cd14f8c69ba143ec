"""Builds a valid request from stored messages. Pure, and checks its own result.

`open_turn` decides what a new message adds to the transcript (whether the epoch continues, which notes the newest
message gets) and what exactly is sent. Files, rows and the time are arguments. All notes are stored with their message
(promise 20) and never count as user text.

`assemble` repairs stored messages. Every repair adds or drops whole messages by looking only at what is before and
directly after it, so the list for a longer session begins with the list for the shorter one (promise 20):

A tool call has exactly one result, directly after it: a missing one is added as an error, a second or late one is left
out.

User and assistant alternate: between two users or two assistants a placeholder is added. Merging them would rewrite a
message that was already sent. A user message may directly follow tool results: that is steering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from palinurus.context.epoch import BOOTSTRAPPED, EPOCH, Epoch, Route, reason_for_new
from palinurus.context.prompt import ContextSettings, PromptPart, PromptSettings, shown_file, system_prompt
from palinurus.context.view import View
from palinurus.domain.clock import time_text
from palinurus.domain.envelope import Inbound
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Message,
    Origin,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.journal import Journal
from palinurus.sessions.transcript import Entry, MessageEntry
from palinurus.workspace.files import BootstrapFile

SKILLS = "Skills"  # the name of the skill list among the file names
NO_RESULT = "No result: the run was interrupted before this call finished. It may or may not have taken effect."
_NOBODY_ANSWERED = AssistantMessage((Text("(no reply)"),))
_GO_ON = UserMessage("(continue)")


class RequestParts(Struct, frozen=True):
    """Everything outside the transcript that a request is made of."""

    files: tuple[BootstrapFile, ...]
    tools: tuple[ToolSpec, ...]
    route: Route
    now: datetime
    heartbeat: BootstrapFile | None = None  # HEARTBEAT.md, in heartbeat runs
    skills: BootstrapFile | None = None  # the list of skills, if offered
    runtime: str = ""  # the runtime in one line
    hooked: tuple[str, ...] = ()  # names of files that hooks have added, replaced or removed

    def prompt(self, settings: PromptSettings) -> tuple[str, tuple[PromptPart, ...]]:
        """The system prompt, and the cost of each part."""
        route = f"model={self.route.provider}/{self.route.model} | thinking={self.route.thinking}"
        runtime = f"{self.runtime} | {route}" if self.runtime else ""
        return system_prompt(settings, self.tools, self.files, self.skills, runtime)


class TurnInput(Struct, frozen=True):
    """The input of a turn: one message, or several that arrived together."""

    run_id: str
    inbound: Inbound
    also: tuple[str, ...] = ()  # other runs whose text is in the message
    notes: tuple[ContextNote, ...] = ()
    thinking: str = ""  # for this message only


class TurnOpening(Struct, frozen=True):
    entries: tuple[Entry, ...]
    request: ModelRequest
    epoch: Epoch
    first_of_epoch: bool


def open_turn(
    view: View, parts: RequestParts, settings: ContextSettings, journal: Journal, message: TurnInput
) -> TurnOpening:
    """Continues the session with this message, or resumes the turn if the message is stored already."""
    entries: list[Entry] = []
    epoch, epoch_start = view.epoch, view.epoch_start
    reason = reason_for_new(epoch, parts.route, settings.fingerprint, parts.tools)
    if epoch is None or reason:
        fresh = new_epoch(view.reason if epoch is None else reason, parts, settings)
        # Without the secrets in workspace files: the head is stored and sent like any message.
        epoch = msgspec.structs.replace(fresh, system=journal.clean(Text(fresh.system)).text)
        epoch_start = len(view.lines)
        entries.append(journal.custom(EPOCH, msgspec.to_builtins(epoch)))
    messages: list[Message] = [line.message for line in view.lines]
    if message.run_id not in view.stored_ids:
        notes = _context_notes(view, epoch.files if reason else view.shown_files, parts, settings, message)
        added = input_entries(message, parts.now, journal, notes, twelve_hours=settings.twelve_hours)
        entries += added
        messages += [entry.message for entry in added]
    request = ModelRequest(
        model=parts.route.model,
        head=epoch.head,
        messages=assemble(messages, epoch_start=epoch_start),
        thinking=parts.route.thinking,
    )
    return TurnOpening(tuple(entries), request, epoch, first_of_epoch=not view.bootstrapped or bool(reason))


def _context_notes(
    view: View, shown: Mapping[str, str], parts: RequestParts, settings: ContextSettings, message: TurnInput
) -> tuple[ContextNote, ...]:
    """The notes of the newest message. `shown`: digests of the files as the model has last read them."""
    with_files = settings.injection == "always" or (settings.injection != "never" and not view.bootstrapped)
    return (
        *_skill_notes(shown, parts.skills),
        *(_file_notes(shown, parts.files, settings.prompt) if with_files and settings.prompt.inject else ()),
        *_heartbeat_notes(parts.heartbeat, settings.prompt),
        *message.notes,
        *(note for note in message.inbound.notes if not note.digest or note.digest != _last_digest(view, note)),
    )


def new_epoch(reason: str, parts: RequestParts, settings: ContextSettings) -> Epoch:
    system, _ = parts.prompt(settings.prompt)
    shown = (*((parts.skills,) if parts.skills else ()), *(parts.files if settings.prompt.inject else ()))
    files = {file.name: file.digest for file in shown}
    return Epoch(reason, parts.route, settings.fingerprint, system, parts.tools, files, parts.hooked)


def closing_entries(journal: Journal, opening: TurnOpening) -> tuple[Entry, ...]:
    """The entries at the end of a successful turn: the mark that a model has read the whole head."""
    return (journal.custom(BOOTSTRAPPED),) if opening.first_of_epoch else ()


def input_entries(
    message: TurnInput,
    now: datetime,
    journal: Journal,
    notes: tuple[ContextNote, ...] = (),
    *,
    twelve_hours: bool = False,
) -> list[MessageEntry]:
    """The input as stored entries: what was said before, results, then the message. The last has the run's id.

    Without a message there are no notes either: they are sent with the next one.
    """
    inbound, run_id = message.inbound, message.run_id
    messages: list[Message] = [*inbound.earlier, *inbound.results]
    if inbound.text or inbound.images or not inbound.results:
        messages.append(user_message(message, now, notes, twelve_hours=twelve_hours))
    ids = [*(f"{run_id}-{number}" for number in range(1, len(messages))), run_id]
    return [journal.message(each, entry_id=entry_id) for each, entry_id in zip(messages, ids, strict=True)]


def user_message(
    message: TurnInput, now: datetime, notes: tuple[ContextNote, ...] = (), *, twelve_hours: bool = False
) -> UserMessage:
    """The message as stored."""
    inbound = message.inbound
    content = (*((Text(inbound.text),) if inbound.text else ()), *inbound.images)
    time = ContextNote("time", time_text(now, twelve_hours=twelve_hours))
    sources = text_sources(inbound) if inbound.origin == Origin.OUTSIDE else ()
    return UserMessage(content, int(now.timestamp() * 1000), inbound.origin, (time, *notes), message.also, sources)


def text_sources(inbound: Inbound) -> tuple[str, ...]:
    return inbound.sources or (f"sender:{inbound.channel}:{inbound.sender}",)


def _last_digest(view: View, note: ContextNote) -> str:
    """The digest of the last note of the same name."""
    for line in reversed(view.lines):
        if isinstance(line.message, UserMessage):
            for earlier in line.message.context:
                if earlier.name == note.name and earlier.kind == note.kind:
                    return earlier.digest
    return ""


def _file_notes(
    shown: Mapping[str, str], files: Sequence[BootstrapFile], settings: PromptSettings
) -> tuple[ContextNote, ...]:
    """Notes on files that differ from what the model has last read."""
    present = {file.name for file in files}
    edited = [
        ContextNote("file", shown_file(file, settings.file_limit).text, file.name, file.digest)
        for file in files
        if shown.get(file.name) != file.digest
    ]
    removed = [
        ContextNote("file", "[removed from the workspace]", name)
        for name, digest in shown.items()
        if name not in present and digest and name != SKILLS
    ]
    return (*edited, *removed)


def _skill_notes(shown: Mapping[str, str], skills: BootstrapFile | None) -> tuple[ContextNote, ...]:
    """A note with the list of skills, if it has changed; settings about workspace files do not apply to it."""
    if skills is None:
        return (ContextNote("file", "[no skill can be used any more]", SKILLS),) if shown.get(SKILLS) else ()
    if shown.get(SKILLS) == skills.digest:
        return ()
    return (ContextNote("file", skills.text, SKILLS, skills.digest),)


def _heartbeat_notes(file: BootstrapFile | None, settings: PromptSettings) -> tuple[ContextNote, ...]:
    """Added to the newest message each time: in the head it would be there in all other turns too."""
    if file is None:
        return ()
    return (ContextNote("heartbeat", shown_file(file, settings.file_limit).text, file.name),)


# -- valid messages ---------------------------------------------------------------------------------------------------


def assemble(messages: Sequence[Message], *, epoch_start: int = 0) -> tuple[Message, ...]:
    """The message list to send. Notes on files that are older than the epoch's head are left out."""
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
                if _is_plain(message):  # most messages: nothing to answer, nothing to clean
                    out.append(message)
                    continue
                results: list[ToolResult] = []
                while index < len(messages) and isinstance(follower := messages[index], ToolResult):
                    results.append(follower)
                    index += 1
                out.extend(answered(message, results))
            case ToolResult():
                pass  # results directly after their call were taken above; any other answers nothing
    return tuple(out)


def _is_plain(message: AssistantMessage) -> bool:
    """Whether it is text only."""
    content = message.content
    return len(content) == 1 and isinstance(block := content[0], Text) and bool(block.text)


def _without_old_files(message: UserMessage) -> UserMessage:
    if not any(note.kind == "file" for note in message.context):
        return message
    kept = tuple(note for note in message.context if note.kind != "file")
    return UserMessage(message.content, message.timestamp, message.origin, kept)


def answered(message: AssistantMessage, results: Sequence[ToolResult]) -> Iterable[Message]:
    """A reply, cleaned, followed by exactly one result for each of its calls."""
    calls = {call.id: call for call in reversed(message.calls)}  # of two calls with one id, the first
    if len(calls) < len(message.calls) or not message.content or (not message.text and not calls):
        message = _cleaned(message, set(map(id, calls.values())))
    yield message
    by_call: dict[str, ToolResult] = {}
    for result in results:
        by_call.setdefault(result.tool_call_id, result)
    for call in message.calls:
        yield by_call.get(call.id) or ToolResult(call.id, call.name, NO_RESULT, is_error=True)


def _cleaned(message: AssistantMessage, kept_calls: set[int]) -> AssistantMessage:
    """The reply without duplicate calls, and with text if it was empty: no provider accepts an empty message."""
    content = tuple(block for block in message.content if not isinstance(block, ToolCall) or id(block) in kept_calls)
    if not any(isinstance(block, ToolCall) or (isinstance(block, Text) and block.text) for block in content):
        content = (*content, Text(f"(no reply: {message.error_message or 'nothing was said'})"))
    return AssistantMessage(content, message.provider, message.model, message.api, stop_reason=message.stop_reason)


def unanswered(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls of the last reply without a result; none if later messages exist."""
    has_result: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            calls = {call.id: call for call in reversed(message.calls)}
            return tuple(call for call in message.calls if calls[call.id] is call and call.id not in has_result)
        if isinstance(message, UserMessage):
            break
        has_result.add(message.tool_call_id)
    return ()


def violations(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse. Empty for every result of `assemble`."""
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
