"""Is a write-ahead log whole? SQLite stops reading at the first frame that is damaged, and says nothing.

What stood behind it is then missed by nobody. A frame that was being written when a process died is no damage: what it
belongs to was never committed. So a fault counts only when a commit of the same log stands behind it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from palinurus.migrate.openclaw.files import open_plain

HEADER, FRAME = 32, 24
MAGIC = {0x377F0682: "<", 0x377F0683: ">"}  # and the order of the bytes in what is summed up
MOST_FRAMES = 250_000


def wal_fault(path: Path) -> str:
    """What is wrong with a log; empty when nothing is. Raises OSError."""
    with open_plain(path) as file:
        header = file.read(HEADER)
        if not header:
            return ""
        if len(header) < HEADER or (order := MAGIC.get(int.from_bytes(header[:4], "big"))) is None:
            return "it begins with no header of a log: what was written last is lost"
        size = int.from_bytes(header[8:12], "big")
        sums = _summed(header[:24], (0, 0), order)
        if sums != struct.unpack(">II", header[24:32]) or size < 512 or size & (size - 1):
            return "its header is damaged: what was written last is lost"
        return _frames(file, header[16:24], size, sums, order)


def _frames(file: BinaryIO, salts: bytes, size: int, sums: tuple[int, int], order: str) -> str:
    number = broken = lost = 0
    while number < MOST_FRAMES and len(frame := file.read(FRAME + size)) == FRAME + size:
        number += 1
        if frame[8:16] != salts:  # left from an earlier round of the log
            break
        if not broken:
            sums = _summed(frame[FRAME:], _summed(frame[:8], sums, order), order)
            if sums != struct.unpack(">II", frame[16:24]):
                broken = number
        if broken and frame[4:8] != b"\0\0\0\0":
            lost = number
    if not lost:
        return ""
    return f"it is damaged at page {broken} of {lost}: what was written from there on is lost"


def _summed(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
