"""The lines of a transcript file, plain or compressed, one at a time and never more than a bounded one.

A tree may hold gigabytes, so nothing is read whole. A line beyond the bound is passed over and told, as is the rest
of a compressed file that is damaged.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from palinurus.migrate.openclaw.files import BUFFER, open_plain, why
from palinurus.migrate.report import Losses

MAX_LINE = 32 * 1024 * 1024
MAX_WINDOW = 128 * 1024 * 1024  # of memory that a compressed file may ask for
BLANK = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
SMALL, RATIO = 256 * 1024 * 1024, 1000  # what a compressed file may grow to: at least this, else by this factor

Line = tuple[int, bytes]


def file_lines(path: Path, shown: str, losses: Losses) -> Iterator[Line]:
    """Number and text of each line that is not blank. Never raises: what cannot be read is told."""
    try:
        with open_plain(path) as file:
            if path.name.endswith(".zst"):
                yield from packed_lines(file, path.stat().st_size, shown, losses)
            else:
                yield from stream_lines(file, shown, losses)
    except FileNotFoundError:
        losses.add(shown, 0, "the file is not there")
    except OSError as error:
        losses.add(shown, 0, f"it cannot be read: {why(error)}")


def stream_lines(stream: BinaryIO, shown: str, losses: Losses, limit: int = MAX_LINE) -> Iterator[Line]:
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit and not line.endswith(b"\n"):
            _pass_over(stream)
            losses.add(shown, number, f"the line is longer than {limit >> 20} MB")
            continue
        text = line.strip(BLANK)
        if number == 1:
            text = text.removeprefix(BOM)
        if text:
            yield number, text


def packed_lines(packed: BinaryIO, size: int, shown: str, losses: Losses) -> Iterator[Line]:
    """The same for zstd. A file that ends too early is told, and what stands before the damage is kept."""
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(packed, read_across_frames=True)
    bounded = _Bounded(reader, max(SMALL, size * RATIO))
    number = 0
    try:
        for number, line in stream_lines(io.BufferedReader(bounded, BUFFER), shown, losses):
            yield number, line
    except zstandard.ZstdError as error:
        losses.add(shown, number + 1, f"from here on the compressed data is damaged: {error}")
    except (MemoryError, EOFError) as error:
        losses.add(shown, number + 1, f"from here on it cannot be unpacked: {error or 'too little memory'}")


class _Bounded(io.RawIOBase):
    """A stream that ends with an error when it gives more than it may."""

    def __init__(self, stream: BinaryIO, most: int) -> None:
        self._stream = stream
        self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise EOFError("it grows out of all proportion")
        buffer[: len(data)] = data
        return len(data)


def _pass_over(stream: BinaryIO) -> None:
    while (piece := stream.readline(BUFFER)) and not piece.endswith(b"\n"):
        pass
