"""Where a conversation is cut when it grows too long for its window. Pure.

A cut is the index of the first message that stays. It never stands between a call and its result, and it spares the
turn that is going on when that fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from palinurus.config.compacting import CompactionSettings
from palinurus.context.assemble import unanswered
from palinurus.context.view import Line
from palinurus.domain.messages import ToolResult

_LEAST = 64  # tokens: the room of the smallest window


class Room(Struct, frozen=True):
    """How a window is divided, in tokens."""

    window: int
    head: int  # the system prompt and the tools
    reserve: int  # for the reply
    keep: int  # of the newest messages
    summary: int  # at most

    @property
    def threshold(self) -> int:
        """With more than this in the window there is no room for a reply."""
        return self.window - self.reserve

    @property
    def most(self) -> int:
        """How much may stay when it has to."""
        return max(self.threshold - self.head - self.summary, 0)


def divide(window: int, head: int, settings: CompactionSettings) -> Room:
    reserve = min(settings.reserve, window // 4)
    free = max(window - reserve - head, _LEAST)
    return Room(window, head, reserve, min(settings.keep_recent, free // 2), max(free // 4, _LEAST))


def cut_points(lines: Sequence[Line]) -> list[int]:
    """Where a cut splits no call from its result; the last one lies behind everything, unless a call is open."""
    points = [index for index, line in enumerate(lines) if not isinstance(line.message, ToolResult)]
    waits = bool(unanswered([line.message for line in lines]))
    return points if waits else [*points, len(lines)]


def plan_cut(weights: Sequence[int], points: Sequence[int], room: Room, *, at_least_half: bool, turn: int) -> int:
    """The index of the first message that stays.

    `weights` are the tokens of each line, `turn` is where the turn that goes on begins (their number when none does).
    """
    end, whole = len(weights), sum(weights)
    most = min(room.most, whole // 2) if at_least_half else room.most
    cut = _first_within(weights, points, min(room.keep, most))
    last = max((point for point in points if point < end), default=0)
    if cut == end and last and sum(weights[last:]) <= room.most:  # better the last exchange than nothing
        cut = last
    begins = max((point for point in points if point <= turn), default=0)
    alone = begins == end - 1  # somebody has just spoken: nothing else of the turn could be cut
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
    """The last of them, as many as have no more text than this together; one at least."""
    for index in range(len(lines) - 1, -1, -1):
        characters -= len(lines[index].message.text)
        if characters < 0:
            return lines[min(index + 1, len(lines) - 1) :]
    return lines


def turn_start(lines: Sequence[Line], run_ids: frozenset[str]) -> int:
    """The index of the first message of a turn; their number when none of it is read."""
    return next((index for index, line in enumerate(lines) if line.id in run_ids), len(lines))
