"""The context window as a budget: token costs, how it is divided, where a session is cut, what is pruned.

A cut is the index of the first message that stays. It never separates a call from its result, and it keeps the current
turn if that fits. Old tool results are pruned before anything else: a decision (this result is trimmed, that one is
cleared) is stored as an entry of the transcript and applied on every read. Each set of new decisions starts a new
epoch, and is made only when the provider's cache has expired anyway, or when a compaction starts one in any case
(promise 20). The transcript is never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from palinurus.context.assemble import unanswered
from palinurus.context.epoch import Decision, PrunedForm, project
from palinurus.context.settings import CompactionSettings, PruneSettings
from palinurus.context.view import Line, View
from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.providers.provider import Head
from palinurus.text.tokens import estimate_tokens, most_tokens

IMAGE_TOKENS = 1_200
MESSAGE_TOKENS = 4  # role and delimiters
CHARACTERS = 4  # characters per token, roughly: pruning ratios are of the window in characters
MUCH = 20_000  # characters; reading them takes about ten milliseconds
MANY = 2_000  # lines; checking each takes some milliseconds
_LEAST = 64  # tokens of the smallest window
T = TypeVar("T")


async def run_off_loop(lines: Sequence[Line], work: Callable[[], T]) -> T:
    """Runs work on possibly megabytes of text: in a thread if it is much (promise 10)."""
    left = MUCH
    for line in lines:
        left -= len(line.message.text)
        if left <= 0:
            return await asyncio.to_thread(work)
    return work()


async def run_off_loop_if_many(lines: Sequence[object], work: Callable[[], T]) -> T:
    """The same for work that checks each line but little of its text."""
    return await asyncio.to_thread(work) if len(lines) > MANY else work()


# -- what messages cost -----------------------------------------------------------------------------------------------


def message_tokens(message: Message, count: Callable[[str], int] = estimate_tokens) -> int:
    content = message.content
    own = count(content) if isinstance(content, str) else sum(_block(block, count) for block in content)
    notes = message.context if isinstance(message, UserMessage) else ()
    return MESSAGE_TOKENS + own + sum(count(note.text) + MESSAGE_TOKENS for note in notes)


def most_message_tokens(message: Message) -> int:
    """An upper bound of the count, by the length of the text, which is many times faster."""
    return message_tokens(message, most_tokens)


def rough_tokens(message: Message) -> int:
    """An estimate by the length of the text only: many times faster, and within a factor of 1.5."""
    content = message.content
    if not isinstance(content, str) and not all(isinstance(block, Text | Thinking) for block in content):
        return message_tokens(message)
    text = message.text
    if isinstance(message, UserMessage):
        text += "".join(note.text for note in message.context)
    return MESSAGE_TOKENS + (len(text) // 3 if text.isascii() else len(text)) + 1


def messages_tokens(messages: Iterable[Message]) -> int:
    return sum(map(message_tokens, messages))


def _block(block: Text | Image | Thinking | ToolCall, count: Callable[[str], int]) -> int:
    match block:
        case Image():
            return IMAGE_TOKENS
        case Text():
            return count(block.text)
        case ToolCall():
            return MESSAGE_TOKENS + count(block.name) + count(str(block.arguments))
        case Thinking():  # most wires do not send it again
            return 0


class TokenCounts:
    """Cached token counts of heads and stored messages."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, tuple[str, ...]], int] = {}
        self._lines: dict[tuple[str, int], int] = {}

    def head(self, head: Head) -> int:
        key = head.system, tuple(spec.name for spec in head.tools)
        if key not in self._heads:
            if len(self._heads) > 100:
                self._heads.clear()
            schemas = msgspec.json.encode(head.tools).decode()
            self._heads[key] = estimate_tokens(head.system) + (estimate_tokens(schemas) if head.tools else 0)
        return self._heads[key]

    def of(self, lines: Sequence[Line]) -> list[int]:
        """The tokens of each line. In a very long list older uncounted lines are estimated by length."""
        if len(self._lines) > 100_000:
            self._lines.clear()
        start = max(len(lines) - MANY, 0)
        older = [
            self._lines.get((line.id, len(line.message.text))) or rough_tokens(line.message) for line in lines[:start]
        ]
        return older + [self._line(line) for line in lines[start:]]

    def _line(self, line: Line) -> int:
        key = line.id, len(line.message.text)  # a pruned line is shorter
        count = self._lines.get(key)
        if count is None:
            count = self._lines[key] = message_tokens(line.message)
        return count


# -- how a window is divided, and where a conversation is cut ---------------------------------------------------------


class WindowDivision(Struct, frozen=True):
    """How a window is divided, in tokens."""

    window: int
    head: int  # the system prompt and the tools
    reserve: int  # for the reply
    keep: int  # of the newest messages
    summary: int  # at most

    @property
    def threshold(self) -> int:
        """Above this there is no space for a reply."""
        return self.window - self.reserve

    @property
    def most(self) -> int:
        """The maximum that may stay."""
        return max(self.threshold - self.head - self.summary, 0)


def divide(window: int, head: int, settings: CompactionSettings) -> WindowDivision:
    reserve = min(settings.reserve, window // 4)
    free = max(window - reserve - head, _LEAST)
    return WindowDivision(window, head, reserve, min(settings.keep_recent, free // 2), max(free // 4, _LEAST))


def cut_points(lines: Sequence[Line]) -> list[int]:
    """Indexes where a cut separates no call from its result; the last is the end, unless a call is open."""
    points = [index for index, line in enumerate(lines) if not isinstance(line.message, ToolResult)]
    waits = bool(unanswered([line.message for line in lines]))
    return points if waits else [*points, len(lines)]


def plan_cut(
    weights: Sequence[int], points: Sequence[int], room: WindowDivision, *, at_least_half: bool, turn: int
) -> int:
    """The index of the first message that stays.

    `weights` are the tokens of each line, `turn` is the start of the current turn (the number of lines if there is
    none).
    """
    end, whole = len(weights), sum(weights)
    most = min(room.most, whole // 2) if at_least_half else room.most
    cut = _first_within(weights, points, min(room.keep, most))
    last = max((point for point in points if point < end), default=0)
    if cut == end and last and sum(weights[last:]) <= room.most:  # better the last exchange than nothing
        cut = last
    begins = max((point for point in points if point <= turn), default=0)
    alone = begins == end - 1  # the turn is one new message: nothing else of it could be cut
    if 0 < begins < cut and (sum(weights[begins:]) <= most or alone):
        return begins
    return cut


def _first_within(weights: Sequence[int], points: Sequence[int], keep: int) -> int:
    allowed = set(points)
    total, first = 0, len(weights)
    for index in range(len(weights) - 1, -1, -1):
        total += weights[index]
        if total > keep:
            break
        first = index if index in allowed else first
    return first


def newest(lines: Sequence[Line], characters: int) -> Sequence[Line]:
    """The last lines with at most this much text together; at least one."""
    for index in range(len(lines) - 1, -1, -1):
        characters -= len(lines[index].message.text)
        if characters < 0:
            return lines[min(index + 1, len(lines) - 1) :]
    return lines


def turn_start(lines: Sequence[Line], run_ids: frozenset[str]) -> int:
    """The index of the first message of a turn; the number of lines if none is read."""
    return next((index for index, line in enumerate(lines) if line.id in run_ids), len(lines))


# -- old results of tools ----------------------------------------------------------------------------------------------


def is_cold(view: View, now_ms: int, settings: PruneSettings) -> bool:
    """Whether the provider's cache has expired: no call was answered within its lifetime."""
    try:
        last = datetime.fromisoformat(view.answered).timestamp() * 1000
    except ValueError:  # never answered, or an unreadable time in an old row
        return True
    return now_ms - last > settings.ttl_seconds * 1000


def prune(
    lines: Sequence[Line], pruned: dict[str, PrunedForm], window: int, settings: PruneSettings, head: int = 0
) -> dict[str, Decision]:
    """The new decisions, by entry id; empty if nothing needs pruning.

    `lines` as read, already `pruned` ones projected; `head` is the number of tokens of system and tools.
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
    trimmed = PrunedForm("soft", settings.head, settings.tail, settings.placeholder)
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
    """Clears results, oldest first, until there is space; only if the gain is large enough."""
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
    """Results after the first user message and before the last assistant turns, without images."""
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
    notes = message.context if isinstance(message, UserMessage) else ()
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    beside = sum(len(note.text) for note in notes) + sum(len(str(call.arguments)) for call in calls)
    return len(message.text) + beside
