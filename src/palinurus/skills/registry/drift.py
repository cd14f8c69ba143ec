"""Whether a skill from a registry is still what a person agreed to: every file by its digest, nothing added, no links.

The catalog asks this when it looks at a skill anew, and keeps the places that were looked at: as long as all of them
look the same, so does the answer.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping

from msgspec import Struct

from palinurus.skills.registry.bundle import MAX_FILE, MAX_FILES, digest_of
from palinurus.skills.registry.lock import CLIENT, Pin, Pins

MAX_ENTRIES = 4 * MAX_FILES
_ORIGIN = (f"{CLIENT}/origin.json", ".clawdhub/origin.json")  # written by clients, after the bundle


class Drift(Struct, frozen=True):
    """How a pinned skill stands. An empty `reason`: it is what was installed."""

    registry: str
    reason: str = ""
    places: tuple[str, ...] = ()  # files and folders that were looked at


class Differences(Struct, frozen=True):
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()  # links, devices, what cannot be read

    def __bool__(self) -> bool:
        return any((self.changed, self.added, self.missing, self.odd))


def drift(folder: str, pins: Pins, registry: str = "") -> Drift | None:
    """None: this skill is pinned nowhere. `registry` is what its own records say about where it came from."""
    if pins.damaged:
        return Drift(registry, f"{pins.damaged}, so nobody can say whether it was changed") if registry else None
    entry = pins.of(folder)
    if entry is None:
        return None
    found, odd, places = look(folder)
    if not odd and digest_of(found) == entry.digest:
        return Drift(entry.registry, places=places)
    return Drift(entry.registry, told(differences(entry, found, odd)), places)


def differences(entry: Pin, found: Mapping[str, str], odd: tuple[str, ...]) -> Differences:
    return Differences(
        changed=tuple(path for path, digest in entry.files.items() if path in found and found[path] != digest),
        added=tuple(path for path in found if path not in entry.files),
        missing=tuple(path for path in entry.files if path not in found),
        odd=odd,
    )


def told(found: Differences) -> str:
    parts = [
        f"{len(paths)} {what} ({', '.join(ascii(path)[1:-1] for path in paths[:3])}{', …' if len(paths) > 3 else ''})"
        for what, paths in (
            ("changed", found.changed),
            ("added", found.added),
            ("missing", found.missing),
            ("of no plain kind", found.odd),
        )
        if paths
    ]
    return f"it is not what was installed: {', '.join(parts) or 'its pin does not match'}"


def look(folder: str) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Paths with their sha256, what is no plain file, and all places that were looked at. Follows no link."""
    found: dict[str, str] = {}
    odd: list[str] = []
    places: list[str] = []
    _enter(folder, "", found, odd, places)
    return found, tuple(odd), tuple(places)


def _enter(folder: str, inner: str, found: dict[str, str], odd: list[str], places: list[str]) -> None:
    places.append(folder)
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        odd.append(inner or ".")
        return
    for entry in listed:
        path = f"{inner}/{entry.name}" if inner else entry.name
        if path in _ORIGIN:
            continue
        if len(places) > MAX_ENTRIES:
            odd.append(path)
            return
        if entry.is_dir(follow_symlinks=False):
            _enter(entry.path, path, found, odd, places)
            continue
        places.append(entry.path)
        digest = _digest(entry.path)
        if digest:
            found[path] = digest
        else:
            odd.append(path)


def _digest(path: str) -> str:
    """Empty for what is no plain file of a size that a bundle may have."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > MAX_FILE:
            return ""
        return hashlib.sha256(file.read(MAX_FILE + 1)).hexdigest()
