"""Server-sent events out of bytes, however the network has cut them.

A parser is fed what arrives and hands back whole payloads. Line ends may be LF, CRLF or CR; comments and fields other
than `data` are skipped; several `data` lines make one payload. Nothing grows beyond `MAX_EVENT_BYTES`.
"""

from __future__ import annotations

from typing import Protocol

MAX_EVENT_BYTES = 8 * 1024 * 1024


class EventTooLong(ValueError):
    """One event is longer than anything a model says in one breath."""


class BodyParser(Protocol):
    """Turns the bytes of a body into payloads. Raises EventTooLong and nothing else."""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that these bytes complete, in order; often none."""

    def close(self) -> list[bytes]:
        """What is left when the body has ended."""


class SseParser:
    """Payloads of the `data` fields."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of a line that has not ended; joined once, so long lines cost linear time
        self._size = 0  # of the unfinished line and event together
        self._data: list[bytes] = []  # the data lines of an event that has not ended
        self._data_size = 0
        self._held_cr = False  # a CR at the very end may be half of a CRLF
        self._at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        data = self._with_one_line_end(data)
        if b"\n" not in data:
            if data:
                self._pieces.append(data)
                self._grow(len(data))
            return []
        head, *rest = data.split(b"\n")
        lines = [b"".join([*self._pieces, head]), *rest]
        unfinished = lines.pop()
        self._pieces = [unfinished] if unfinished else []
        payloads = self._read(lines)
        self._size = len(unfinished) + self._data_size
        self._grow(0)
        return payloads

    def close(self) -> list[bytes]:
        """A last event without its blank line still counts: many servers end like that after `[DONE]`."""
        self._held_cr = False
        line = b"".join(self._pieces)
        self._pieces = []
        return self._read([line, b""])

    def _with_one_line_end(self, data: bytes) -> bytes:
        if self._held_cr:
            data, self._held_cr = b"\r" + data, False
        if b"\r" not in data:
            return data
        if data.endswith(b"\r"):
            data, self._held_cr = data[:-1], True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read(self, lines: list[bytes]) -> list[bytes]:
        payloads: list[bytes] = []
        if self._at_start and lines:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._data_size += len(self._data[-1])
            elif not line and self._data:
                payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data, self._data_size = [], 0
        return payloads

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > self._limit:
            raise EventTooLong(f"an event is longer than {self._limit:,} bytes")


class WholeBody:
    """One payload: the body itself. For servers that answer with plain JSON although a stream was asked for."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._body = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._body += data
        if len(self._body) > self._limit:
            raise EventTooLong(f"the answer is longer than {self._limit:,} bytes")
        return []

    def close(self) -> list[bytes]:
        return [bytes(self._body)]


def parser_for(first_bytes: bytes) -> BodyParser:
    """Goes by what was sent, not by Content-Type, which servers get wrong. No event stream starts with a bracket."""
    return WholeBody() if first_bytes.lstrip().startswith((b"{", b"[")) else SseParser()
