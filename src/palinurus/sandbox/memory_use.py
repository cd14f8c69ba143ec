"""The memory of one command in all: of its processes together, of what they share, of files that lie in memory.

The kernel's limits hold for each process and do not count what is shared. So this adds up, from /proc, what everybody
below the command's first process has made its own, the anonymous files (memfd) that they hold open, whether mapped or
not, and the file systems in memory that were made for the command. A quick look counts what is shared more than once;
only when that is too much an exact one follows, which costs more. Not to be seen from outside: an anonymous file that
is in nobody's hands but under way in a socket, and shared memory that its owner has let go of without freeing it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from palinurus.sandbox.family import Relative, alive, descendants

MOST_PROCESSES = 1_024  # that one look counts
MOST_DESCRIPTORS = 10_000
MOST_TEXT = 4 * 1024 * 1024  # of one process's list of mappings; who has a longer one is counted by the quick look
_KIB = 1024
_QUICK = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
_WRITTEN = re.compile(rb"^write_bytes: (\d+)", re.MULTILINE)
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)")
_PROC = "/proc"


class MemoryUse:
    """`places` are directories inside on file systems in memory of the command's own."""

    def __init__(self, root: Relative, places: Iterable[str]) -> None:
        self._root = root
        self._places = [f"{_PROC}/{root.pid}/root{place}" for place in places]
        self._shared_device = _device_of_anonymous_files()

    def measure(self, enough: int) -> int:
        """Bytes; of what is not more than `enough` only the most that it can be."""
        pids = list(tree(self._root))
        files = self._anonymous_files(pids)
        lying = sum(files.values()) + self._scratch()
        if (quick := lying + sum(map(_quickly, pids))) <= enough:
            return quick
        return lying + sum(self._exactly(pid, files) for pid in pids)

    def _anonymous_files(self, pids: Iterable[int]) -> dict[int, int]:
        """Bytes of each, by inode. Descriptors of another user's processes cannot be read without a right to it."""
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

    def _exactly(self, pid: int, files: dict[int, int]) -> int:
        """A share of each page, as many as use it. Pages of files on a disk are not counted: they can be dropped."""
        try:
            with open(f"{_PROC}/{pid}/smaps", "rb") as file:  # noqa: PTH123
                text = file.read(MOST_TEXT)
        except OSError:
            return _quickly(pid)
        if len(text) == MOST_TEXT:
            return _quickly(pid)
        total, counted = 0, b"Pss:"
        for line in text.splitlines():
            if mapping := _MAPPING.match(line):
                counted = b"Pss:" if self._is_own(mapping, files) else b"Anonymous:"
            elif line.startswith((counted, b"SwapPss:")):
                total += int(line.split()[1])
        return total * _KIB

    def _is_own(self, mapping: re.Match[bytes], files: dict[int, int]) -> bool:
        """Whether it is memory, and not a file: one on a disk, or in memory and counted as such. Of a file only those
        pages count that were changed without it."""
        device, inode = os.makedev(int(mapping[1], 16), int(mapping[2], 16)), int(mapping[3])
        return inode == 0 or (device == self._shared_device and inode not in files)


def tree(root: Relative) -> Iterator[int]:
    """The numbers of a process and of all below it, while it lives."""
    if (now := alive(root.pid)) is None or now.born != root.born:
        return
    todo = [root.pid]
    for _ in range(MOST_PROCESSES):
        if not todo:
            return
        yield (pid := todo.pop())
        todo += _children(pid)


def written_bytes(root: Relative) -> int:
    """What it has sent to disks, with everybody below it, those included who have ended."""
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
    if not found and not _tells_children():
        return [each.pid for each in descendants(pid) if each.parent == pid]
    return found


def _tells_children() -> bool:
    return os.path.exists(f"{_PROC}/self/task/{os.getpid()}/children")  # noqa: PTH110


def _quickly(pid: int) -> int:
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
