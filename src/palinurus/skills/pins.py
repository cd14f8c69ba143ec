"""Where a skill came from, and whether one from a registry is still what was installed.

Installed skills are pinned by digest in `<home>/skills.lock.json`, which no file tool of an agent can reach; in a
workspace, a skill could be changed together with its pin. A pinned skill is compared file by file, with nothing added
and no links, whenever the catalog scans it again; the checked paths are stored with the result, which is valid as long
as all of them are unchanged. The extension skill_registry writes the pins. Of the clawhub command's records
(`.clawhub/lock.json` beside the skills, `.clawhub/origin.json` in each) we only read where a skill came from.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from palinurus.workspace.walk import walk_tree

LOCK_NAME = "skills.lock.json"
MAX_LOCK = 32 * 1024 * 1024
MAX_FILES = 1_000  # of one skill
MAX_FILE = 5 * 1024 * 1024
MAX_ENTRIES = 4 * MAX_FILES
CLIENTS = (".clawhub", ".clawdhub")  # folders with the records of a registry's client; the second is the older name
LOCK, ORIGIN = "lock.json", "origin.json"
_ORIGINS = tuple(f"{client}/{ORIGIN}" for client in CLIENTS)  # written by clients after the bundle


class Pin(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One skill as it was installed."""

    slug: str
    version: str
    registry: str
    digest: str
    installed_at: int
    owner: str = ""
    files: dict[str, str] = {}  # path -> sha256, to say what has changed


class _Lock(Struct, frozen=True):
    version: int
    skills: dict[str, Pin]  # by real folder


class Pins(Struct, frozen=True):
    """All pins of a home. `damaged` says why there are none if the file cannot be read."""

    skills: Mapping[str, Pin] = {}
    damaged: str = ""
    names: frozenset[str] = frozenset()  # of folders, so that most checks need no disk access

    def of(self, folder: str) -> Pin | None:
        named = os.path.basename(folder) in self.names  # noqa: PTH119  of a text; asked for every skill
        return self.skills.get(os.path.realpath(folder)) if named else None


class Drift(Struct, frozen=True):
    """The state of a pinned skill. An empty `reason`: it is what was installed."""

    registry: str
    reason: str = ""
    places: tuple[str, ...] = ()  # files and folders that were checked


def lock_path(home: Path) -> Path:
    return home / LOCK_NAME


def read_pins(home: Path) -> Pins:
    """Reads the pins. Does not raise: an unreadable lock pins nothing and says so, and its skills are then refused."""
    path = lock_path(home)
    try:
        lock = msgspec.json.decode(path.read_bytes()[:MAX_LOCK], type=_Lock)
    except FileNotFoundError:
        return Pins()
    except OSError as error:
        return Pins(damaged=f"{path} cannot be read: {error.strerror}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Pins(damaged=f"{path} is damaged: {error}")
    return Pins(lock.skills, names=frozenset(os.path.basename(folder) for folder in lock.skills))  # noqa: PTH119


def find_drift(folder: str, pins: Pins, registry: str = "") -> Drift | None:
    """Returns None if this skill is not pinned. `registry` is the origin in its own records."""
    if pins.damaged:
        return Drift(registry, f"{pins.damaged}, so changes to it cannot be detected") if registry else None
    entry = pins.of(folder)
    if entry is None:
        return None
    found = _find_files(folder)
    same = not found.odd and digest_of(found.files) == entry.digest
    return Drift(entry.registry, "" if same else _drift_text(entry, found), tuple(found.places))


def digest_of(files: Mapping[str, str]) -> str:
    """Returns one digest for paths with the sha256 of their content."""
    whole = hashlib.sha256()
    for path, digest in sorted(files.items()):
        whole.update(f"{path}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return f"sha256:{whole.hexdigest()}"


class _FoundFiles(NamedTuple):
    files: dict[str, str]  # path -> sha256
    odd: list[str]  # what is not a regular file, or cannot be read
    places: list[str]


def _find_files(folder: str) -> _FoundFiles:
    """Returns what is in a skill's folder. Follows no link."""
    found = _FoundFiles({}, [], [folder])
    for path, entry in walk_tree(folder, on_error=lambda path, _: found.odd.append(path), max_entries=MAX_ENTRIES):
        if path in _ORIGINS:
            continue
        if len(found.places) > MAX_ENTRIES:
            found.odd.append(path)
            break
        found.places.append(entry.path)
        if not entry.is_dir(follow_symlinks=False):
            if (data := read_plain(entry.path)) is None:
                found.odd.append(path)
            else:
                found.files[path] = hashlib.sha256(data).hexdigest()
    return found


def read_plain(path: str) -> bytes | None:
    """Returns the content of a regular file of a size allowed in a bundle; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        data = file.read(MAX_FILE + 1)
    return data if len(data) <= MAX_FILE else None


def _drift_text(entry: Pin, found: _FoundFiles) -> str:
    differences = {
        "changed": [path for path, digest in entry.files.items() if found.files.get(path, digest) != digest],
        "added": [path for path in found.files if path not in entry.files],
        "missing": [path for path in entry.files if path not in found.files],
        "of no plain kind": found.odd,
    }
    parts = [
        f"{len(paths)} {what} ({', '.join(ascii(path)[1:-1] for path in paths[:3])}{', …' if len(paths) > 3 else ''})"
        for what, paths in differences.items()
        if paths
    ]
    return f"it is not what was installed: {', '.join(parts) or 'its pin does not match'}"


def client_locks(root: str) -> tuple[str, ...]:
    """Returns the files beside a root in which a registry's client lists what it has installed there."""
    above = os.path.dirname(root)  # noqa: PTH120  of a text
    return tuple(f"{above.rstrip('/')}/{client}/{LOCK}" for client in CLIENTS)


def client_installs(root: str) -> Mapping[str, str]:
    """Returns the folder names below a root that the lock of a registry's client lists, with the registry."""
    locks = zip(client_locks(root), CLIENTS, strict=True)
    return {slug: client.removeprefix(".") for lock, client in locks for slug in _slugs(lock)}


def _slugs(lock: str) -> Iterator[str]:
    with suppress(OSError, msgspec.DecodeError):
        data = Path(lock).read_bytes()[: 4 * 1024 * 1024]
        skills = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("skills")
        if skills is not None:
            yield from (slug.rsplit("/", 1)[-1] for slug in msgspec.json.decode(skills, type=dict[str, msgspec.Raw]))


def registry_of(folder: str, listed: Mapping[str, str]) -> str:
    """Returns where a skill was installed from, by its own record or the client's `listed`; either is enough."""
    for client in CLIENTS:
        try:
            with open(f"{folder}/{client}/{ORIGIN}", "rb") as file:  # noqa: PTH123  for every skill
                data = file.read(65_536)
        except OSError:
            continue
        with suppress(msgspec.DecodeError):
            registry = msgspec.json.decode(data, type=dict[str, object]).get("registry")
            return str(registry)[:200] if registry else client.removeprefix(".")
        return client.removeprefix(".")
    return listed.get(os.path.basename(folder), "")  # noqa: PTH119  of a text
