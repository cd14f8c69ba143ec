"""A user id that nobody else has, for a sandbox that root starts.

The kernel counts processes by user, so each sandbox gets an id of its own: then its limit counts its own processes
and nobody else's. The ids lie where no system hands any out, above the ranges of people, services and containers.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from palinurus.domain.errors import SandboxError

_FAR, _FAR_MANY = 0x7000_0000, 0x0FFF_0000
_NEAR, _NEAR_MANY = 64_000, 1_500  # in a container that knows 65,536 ids: above systemd's dynamic users, below nobody
_counter = itertools.count()


def free_user(uid_map: str | None = None) -> int:
    """Raises SandboxError where this root knows no other users, as in some containers."""
    known = _known(Path("/proc/self/uid_map").read_text() if uid_map is None else uid_map)
    number = os.getpid() * 4096 + next(_counter) % 4096
    for first, many in ((_FAR, _FAR_MANY), (_NEAR, _NEAR_MANY)):
        if any(start <= first and first + many <= start + length for start, length in known):
            return first + number % many
    raise SandboxError(
        "root knows no other user here, so commands cannot be run without root's rights",
        hint="run pal as an ordinary user, or in a container with at least 65536 user ids",
    )


def _known(uid_map: str) -> list[tuple[int, int]]:
    return [(int(line.split()[0]), int(line.split()[2])) for line in uid_map.splitlines() if line.strip()]
