"""Finds all processes that one command has started, in /proc; ends them, and measures their memory together.

A process belongs to the command if it descends from it, is in its session, has the command's cookie in its initial
environment, or has the command's output as one of its standard streams. So `setsid`, a double fork or `nohup` do not
escape; only a program that does all of that, clears its environment and closes its streams could. In a sandbox that is
impossible: the kernel ends all processes with the first one.

The kernel's limits apply to each process and do not count shared memory. MemoryUse therefore adds up the private memory
of all processes below the command's first one, the anonymous files (memfd) that they hold open, mapped or not, and the
in-memory file systems of the command. A quick estimate counts shared memory more than once; only if the estimate is too
high, an exact and slower measurement follows. Two things cannot be seen from outside: an anonymous file that is only in
transit in a socket, and shared memory that was detached without being freed.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

COOKIE = "PALINURUS_RUN"
POLITE_SECONDS = 0.3  # between SIGTERM and SIGKILL
LAST_SECONDS = 5.0  # for the kernel to remove killed processes; only a process stuck in a driver needs as long
_POLL_SECONDS = 0.01
_PROC = Path("/proc")
MOST_PROCESSES = 1_024  # that one measurement counts
MOST_DESCRIPTORS = 10_000
MOST_TEXT = 4 * 1024 * 1024  # of one process's list of mappings; a longer list is estimated
_KIB = 1024
_QUICK = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
_WRITTEN = re.compile(rb"^write_bytes: (\d+)", re.MULTILINE)
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)")


class Relative(Struct, frozen=True):
    """A process as /proc shows it. The pid alone is not enough: the system reuses it when the process has ended."""

    pid: int
    parent: int
    session: int
    born: int  # start time in clock ticks since boot


class Marks(Struct, frozen=True):
    """The marks by which the processes of a command are recognised. The pids are 0 once the command was waited for."""

    pid: int = 0
    session: int = 0
    cookie: str = ""
    output: str = ""  # pipe:[123] or /dev/pts/4


def alive(pid: int) -> Relative | None:
    """Returns the process with that pid, unless it is gone or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # a name may contain anything, also blanks and brackets
    if fields[0] in (b"Z", b"X"):
        return None
    return Relative(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def everybody() -> list[Relative]:
    names = [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208  names, of which most are no process
    return [found for name in names if (found := alive(int(name))) is not None]


def descendants(pid: int, all_of_them: Iterable[Relative] | None = None) -> list[Relative]:
    """Returns children first, then theirs; not the process itself."""
    if pid <= 1:  # every process descends from the first one
        return []
    children: dict[int, list[Relative]] = defaultdict(list)
    for each in everybody() if all_of_them is None else all_of_them:
        children[each.parent].append(each)
    found: list[Relative] = []
    todo = [pid]
    while todo:
        found += (nearest := children.pop(todo.pop(0), []))
        todo += [each.pid for each in nearest]
    return found


def family(marks: Marks) -> list[Relative]:
    """Returns all processes of the command with their descendants; never this process or its ancestors."""
    present = everybody()
    spared = _forebears(present)
    marked = [each for each in present if each.pid not in spared and (each.pid == marks.pid or _marked(each, marks))]
    found = {each.pid: each for each in marked}
    for root in marked:
        found |= {each.pid: each for each in descendants(root.pid, present)}
    return [each for each in found.values() if each.pid not in spared]


def _forebears(present: Iterable[Relative]) -> set[int]:
    """Returns this process, its ancestors, and 0, which stands for the kernel: none of them is ever ended."""
    parents = {each.pid: each.parent for each in present}
    found = {0, 1}
    pid = os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found


def _marked(each: Relative, marks: Marks) -> bool:
    if marks.session and each.session == marks.session:
        return True
    place = _PROC / str(each.pid)
    with suppress(OSError):  # another user's, or gone
        if marks.cookie and f"{COOKIE}={marks.cookie}".encode() in (place / "environ").read_bytes().split(b"\0"):
            return True
    if marks.output:
        with suppress(OSError):
            return any(str((place / "fd" / name).readlink()) == marks.output for name in "012")
    return False


async def end_family(marks: Marks) -> list[int]:
    """Ends all of them: SIGTERM, then SIGKILL. Returns the pids of those that are left."""
    if not (found := await asyncio.to_thread(family, marks)):
        return []
    signal_all(found, signal.SIGTERM, signal.SIGCONT)  # a stopped process gets no other signal
    await gone(found, POLITE_SECONDS)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LAST_SECONDS
    while found := await asyncio.to_thread(family, marks):
        if loop.time() > deadline:
            return [each.pid for each in found]
        signal_all(found, signal.SIGSTOP)  # stopped, they cannot fork while we search for new ones
        found = await asyncio.to_thread(family, marks)
        signal_all(found, signal.SIGKILL)
        await gone(found, POLITE_SECONDS)
    return []


async def gone(those: Iterable[Relative], seconds: float) -> list[Relative]:
    """Waits until none of them is left, at most this long. Returns those that are."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    left = [each for each in those if _is(each)]
    while left and loop.time() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
        left = [each for each in left if _is(each)]
    return left


def _is(each: Relative) -> bool:
    now = alive(each.pid)
    return now is not None and now.born == each.born


def signal_all(those: Iterable[Relative], *numbers: int) -> None:
    """Signals each process that is still the one that was found."""
    for each in those:
        if _is(each):
            for number in numbers:
                with suppress(ProcessLookupError, PermissionError):  # one that may not be signalled is reported later
                    os.kill(each.pid, number)


class MemoryUse:
    """Measures memory. `places` are directories inside on the command's own in-memory file systems."""

    def __init__(self, root: Relative, places: Iterable[str]) -> None:
        self._root = root
        self._places = [f"{_PROC}/{root.pid}/root{place}" for place in places]
        self._shared_device = _device_of_anonymous_files()

    def measure(self, enough: int) -> int:
        """Returns bytes; for a result up to `enough`, only an upper bound."""
        pids = list(tree(self._root))
        files = self._anonymous_files(pids)
        in_files = sum(files.values()) + self._scratch()
        if (quick := in_files + sum(map(_estimate, pids))) <= enough:
            return quick
        return in_files + sum(self._measure(pid, files) for pid in pids)

    def _anonymous_files(self, pids: Iterable[int]) -> dict[int, int]:
        """Returns the bytes of each, by inode. Reading descriptors of another user's processes needs a permission."""
        found: dict[int, int] = {}
        left = MOST_DESCRIPTORS
        for pid in pids:
            with suppress(OSError):
                for name in os.listdir(f"{_PROC}/{pid}/fd")[:left]:  # noqa: PTH208  names of descriptors
                    left -= 1
                    with suppress(OSError):
                        seen = os.stat(f"{_PROC}/{pid}/fd/{name}")  # noqa: PTH116  quick: there may be thousands
                        if seen.st_dev == self._shared_device:
                            found[seen.st_ino] = seen.st_blocks * 512
        return found

    def _scratch(self) -> int:
        used = 0
        for place in self._places:
            with suppress(OSError):
                space = os.statvfs(place)
                used += (space.f_blocks - space.f_bfree) * space.f_frsize
        return used

    def _measure(self, pid: int, files: dict[int, int]) -> int:
        """Counts each page divided by its number of users. Pages of files on disk are not counted: they can be
        dropped."""
        text = b""
        with suppress(OSError), open(f"{_PROC}/{pid}/smaps", "rb") as file:  # noqa: PTH123
            text = file.read(MOST_TEXT)
        if not text or len(text) == MOST_TEXT:
            return _estimate(pid)
        total, counted = 0, b"Pss:"
        for line in text.splitlines():
            if mapping := _MAPPING.match(line):
                # Of a file on disk, or one counted already, only pages with private changes count.
                device, inode = os.makedev(int(mapping[1], 16), int(mapping[2], 16)), int(mapping[3])
                own = inode == 0 or (device == self._shared_device and inode not in files)
                counted = b"Pss:" if own else b"Anonymous:"
            elif line.startswith((counted, b"SwapPss:")):
                total += int(line.split()[1])
        return total * _KIB


def tree(root: Relative) -> Iterator[int]:
    """Returns the pids of a running process and of all below it."""
    todo = [root.pid] if _is(root) else []
    for _ in range(MOST_PROCESSES):
        if not todo:
            return
        yield (pid := todo.pop())
        todo += _children(pid)


def written_bytes(root: Relative) -> int:
    """Returns what it and its descendants have written to disks, including ended ones."""
    total = 0
    for pid in tree(root):
        with suppress(OSError):
            found = _WRITTEN.search(_read(f"{_PROC}/{pid}/io"))
            total += int(found[1]) if found else 0
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"{_PROC}/{pid}/task"):  # noqa: PTH208  names of threads
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, _read(f"{_PROC}/{pid}/task/{task}/children").split())
    except OSError:
        return []
    if not found and not os.path.exists(f"{_PROC}/self/task/{os.getpid()}/children"):  # noqa: PTH110
        return [each.pid for each in descendants(pid) if each.parent == pid]
    return found


def _estimate(pid: int) -> int:
    try:
        return sum(map(int, _QUICK.findall(_read(f"{_PROC}/{pid}/status")))) * _KIB
    except OSError:
        return 0


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  quick: it is read often
        return file.read()


def _device_of_anonymous_files() -> int:
    fd = os.memfd_create("palinurus", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
