"""All that one command has started, found in /proc, and how it is ended.

A process belongs to the family when it descends from the command, when it is in the command's session, when it carries
the command's cookie in the environment it was started with, or when one of its standard streams is the command's
output. So neither `setsid` nor a double fork nor `nohup` gets away; only a program that does all of that, clears its
environment and closes its streams could. Inside a sandbox there is no such way out: its first process takes the rest
with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

COOKIE = "PALINURUS_RUN"
POLITE_SECONDS = 0.3  # between SIGTERM and SIGKILL
LAST_SECONDS = 5.0  # for the kernel to take down what was killed; only a process stuck in a driver needs as long
_POLL_SECONDS = 0.01
_PROC = Path("/proc")


class Relative(Struct, frozen=True):
    """A process as /proc tells it. A number alone is not one: it is given to somebody else when its owner ends."""

    pid: int
    parent: int
    session: int
    born: int  # clock ticks since the start of the machine


class Marks(Struct, frozen=True):
    """By what members of a family are known. The numbers are nought, and known to nobody, once it was waited for."""

    pid: int = 0
    session: int = 0
    cookie: str = ""
    output: str = ""  # pipe:[123] or /dev/pts/4


def alive(pid: int) -> Relative | None:
    """The process of that number, unless it is gone or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # a name may hold anything, also blanks and brackets
    if fields[0] in (b"Z", b"X"):
        return None
    return Relative(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def everybody() -> list[Relative]:
    names = [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208  names, of which most are no process
    return [found for name in names if (found := alive(int(name))) is not None]


def descendants(pid: int, all_of_them: Iterable[Relative] | None = None) -> list[Relative]:
    """Children first, then theirs; the process itself is not among them."""
    if pid <= 1:  # everybody descends from the first process
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
    """Everybody who belongs to it, with all their descendants; never ourselves, nor anybody we descend from."""
    present = everybody()
    spared = _forebears(present)
    marked = [each for each in present if each.pid not in spared and (each.pid == marks.pid or _marked(each, marks))]
    found = {each.pid: each for each in marked}
    for root in marked:
        found |= {each.pid: each for each in descendants(root.pid, present)}
    return [each for each in found.values() if each.pid not in spared]


def _forebears(present: Iterable[Relative]) -> set[int]:
    """Ourselves, our parents up to the first process, and nought, which stands for the kernel: none is ever ended."""
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
    """End all of them: first politely, then surely. Returns the numbers of those who would not go."""
    if not (found := await asyncio.to_thread(family, marks)):
        return []
    signal_all(found, signal.SIGTERM, signal.SIGCONT)  # who is stopped hears nothing else
    await gone(found, POLITE_SECONDS)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LAST_SECONDS
    while found := await asyncio.to_thread(family, marks):
        if loop.time() > deadline:
            return [each.pid for each in found]
        signal_all(found, signal.SIGSTOP)  # nobody forks any more while we look for those who forked meanwhile
        found = await asyncio.to_thread(family, marks)
        signal_all(found, signal.SIGKILL)
        await gone(found, POLITE_SECONDS)
    return []


async def gone(those: Iterable[Relative], seconds: float) -> list[Relative]:
    """Wait until none of them is left, and not longer. Returns who is."""
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
    """Tell each that is still the one that was found."""
    for each in those:
        if _is(each):
            for number in numbers:
                with suppress(ProcessLookupError, PermissionError):  # who may not be ended is told of at the end
                    os.kill(each.pid, number)
