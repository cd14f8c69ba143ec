"""What a command has written, within a fixed amount of memory: how it began, how it ended, and a count of the rest."""

from __future__ import annotations

import re

HEAD = TAIL = 1024 * 1024  # bytes

# What a terminal understands and a reader does not: colours, cursor moves, titles, and controls but \t, \n and \r.
_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)


class Output:
    """Places in it are counted in bytes from the first byte ever written, whether it was kept or not."""

    def __init__(self, *, terminal: bool = False, head: int = HEAD, tail: int = TAIL) -> None:
        self._terminal = terminal
        self._most_head = head
        self._most_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._most_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._most_tail:  # not at every byte: moving the tail costs more than keeping it
            del self._tail[: -self._most_tail]

    def text(self, since: int = 0, until: int | None = None) -> str:
        """What was written between two places; a line stands for what was not kept."""
        until = self.total if until is None else until
        tail = bytes(self._tail[-self._most_tail :])
        begin = self.total - len(tail)  # where the tail begins
        first = bytes(self._head[since:until])
        last = tail[max(since - begin, 0) : max(until - begin, 0)]
        lost = max(min(begin, until) - max(since, len(self._head)), 0)
        if not lost:
            return self._readable(first + last)
        return f"{self._readable(first)}\n[… {lost:,} bytes not kept …]\n{self._readable(last)}"

    def boundary(self) -> int:
        """The last place that splits no character: what follows it may be half of one."""
        recent = (bytes(self._head[-3:]) + bytes(self._tail[-3:]))[-3:]
        for back, byte in enumerate(reversed(recent), start=1):
            if byte >= 0xC0:  # the first byte of a character; it tells how many there are
                needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                return self.total - back if needed > back else self.total
            if byte < 0x80:
                break
        return self.total

    def _readable(self, data: bytes) -> str:
        text = data.decode("utf-8", "replace")
        if self._terminal:  # where a line is written many times over, such as a progress bar, the last one stands
            text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
        return _CONTROLS.sub("", text)
