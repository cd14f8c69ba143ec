"""Notices that a folder or link was moved, replaced or removed, also when it has come back since.

Looking twice does not tell: who swaps a folder a thousand times a second has a fair chance that both looks find the
good one and the program finds the other. So the kernel is asked to remember (inotify). Elsewhere than on Linux, and
where the kernel has no room, nothing is noticed, and looking twice has to do.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from functools import cache
from itertools import islice

MOST_WATCHED = 1_000
_ATTRIB, _DELETE_SELF, _MOVE_SELF = 0x4, 0x400, 0x800
_DONT_FOLLOW = 0x02000000
_EVENT = struct.Struct("iIII")


class Moves:
    """Of these folders and links, from now until `close`."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._names: dict[int, str] = {}
        libc = _libc()
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if libc else -1
        if libc is None or self._fd < 0:
            return
        for path in islice(paths, MOST_WATCHED):
            # A link that goes is told as a change of its count; of a folder that would be any change of its rights.
            mask = _MOVE_SELF | _DELETE_SELF | _DONT_FOLLOW | (_ATTRIB if os.path.islink(path) else 0)  # noqa: PTH114
            number = libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
            if number >= 0:
                self._names.setdefault(number, path)

    def first(self) -> str:
        """The first that is no longer what it was, or was not in between; empty when there is none."""
        try:
            data = os.read(self._fd, 65_536) if self._fd >= 0 else b""
        except OSError:  # nothing happened
            return ""
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            if mask & (_MOVE_SELF | _DELETE_SELF | _ATTRIB):
                return self._names.get(number, "a folder")
            at += _EVENT.size + length
        return ""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


@cache
def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "inotify_init1") else None
