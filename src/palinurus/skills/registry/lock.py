"""What was installed from a registry, pinned: the lock file of the home, and the records that other clients read.

The digests stand in `<home>/skills.lock.json`, where no agent's file tools reach; a skill in a workspace could else be
changed together with its own pin. Beside the skills we keep what the clawhub command keeps (`.clawhub/lock.json`, and
`.clawhub/origin.json` in each skill), so that either can go on where the other left off.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_error, write_atomic
from palinurus.domain.errors import StorageDamaged, StorageError

LOCK_NAME = "skills.lock.json"
CLIENT = ".clawhub"
MAX_LOCK = 32 * 1024 * 1024


class Pin(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One skill as it was installed."""

    slug: str
    version: str
    registry: str
    digest: str
    installed_at: int
    owner: str = ""
    files: dict[str, str] = {}  # path -> sha256, to say what has drifted


class _Lock(Struct, frozen=True):
    version: int
    skills: dict[str, Pin]  # by real folder


class Pins(Struct, frozen=True):
    """All pins of a home. `damaged` says why there are none when the file cannot be read."""

    skills: Mapping[str, Pin] = {}
    damaged: str = ""
    names: frozenset[str] = frozenset()  # of folders, so that most questions need no look at the disk

    def of(self, folder: str) -> Pin | None:
        if os.path.basename(folder) not in self.names:  # noqa: PTH119  of a text; asked for every skill
            return None
        return self.skills.get(os.path.realpath(folder))


def lock_path(home: Path) -> Path:
    return home / LOCK_NAME


def read_pins(home: Path) -> Pins:
    """Does not raise: a lock that cannot be read pins nothing and says so, and its skills are then refused."""
    path = lock_path(home)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Pins()
    except OSError as error:
        return Pins(damaged=f"{path} cannot be read: {error.strerror}")
    try:
        lock = msgspec.json.decode(data[:MAX_LOCK], type=_Lock)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Pins(damaged=f"{path} is damaged: {error}")
    return Pins(lock.skills, names=frozenset(os.path.basename(folder) for folder in lock.skills))  # noqa: PTH119


def known_pins(home: Path) -> Pins:
    """For those who are about to change something. Raises StorageDamaged."""
    pins = read_pins(home)
    if pins.damaged:
        raise StorageDamaged(pins.damaged, hint="move it away, then install its skills again")
    return pins


def pinned_place(folder: Path) -> str:
    """Under which name a folder is pinned, whether it is there yet or not."""
    return os.path.join(os.path.realpath(folder.parent), folder.name)  # noqa: PTH118


def pin(home: Path, folder: Path, entry: Pin | None) -> None:
    """None takes the pin away. Raises StorageError or StorageDamaged. To be called within `changing`."""
    merged: dict[str, Pin | None] = {**known_pins(home).skills, pinned_place(folder): entry}
    kept = {place: merged[place] for place in sorted(merged) if merged[place] is not None}
    data = msgspec.json.format(msgspec.json.encode({"version": 1, "skills": kept}))
    write_atomic(lock_path(home), data + b"\n")


@contextmanager
def changing(home: Path) -> Iterator[None]:
    """One process changes installed skills at a time; others wait."""
    make_directory(home)
    path = home / f".{LOCK_NAME}.held"
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
    _write(folder / CLIENT / "origin.json", origin)


def list_for_clients(folder: Path, entry: Pin) -> None:
    """The skill in the clawhub command's own lock, which keeps whatever else it says."""
    place = folder.parent.parent / CLIENT / "lock.json"
    lock = client_lock(folder.parent)
    skills = lock.get("skills")
    known = skills if isinstance(skills, dict) else {}
    before = known.get(entry.slug)
    kept = before if isinstance(before, dict) else {}
    known[entry.slug] = {**kept, "version": entry.version, "installedAt": entry.installed_at}
    _write(place, {**lock, "version": 1, "skills": known})


def client_lock(root: Path) -> dict[str, Any]:
    """The clawhub command's own lock for the skills in this folder; empty when there is none that can be read."""
    path = root.parent / CLIENT / "lock.json"
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes()[:MAX_LOCK], type=dict[str, Any])
    return {}


def _write(path: Path, value: dict[str, Any]) -> None:
    if path.parent.is_symlink():  # in a workspace an agent could have made it one
        raise StorageError(f"{path.parent} is a link; nothing is written there")
    make_directory(path.parent)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n", mode=0o644)
