"""Limits as the kernel takes them.

Memory is RLIMIT_DATA: what a process has made its own and may write. RLIMIT_AS would also count what Node, Java and Go
merely reserve, tens of gigabytes at their start, and so could only be set uselessly high. Memory that is shared between
processes is not counted by it.
"""

from __future__ import annotations

import resource

from palinurus.sandbox.sandbox import Limits

CPU_GRACE = 2  # seconds between SIGXCPU, which a program may handle, and SIGKILL


def as_rlimits(limits: Limits, *, processes: bool) -> dict[int, tuple[int, int]]:
    """Soft and hard, by resource. Nought is no limit; nobody dumps core, whatever is said."""
    told = {
        resource.RLIMIT_DATA: (limits.memory_bytes, limits.memory_bytes),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_CPU: (limits.cpu_seconds, limits.cpu_seconds and limits.cpu_seconds + CPU_GRACE),
        resource.RLIMIT_NPROC: (limits.processes, limits.processes) if processes else (0, 0),
    }
    return {kind: pair for kind, pair in told.items() if pair[0]} | {resource.RLIMIT_CORE: (0, 0)}


def lower(pid: int, wanted: dict[int, tuple[int, int]]) -> None:
    """Set them for another process, as far as its own hard limits do not lie below. Linux only."""
    for kind, (soft, hard) in wanted.items():
        most = resource.prlimit(pid, kind)[1]
        resource.prlimit(pid, kind, (_lower(soft, most), _lower(hard, most)))


def _lower(wanted: int, most: int) -> int:
    return wanted if most == resource.RLIM_INFINITY else min(wanted, most)
