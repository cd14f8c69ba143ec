"""A skill before it is installed: downloaded, checked and written into quarantine, where a person can look at it
first.

Nothing of it ever runs, neither here nor when it is installed. The pin is written before the files are moved, so a
crash in between leaves a skill that is missing or that its pin refuses, never one that passes for something else.

Write the pins and records of installed skills: one process at a time, and nothing through a link.

Beside the skills we write what the clawhub command writes (`.clawhub/lock.json`, and `.clawhub/origin.json` in each
skill), so that either can continue where the other stopped. Pins are read in skills/pins.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_error, storage_errors, write_atomic
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError, StorageDamaged, StorageError, WebError
from palinurus.extensions.skill_registry.bundle import Bundle, read_zip
from palinurus.extensions.skill_registry.client import RegistryClient
from palinurus.extensions.skill_registry.protocol import SkillAnswer, WantedSkill, read_slug, read_version
from palinurus.extensions.skill_registry.scan import ScanReport, scan_bundle
from palinurus.skills.pins import CLIENTS, LOCK, LOCK_NAME, MAX_LOCK, ORIGIN, Pin, Pins, lock_path, read_pins
from palinurus.skills.skill import Skill, SkillManifest, restriction_of, restriction_text

QUARANTINE_SECONDS = 24 * 3600.0  # how long a skill stays in quarantine


class QuarantinedSkill(Struct, frozen=True):
    """A skill in quarantine, with all that is known about it."""

    pin: Pin
    about: SkillManifest
    may_use: str  # in one line
    report: ScanReport
    fingerprint: str
    folder: Path  # in quarantine
    suspicious: str = ""  # what the registry itself holds against it


def fetch(
    registry: RegistryClient, wanted: WantedSkill, quarantine: Path, *, now_ms: int, new_id: str
) -> QuarantinedSkill:
    """Raises WebError, NotFound, or BadRequest with the reason why it is refused; then nothing is left of it."""
    found = registry.about(wanted.slug)
    owner = _checked_owner(found, wanted)
    version = wanted.version or _latest(found, wanted.slug)
    bundle = read_zip(registry.download(wanted.slug, version, wanted.owner), wanted.slug)
    _check_listed(registry, wanted.slug, version, bundle)
    about = bundle.manifest(wanted.slug)
    entry = Pin(
        slug=wanted.slug,
        version=version,
        registry=registry.address,
        digest=bundle.digest,
        installed_at=now_ms,
        owner=owner,
        files={each.path: each.sha256 for each in bundle.records()},
    )
    folder = quarantine / f"{wanted.slug}-{version}-{new_id}"
    sweep(quarantine)
    _lay_out(bundle, folder)
    skill = Skill(about, str(folder), "managed", "", registry.address)
    may_use = restriction_text(restriction_of(skill, str(folder)))
    report, doubt = scan_bundle(bundle), _held_against(found)
    return QuarantinedSkill(entry, about, may_use, report, bundle.fingerprint, folder, doubt)


def install_skill(arrival: QuarantinedSkill, home: Path, root: Path, *, replace: bool = True) -> Path:
    """Pin it, move it to where skills are found, and tell the other clients. Raises BadRequest or StorageError."""
    target = root / read_slug(arrival.pin.slug)
    with changing(home):
        if not replace and os.path.lexists(target):
            raise BadRequest(f"{target} already exists", hint="--force replaces it")
        write_origin(arrival.folder, arrival.pin, arrival.fingerprint)
        before = known_pins(home).skills.get(pinned_place(target))
        set_pin(home, target, arrival.pin)
        try:
            _move(arrival.folder, target)
        except PalinurusError:
            set_pin(home, target, before)
            raise
        list_for_clients(target, arrival.pin)
    return target


def discard(arrival: QuarantinedSkill) -> None:
    shutil.rmtree(arrival.folder, ignore_errors=True)


def sweep(quarantine: Path) -> None:
    """Remove what has been in quarantine for a day."""
    with contextlib.suppress(OSError):
        for each in quarantine.iterdir():
            if time.time() - each.lstat().st_mtime > QUARANTINE_SECONDS:
                shutil.rmtree(each, ignore_errors=True)


def _checked_owner(found: SkillAnswer, wanted: WantedSkill) -> str:
    owner = (found.owner.handle if found.owner else "") or ""
    if wanted.owner and owner.lower() != wanted.owner:
        raise NotFound(f"{wanted.slug} belongs to {owner or 'no one'!r} there, not to {wanted.owner!r}")
    if found.moderation is not None and found.moderation.is_malware_blocked:
        why = f": {found.moderation.summary[:200]}" if found.moderation.summary else ""
        raise BadRequest(f"the registry has blocked {wanted.slug} as malware{why}", hint="it is not installed")
    return owner[:40]


def _latest(found: SkillAnswer, slug: str) -> str:
    if found.latest_version is None:
        raise NotFound(f"the registry has no version of {slug} that can be downloaded")
    try:
        return read_version(found.latest_version.version)
    except BadRequest as error:
        raise WebError(f"the registry's latest version of {slug} is invalid: {error.message}") from None


def _check_listed(registry: RegistryClient, slug: str, version: str, bundle: Bundle) -> None:
    """The registry's own list of files and the archive must not contradict each other."""
    got = {each.path: each.sha256 for each in bundle.records()}
    for each in registry.version(slug, version).files:
        if got.get(each.path, each.sha256.lower()) != each.sha256.lower():
            what = f"{each.path[:100]!r} in the archive"
            raise BadRequest(f"{what} is not the file that the registry lists for {slug}@{version}")


def _held_against(found: SkillAnswer) -> str:
    if found.moderation is None or not found.moderation.is_suspicious:
        return ""
    codes = ", ".join(found.moderation.reason_codes[:5])
    return (found.moderation.summary or codes or "no reason is given")[:300]


def _lay_out(bundle: Bundle, folder: Path) -> None:
    try:
        make_directory(folder)
        for path, data in bundle.files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                file.write(data)
            place.chmod(0o644)  # nothing of it is made a program; who runs a script names what runs it
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise storage_error(error, folder) from error


def _move(source: Path, target: Path) -> None:
    """Whole or not at all, for a reader that looks by its name. What was there comes back when the move fails."""
    mark = source.name[-16:]
    ready, old = target.parent / f".installing-{mark}", target.parent / f".replaced-{mark}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, ready)
        ready.chmod(0o755)
        if replaces := os.path.lexists(target):
            target.rename(old)
        try:
            ready.rename(target)
        except OSError:
            if replaces:
                old.rename(target)
            raise
    except OSError as error:
        raise storage_error(error, target) from error
    finally:
        shutil.rmtree(ready, ignore_errors=True)
        if old.is_symlink():
            old.unlink()
        shutil.rmtree(old, ignore_errors=True)


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


def changing(home: Path) -> AbstractContextManager[None]:
    """One process changes installed skills at a time; others wait."""
    make_directory(home)
    return held(home / f".{LOCK_NAME}.held")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """One process and thread at a time holds this file; others wait. Raises StorageError."""
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
    lock, known = client_lock(folder.parent)
    before = known.get(entry.slug)
    entries = before if isinstance(before, dict) else {}
    known[entry.slug] = {**entries, "version": entry.version, "installedAt": entry.installed_at}
    _write(folder.parent.parent / CLIENT / LOCK, {**lock, "version": 1, "skills": known})


def client_lock(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The clawhub command's own lock for the skills in this folder, and the skills in it; empty when there is none that
    can be read."""
    lock: dict[str, Any] = {}
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        lock = msgspec.json.decode((root.parent / CLIENT / LOCK).read_bytes()[:MAX_LOCK], type=dict[str, Any])
    skills = lock.get("skills")
    return lock, skills if isinstance(skills, dict) else {}


def _write(path: Path, value: dict[str, Any]) -> None:
    if path.parent.is_symlink():  # in a workspace an agent could have made it one
        raise StorageError(f"{path.parent} is a link; nothing is written there")
    make_directory(path.parent)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n", mode=0o644)
