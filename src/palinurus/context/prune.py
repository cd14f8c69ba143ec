"""Old tool results shrink before anything else does. Pure decisions; the transcript is never touched.

A decision (this result is trimmed, that one is cleared) is stored as an entry of the transcript and applied whenever
the story is read. Each set of new decisions starts a new epoch, and is made only when the provider's cache has gone
cold anyway, or when a compaction starts one in any case (promise 20).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from palinurus.config.compacting import PruneSettings
from palinurus.context.pruned import Decision, Form, project
from palinurus.context.view import Line, View
from palinurus.domain.messages import AssistantMessage, Image, Message, Text, ToolResult, UserMessage

CHARACTERS = 4  # a token, roughly: the ratios are of the window in characters


def is_cold(view: View, now_ms: int, settings: PruneSettings) -> bool:
    """Whether the provider has forgotten the prefix by now: no call was answered within the time its cache lives."""
    try:
        last = datetime.fromisoformat(view.answered).timestamp() * 1000
    except ValueError:  # nobody was, or an old row says it in a way of its own
        return True
    return now_ms - last > settings.ttl_seconds * 1000


def prune(
    lines: Sequence[Line], pruned: dict[str, Form], window: int, settings: PruneSettings, head: int = 0
) -> dict[str, Decision]:
    """What is newly decided, by entry id; empty when nothing needs to be.

    `lines` as they are read, those that are `pruned` already projected; `head` are the tokens of system and tools.
    """
    if settings.mode == "off":
        return {}
    room = window * CHARACTERS
    size = head * CHARACTERS + sum(_size(line.message) for line in lines)
    if size < room * settings.soft_ratio:
        return {}
    prunable = list(_prunable(lines, settings))
    decided: dict[str, Decision] = {}
    sizes = {line.id: _size(line.message) for line in prunable}
    trimmed = Form("soft", settings.head, settings.tail, settings.placeholder)
    for line in prunable:
        after = _size(project(line.message, trimmed))
        if line.id not in pruned and sizes[line.id] > settings.soft_above and after < sizes[line.id]:
            decided[line.id] = "soft"
            size -= sizes[line.id] - after
            sizes[line.id] = after
    if settings.clears and size >= room * settings.hard_ratio:
        known = {entry_id for entry_id, form in pruned.items() if form.decision == "hard"}
        open_to = {entry_id: size for entry_id, size in sizes.items() if entry_id not in known}
        decided |= _cleared(open_to, size - room * settings.hard_ratio, room, settings)
    return decided


def _cleared(sizes: dict[str, int], too_much: float, room: int, settings: PruneSettings) -> dict[str, Decision]:
    """Oldest first, until there is room; and only when it gains enough to be worth it."""
    if sum(sizes.values()) < min(settings.min_clearable, room // 8):
        return {}
    decided: dict[str, Decision] = {}
    for entry_id, size in sizes.items():
        gain = size - len(settings.placeholder)
        if too_much > 0 and gain > 0:
            decided[entry_id] = "hard"
            too_much -= gain
    return decided


def _prunable(lines: Sequence[Line], settings: PruneSettings) -> Iterable[Line]:
    """Results behind the first words of a user and before the last few turns of the assistant, without pictures."""
    first = next((at for at, line in enumerate(lines) if isinstance(line.message, UserMessage)), len(lines))
    assistants = [at for at, line in enumerate(lines) if isinstance(line.message, AssistantMessage)]
    if len(assistants) < settings.keep_last_assistants:
        return
    end = assistants[-settings.keep_last_assistants] if settings.keep_last_assistants else len(lines)
    for line in lines[first:end]:
        if isinstance(line.message, ToolResult) and _allowed(line.message, settings):
            yield line


def _allowed(result: ToolResult, settings: PruneSettings) -> bool:
    if not isinstance(result.content, str) and any(isinstance(block, Image) for block in result.content):
        return False
    named = not settings.only or result.tool_name in settings.only
    return named and result.tool_name not in settings.never


def _size(message: Message) -> int:
    match message:
        case UserMessage():
            return len(message.text) + sum(len(note.text) for note in message.context)
        case AssistantMessage():
            calls = sum(len(str(call.arguments)) for call in message.calls)
            return sum(len(block.text) for block in message.content if isinstance(block, Text)) + calls
        case ToolResult():
            return len(message.text)
