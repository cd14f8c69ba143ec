"""What a command may use in total, checked from outside while it runs.

Limits of the kernel hold for each process or each file. Here the sums are checked: memory of all processes together,
bytes written, and what is left for others of the disk and of the machine's memory. A thread checks, more often the
nearer a limit is, and at most a tenth of the time; a command that ends quickly is never checked.

Where pal may make control groups, the kernel itself limits the memory of a command in total. With cgroup v2 that is
so where a group was delegated to pal: as a service of systemd with `Delegate=`, or in a container that may write its
own groups. There pal first moves into a group of its own, because a group with groups below it must not hold
processes. With cgroup v1 root may make groups below its own.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from palinurus.sandbox.family import MemoryUse, Relative, written_bytes
from palinurus.sandbox.sandbox import MIB, SandboxCommand

PREFIX = "pal-"
OURS = "pal"  # where pal itself goes
CONTROL = "cgroup.subtree_control"
_counter = itertools.count()
FIRST_SECONDS = 0.05  # most commands have ended by then
SOONEST, LATEST = 0.02, 1.0  # seconds between two checks
SHARE = 9  # after a check, this multiple of its duration passes without one
FASTEST = 4096 * MIB  # bytes per second that a command may approach a limit
# This much stays free for others, or a twentieth of the total if that is less.
MIN_FREE_BYTES, MIN_FREE_PARTS = 1024 * MIB, 20
_MACHINE = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB", re.MULTILINE)
Look = Callable[[], tuple[str, float]]
"""Returns which limit is exceeded, for people, or an empty text and how many bytes are left. Blocks for
milliseconds."""


class GroupFiles(Struct, frozen=True):
    """The file names of a cgroup version. Those in `optional` need not exist."""

    limit: str
    optional: tuple[tuple[str, str], ...]  # with the value to write; {} is the limit
    events: str  # where the kernel counts processes that it has ended


V1 = GroupFiles("memory.limit_in_bytes", (("memory.memsw.limit_in_bytes", "{}"),), "memory.oom_control")
V2 = GroupFiles("memory.max", (("memory.swap.max", "0"), ("memory.oom.group", "1")), "memory.events")


class Group:
    """The control group of one command."""

    def __init__(self, place: Path, dialect: GroupFiles) -> None:
        self._place, self._dialect = place, dialect

    def take(self, *pids: int) -> None:
        """Moves processes into it; processes that they start later are in it too. Raises OSError."""
        for pid in pids:
            (self._place / "cgroup.procs").write_text(str(pid))

    def was_exceeded(self) -> bool:
        """Returns whether the kernel has ended a process because the limit was reached."""
        try:
            found = re.search(r"^oom_kill (\d+)", (self._place / self._dialect.events).read_text(), re.MULTILINE)
        except OSError:
            return False
        return found is not None and int(found[1]) > 0

    def remove(self) -> bool:
        """Removes the group. Returns False while a process is still in it."""
        with suppress(OSError):
            self._place.rmdir()
        return not self._place.exists()


class Groups:
    """Creates groups below `place`. Blocks."""

    def __init__(self, place: Path, dialect: GroupFiles) -> None:
        self.place, self._dialect = place, dialect
        self._ended: list[Group] = []

    def make(self, memory_bytes: int) -> Group:
        """Creates a group. Raises OSError if that is impossible."""
        self._sweep()
        made = self.place / f"{PREFIX}{os.getpid()}-{next(_counter)}"
        made.mkdir()
        try:
            (made / self._dialect.limit).write_text(str(memory_bytes))
        except OSError:
            made.rmdir()
            raise
        for name, value in self._dialect.optional:
            with suppress(OSError):
                (made / name).write_text(value.format(memory_bytes))
        return Group(made, self._dialect)

    def end(self, group: Group) -> None:
        if not group.remove():
            self._ended.append(group)

    def _sweep(self) -> None:
        """Removes groups of ended commands, including those of a killed pal. One in use cannot be removed."""
        ended, self._ended = self._ended, []
        self._ended += [group for group in ended if not group.remove()]
        for place in self.place.glob(f"{PREFIX}*"):
            pid = place.name.removeprefix(PREFIX).partition("-")[0]
            if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
                with suppress(OSError):
                    place.rmdir()


def find_groups(proc: Path = Path("/proc/self"), *, root: bool | None = None) -> Groups | None:
    """Returns where this process may create groups that limit memory; None if it may not."""
    with suppress(OSError, ValueError):
        is_root = os.geteuid() == 0 if root is None else root
        for found, dialect in _own_groups(proc):
            place = found
            if dialect is V2 and place.name == OURS and "memory" in _words(place.parent / CONTROL):
                place = place.parent  # this process, or its parent, has moved into its own group already
            if os.access(place, os.W_OK) and (dialect is V1 or _hand_down(place, is_root=is_root)):
                return Groups(place, dialect)
    return None


def _own_groups(proc: Path) -> Iterator[tuple[Path, GroupFiles]]:
    """Returns the groups of this process that count memory, as directories."""
    mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    for line in (proc / "cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        dialect = V1 if "memory" in kinds.split(",") else V2
        if kinds and dialect is V2:
            continue
        for words in mounts:
            kind, _, options = words[words.index("-") + 1 :]
            fits = kind == "cgroup2" if dialect is V2 else kind == "cgroup" and "memory" in options.split(",")
            if fits and (below := _below(path, words[3])) is not None:
                yield Path(words[4]) / below, dialect
                break


def _below(path: str, mounted: str) -> str | None:
    """Returns the group's path under a mount that shows `mounted` as its root."""
    inside = path == mounted or path.startswith(f"{mounted.rstrip('/')}/")
    return path[len(mounted.rstrip("/")) :].lstrip("/") if inside else None


def _hand_down(place: Path, *, is_root: bool) -> bool:
    """Enables memory limits for groups below. Root may write to all groups, but uses only one that was delegated to
    it."""
    if "memory" not in _words(place / "cgroup.controllers"):
        return False
    if is_root and not _was_handed_over(place):
        return False
    if "memory" in _words(place / CONTROL):
        return True
    inner, pid = place / OURS, str(os.getpid())
    try:
        inner.mkdir(exist_ok=True)
        (inner / "cgroup.procs").write_text(pid)
        (place / CONTROL).write_text("+memory")
    except OSError:  # other processes are in the group too
        with suppress(OSError):
            (place / "cgroup.procs").write_text(pid)
            inner.rmdir()
        return False
    return True


def _was_handed_over(place: Path) -> bool:
    if not (place.parent / "cgroup.procs").exists():  # the whole tree is ours, as in a container
        return True
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(place, name) == b"1":
                return True
    return False


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


class MinimumFree:
    """What one command must leave free. One that starts below that may use an eighth of what is left."""

    def __init__(self, free: int, whole: int) -> None:
        self.least = min(MIN_FREE_BYTES, whole // MIN_FREE_PARTS)
        self._initial, self._slack = free, min(self.least, free) // 8

    def is_passed(self, free: int) -> bool:
        return free < self.least and self._initial - free > self._slack


class UsageTotals(Struct, eq=False):
    """Checks in its own thread, until a limit is exceeded or the command has ended.

    `strike` ends the command at once; `last` returns the exceeded limit of an ended one. Neither raises.
    """

    looks: Sequence[Look]
    strike: Callable[[], None] = lambda: None
    last: Callable[[], str] = lambda: ""
    _over: threading.Event = field(default_factory=threading.Event)

    def start(self, on_excess: Callable[[str], None]) -> None:
        """Starts the thread. `on_excess` is called in it, before the command is ended."""
        if self.looks and not self._over.is_set():
            threading.Thread(target=self._watch, args=(on_excess,), name="pal-totals", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self, on_excess: Callable[[str], None]) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            began = time.monotonic()
            left = float("inf")
            for look in self.looks:
                reason, margin = look()
                if reason and not self._over.is_set():
                    on_excess(reason)
                    self.strike()
                    return
                left = min(left, margin)
            pause = max(SOONEST, min(LATEST, left / FASTEST), (time.monotonic() - began) * SHARE)


def memory_reason(limit: int) -> str:
    return f"used more than {limit // MIB} MiB of memory in all (sandbox.memoryMb)"


def look_at_group(group: Group, limit: int) -> Look:
    """The kernel enforces the limit; it may end one process at a time, so the others are ended here."""
    return lambda: (memory_reason(limit) if group.was_exceeded() else "", float("inf"))


def look_at_memory(root: Relative, places: Iterable[str], limit: int) -> Look:
    return _look_at_use(partial(MemoryUse(root, places).measure, limit), limit, memory_reason(limit))


def look_at_writing(root: Relative, limit: int) -> Look:
    reason = f"wrote more than {limit // MIB} MiB to the disk (sandbox.diskMb)"
    return _look_at_use(partial(written_bytes, root), limit, reason)


def _look_at_use(measure: Callable[[], int], limit: int, reason: str) -> Look:
    def look() -> tuple[str, float]:
        used = measure()
        return reason if used > limit else "", limit - used

    return look


def look_at_machine() -> Look:
    """Detects memory that cannot be counted as the command's."""
    return _look_at_rest(_machine_memory, "the machine runs out of memory")


def looks_at_disks(command: SandboxCommand) -> list[Look]:
    """Returns one check for each file system that the command can write to."""
    places: dict[int, Path] = {}
    for mount in (each for each in command.mounts if each.writable):
        with suppress(OSError):
            places[mount.source.stat().st_dev] = mount.source
    return [_look_at_rest(partial(_free_space, each), f"the disk of {each} is nearly full") for each in places.values()]


def _look_at_rest(measure: Callable[[], tuple[int, int]], what: str) -> Look:
    """`measure` returns the free and the total bytes."""
    minimum = MinimumFree(*measure())

    def look() -> tuple[str, float]:
        free, _ = measure()
        reason = f"{what}: {free // MIB} MiB are left, and {minimum.least // MIB} are kept free"
        return reason if minimum.is_passed(free) else "", free - minimum.least

    return look


def _free_space(place: Path) -> tuple[int, int]:
    """Returns free bytes for an ordinary user, and total bytes; very large numbers for a path that cannot be read."""
    try:
        space = os.statvfs(place)
    except OSError:
        return 1 << 62, 1 << 62
    return space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize


def _machine_memory() -> tuple[int, int]:
    """Returns bytes available without swapping, and total bytes."""
    with suppress(OSError):
        found = dict(_MACHINE.findall(Path("/proc/meminfo").read_text()))
        if len(found) == 2:
            return int(found["MemAvailable"]) * 1024, int(found["MemTotal"]) * 1024
    return 1 << 62, 1 << 62
