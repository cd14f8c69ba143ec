"""Control groups: the kernel itself holds the memory of a command in all, where pal may make groups.

With cgroup v2 that is so where a group was handed over (delegated) to pal: as a service of systemd with `Delegate=`, or
in a container that may write its own groups. There pal first steps into a group of its own, since a group that has
groups below it must not hold processes. With cgroup v1 root may make groups below its own.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

PREFIX = "pal-"
OURS = "pal"  # where pal itself goes
CONTROL = "cgroup.subtree_control"
_counter = itertools.count()


class Dialect(Struct, frozen=True):
    """What the files of a version are called. Those of `wished` need not be there."""

    limit: str
    wished: tuple[tuple[str, str], ...]  # with what is written to them; {} is the limit
    events: str  # where the kernel counts whom it has ended


V1 = Dialect("memory.limit_in_bytes", (("memory.memsw.limit_in_bytes", "{}"),), "memory.oom_control")
V2 = Dialect("memory.max", (("memory.swap.max", "0"), ("memory.oom.group", "1")), "memory.events")


class Group:
    """One command's."""

    def __init__(self, place: Path, dialect: Dialect) -> None:
        self._place, self._dialect = place, dialect

    def take(self, *pids: int) -> None:
        """Whom they start from now on is in it too. Raises OSError."""
        for pid in pids:
            (self._place / "cgroup.procs").write_text(str(pid))

    def was_exceeded(self) -> bool:
        """Whether the kernel has ended somebody because the limit was reached."""
        try:
            found = re.search(r"^oom_kill (\d+)", (self._place / self._dialect.events).read_text(), re.MULTILINE)
        except OSError:
            return False
        return found is not None and int(found[1]) > 0

    def remove(self) -> bool:
        """False while somebody is still leaving it."""
        try:
            self._place.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class Groups:
    """Makes them, below `place`. Blocks."""

    def __init__(self, place: Path, dialect: Dialect) -> None:
        self.place, self._dialect = place, dialect
        self._ended: list[Group] = []

    def make(self, memory_bytes: int) -> Group:
        """Raises OSError when there can be none."""
        self._sweep()
        made = self.place / f"{PREFIX}{os.getpid()}-{next(_counter)}"
        made.mkdir()
        try:
            (made / self._dialect.limit).write_text(str(memory_bytes))
        except OSError:
            made.rmdir()
            raise
        for name, value in self._dialect.wished:
            with suppress(OSError):
                (made / name).write_text(value.format(memory_bytes))
        return Group(made, self._dialect)

    def end(self, group: Group) -> None:
        if not group.remove():
            self._ended.append(group)

    def _sweep(self) -> None:
        """Those of commands that have ended, also of a pal that was killed. One in use cannot be removed."""
        ended, self._ended = self._ended, []
        self._ended += [group for group in ended if not group.remove()]
        for place in self.place.glob(f"{PREFIX}*"):
            pid = place.name.removeprefix(PREFIX).partition("-")[0]
            if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
                with suppress(OSError):
                    place.rmdir()


def find_groups(proc: Path = Path("/proc/self"), *, root: bool | None = None) -> Groups | None:
    """Where this process may make groups that hold memory; None where it may not."""
    with suppress(OSError, ValueError):
        is_root = os.geteuid() == 0 if root is None else root
        for found, dialect in _own_groups(proc):
            place = found
            if dialect is V2 and place.name == OURS and "memory" in _words(place.parent / CONTROL):
                place = place.parent  # this process, or the one that started it, has stepped aside already
            if os.access(place, os.W_OK) and (dialect is V1 or _hand_down(place, is_root=is_root)):
                return Groups(place, dialect)
    return None


def _own_groups(proc: Path) -> Iterator[tuple[Path, Dialect]]:
    """The groups of this process that count memory, as directories."""
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
    """The group's path under a mount that shows `mounted` as its root."""
    inside = path == mounted or path.startswith(f"{mounted.rstrip('/')}/")
    return path[len(mounted.rstrip("/")) :].lstrip("/") if inside else None


def _hand_down(place: Path, *, is_root: bool) -> bool:
    """Let groups below hold memory. Root may write to all groups, and uses only one that was handed over to it."""
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
    except OSError:  # others are in the group as well
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
