"""What a command may use in all, looked after from outside while it runs.

Limits of the kernel hold for each process or each file. Here the sums are looked at: memory of all processes together,
what was written, and what is left for everybody else, of the disk and of the machine's memory. A thread looks, the
sooner again the nearer a limit is, and at most a tenth of the time; a command that ends quickly never sees one.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from palinurus.sandbox.family import Relative
from palinurus.sandbox.groups import Group
from palinurus.sandbox.memory_use import MemoryUse, written_bytes
from palinurus.sandbox.sandbox import MIB, Command

FIRST_SECONDS = 0.05  # most commands have ended by then
SOONEST, LATEST = 0.02, 1.0  # seconds between two looks
SHARE = 9  # a look is followed by so many times its own duration without one
FASTEST = 4096 * MIB  # bytes a second that a command may come nearer to a limit
FLOOR_BYTES, FLOOR_PARTS = 1024 * MIB, 20  # so much is left for others, or a twentieth of the whole if that is less
_MACHINE = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB", re.MULTILINE)

Look = Callable[[], tuple[str, float]]
"""What is too much, for people, or an empty text and how many bytes are left. Blocks for milliseconds."""


class Floor:
    """What one command must leave to others. One that begins below may take an eighth of the little there is."""

    def __init__(self, free: int, whole: int) -> None:
        self.least = min(FLOOR_BYTES, whole // FLOOR_PARTS)
        self._begun_with, self._slack = free, min(self.least, free) // 8

    def is_passed(self, free: int) -> bool:
        return free < self.least and self._begun_with - free > self._slack


class Totals:
    """Looks, in a thread of its own, until something is too much or the command has ended."""

    def __init__(
        self, looks: Iterable[Look], strike: Callable[[], None] = lambda: None, last: Callable[[], str] = lambda: ""
    ) -> None:
        """`strike` ends the command at once; `last` says what was too much for one that has ended. Neither raises."""
        self._looks = tuple(looks)
        self._strike = strike
        self.last = last
        self._over = threading.Event()

    def start(self, told: Callable[[str], None]) -> None:
        """`told` is called in the thread, before the command is ended."""
        if self._looks and not self._over.is_set():
            threading.Thread(target=self._watch, args=(told,), name="pal-totals", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self, told: Callable[[str], None]) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            began = time.monotonic()
            left = float("inf")
            for look in self._looks:
                reason, room = look()
                if reason and not self._over.is_set():
                    told(reason)
                    self._strike()
                    return
                left = min(left, room)
            pause = max(SOONEST, min(LATEST, left / FASTEST), (time.monotonic() - began) * SHARE)


def memory_reason(limit: int) -> str:
    return f"used more than {limit // MIB} MiB of memory in all (sandbox.memoryMb)"


def look_at_group(group: Group, limit: int) -> Look:
    """The kernel holds the limit, and ends one process at a time where it does not end all."""
    return lambda: (memory_reason(limit) if group.was_exceeded() else "", float("inf"))


def look_at_memory(root: Relative, places: Iterable[str], limit: int) -> Look:
    use = MemoryUse(root, places)

    def look() -> tuple[str, float]:
        used = use.measure(limit)
        return memory_reason(limit) if used > limit else "", limit - used

    return look


def look_at_machine() -> Look:
    """What cannot be counted as the command's still shows here."""
    free, whole = _machine_memory()
    floor = Floor(free, whole)

    def look() -> tuple[str, float]:
        left = _machine_memory()[0]
        reason = f"the machine runs out of memory: {left // MIB} MiB are left, and {floor.least // MIB} are kept free"
        return reason if floor.is_passed(left) else "", left - floor.least

    return look


def look_at_writing(root: Relative, limit: int) -> Look:
    def look() -> tuple[str, float]:
        written = written_bytes(root)
        reason = f"wrote more than {limit // MIB} MiB to the disk (sandbox.diskMb)"
        return reason if written > limit else "", limit - written

    return look


def looks_at_disks(command: Command) -> list[Look]:
    """One for each file system that the command can write to."""
    places: dict[int, Path] = {}
    for mount in (each for each in command.mounts if each.writable):
        with suppress(OSError):
            places[mount.source.stat().st_dev] = mount.source
    return [_look_at_disk(place) for place in places.values()]


def _look_at_disk(place: Path) -> Look:
    floor = Floor(*_free_space(place))

    def look() -> tuple[str, float]:
        free = _free_space(place)[0]
        left = f"{free // MIB} MiB are left, and {floor.least // MIB} are kept free"
        return f"the disk of {place} is nearly full: {left}" if floor.is_passed(free) else "", free - floor.least

    return look


def _free_space(place: Path) -> tuple[int, int]:
    """Bytes that an ordinary user can have, and bytes in all; of a place that cannot be asked, plenty of both."""
    try:
        space = os.statvfs(place)
    except OSError:
        return 1 << 62, 1 << 62
    return space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize


def _machine_memory() -> tuple[int, int]:
    """Bytes that can be had without swapping, and bytes in all."""
    with suppress(OSError):
        found = dict(_MACHINE.findall(Path("/proc/meminfo").read_text()))
        if len(found) == 2:
            return int(found["MemAvailable"]) * 1024, int(found["MemTotal"]) * 1024
    return 1 << 62, 1 << 62
