"""Write the pins and records of installed skills: one process at a time, and nothing through a link.

Beside the skills we write what the clawhub command writes (`.clawhub/lock.json`, and `.clawhub/origin.json` in each
skill), so that either can continue where the other stopped. Pins are read in skills/pins.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.domain.errors import StorageDamaged, StorageError
from palinurus.skills.pins import CLIENTS, LOCK, LOCK_NAME, MAX_LOCK, ORIGIN, Pin, Pins, lock_path, read_pins

CLIENT = CLIENTS[0]


def known_pins(home: Path) -> Pins:
    """For those who are about to change something. Raises StorageDamaged."""
    pins = read_pins(home)
    if pins.damaged:
        raise StorageDamaged(pins.damaged, hint="move it away, then install its skills again")
    return pins


def pinned_place(folder: Path) -> str:
    """Under which name a folder is pinned, whether it is there yet or not."""
    return os.path.join(os.path.realpath(folder.parent), folder.name)  # noqa: PTH118


def set_pin(home: Path, folder: Path, entry: Pin | None) -> None:
    """None takes the pin away. Raises StorageError or StorageDamaged. To be called within `changing`."""
    merged: dict[str, Pin | None] = {**known_pins(home).skills, pinned_place(folder): entry}
    entries = {place: merged[place] for place in sorted(merged) if merged[place] is not None}
    data = msgspec.json.format(msgspec.json.encode({"version": 1, "skills": entries}))
    write_atomic(lock_path(home), data + b"\n")


@contextmanager
def changing(home: Path) -> Iterator[None]:
    """One process changes installed skills at a time; others wait."""
    make_directory(home)
    path = home / f".{LOCK_NAME}.held"
    with held(path):
        yield


@contextmanager
def held(path: Path) -> Iterator[None]:
    """One process and thread at a time holds this file; others wait. Raises StorageError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_origin(folder: Path, entry: Pin, fingerprint: str) -> None:
    """The record inside a skill, as the clawhub command would have written it."""
    origin = {
        "version": 1,
        "registry": entry.registry,
        "slug": entry.slug,
        "installedVersion": entry.version,
        "installedAt": entry.installed_at,
        "fingerprint": fingerprint,
    }
    _write(folder / CLIENT / ORIGIN, origin)


def list_for_clients(folder: Path, entry: Pin) -> None:
    """The skill in the clawhub command's own lock, which keeps whatever else it says."""
    place = folder.parent.parent / CLIENT / LOCK
    lock = client_lock(folder.parent)
    skills = lock.get("skills")
    known = skills if isinstance(skills, dict) else {}
    before = known.get(entry.slug)
    entries = before if isinstance(before, dict) else {}
    known[entry.slug] = {**entries, "version": entry.version, "installedAt": entry.installed_at}
    _write(place, {**lock, "version": 1, "skills": known})


def client_lock(root: Path) -> dict[str, Any]:
    """The clawhub command's own lock for the skills in this folder; empty when there is none that can be read."""
    path = root.parent / CLIENT / LOCK
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes()[:MAX_LOCK], type=dict[str, Any])
    return {}


def _write(path: Path, value: dict[str, Any]) -> None:
    if path.parent.is_symlink():  # in a workspace an agent could have made it one
        raise StorageError(f"{path.parent} is a link; nothing is written there")
    make_directory(path.parent)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n", mode=0o644)
