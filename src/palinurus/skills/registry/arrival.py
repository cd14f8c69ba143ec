"""A skill on its way in: fetched, checked and laid into quarantine, where a person may look at it before saying yes.

Nothing of it runs, ever: not here and not when it is put in place. The pin comes first and the files come after it, so
a crash in between leaves a skill that is missing or that its pin refuses, never one that passes for something else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_error
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError, WebError
from palinurus.skills.capabilities import restriction_of, told
from palinurus.skills.registry.bundle import Bundle
from palinurus.skills.registry.client import Registry
from palinurus.skills.registry.lock import (
    Pin,
    changing,
    known_pins,
    list_for_clients,
    pin,
    pinned_place,
    write_origin,
)
from palinurus.skills.registry.names import Wanted, read_slug, read_version
from palinurus.skills.registry.scan import ScanReport, scan_bundle
from palinurus.skills.registry.wire import SkillAnswer
from palinurus.skills.registry.zipped import read_zip
from palinurus.skills.skill import Manifest, Skill

KEPT_SECONDS = 24 * 3600.0  # how long somebody may look at what lies in quarantine


class Arrival(Struct, frozen=True):
    """What lies in quarantine, and all that can be said about it."""

    pin: Pin
    about: Manifest
    may_use: str  # in one line
    report: ScanReport
    fingerprint: str
    folder: Path  # in quarantine
    suspicious: str = ""  # what the registry itself holds against it


def fetch(registry: Registry, wanted: Wanted, quarantine: Path, *, now_ms: int, new_id: str) -> Arrival:
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
    may_use = told(restriction_of(skill, str(folder)))
    return Arrival(entry, about, may_use, scan_bundle(bundle), bundle.fingerprint, folder, _held_against(found))


def put_in_place(arrival: Arrival, home: Path, root: Path, *, replace: bool = True) -> Path:
    """Pin it, move it to where skills are found, and tell the other clients. Raises BadRequest or StorageError."""
    target = root / read_slug(arrival.pin.slug)
    with changing(home):
        if not replace and os.path.lexists(target):
            raise BadRequest(f"{target} is there already", hint="--force replaces it")
        write_origin(arrival.folder, arrival.pin, arrival.fingerprint)
        before = known_pins(home).skills.get(pinned_place(target))
        pin(home, target, arrival.pin)
        try:
            _move(arrival.folder, target)
        except PalinurusError:
            pin(home, target, before)
            raise
        list_for_clients(target, arrival.pin)
    return target


def discard(arrival: Arrival) -> None:
    shutil.rmtree(arrival.folder, ignore_errors=True)


def sweep(quarantine: Path) -> None:
    """What nobody has decided about for a day goes."""
    with contextlib.suppress(OSError):
        for each in quarantine.iterdir():
            if time.time() - each.lstat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(each, ignore_errors=True)


def _checked_owner(found: SkillAnswer, wanted: Wanted) -> str:
    owner = (found.owner.handle if found.owner else "") or ""
    if wanted.owner and owner.lower() != wanted.owner:
        raise NotFound(f"{wanted.slug} belongs to {owner or 'nobody'!r} there, not to {wanted.owner!r}")
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
        raise WebError(f"the registry's latest version of {slug} makes no sense: {error.message}") from None


def _check_listed(registry: Registry, slug: str, version: str, bundle: Bundle) -> None:
    """The registry's own list of files and the archive must not contradict each other."""
    listed = registry.version(slug, version).version
    if listed is None or not listed.files:
        return
    got = {each.path: each.sha256 for each in bundle.records()}
    wrong = [each.path for each in listed.files if each.path in got and got[each.path] != each.sha256.lower()]
    if wrong:
        raise BadRequest(
            f"{wrong[0][:100]!r} in the archive is not the file that the registry lists for {slug}@{version}"
        )


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
    """Whole or not at all, as seen by somebody who looks by its name."""
    mark = source.name[-16:]
    ready, old = target.parent / f".installing-{mark}", target.parent / f".replaced-{mark}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _bring(source, ready)
        with _put_aside(target, old):
            ready.rename(target)
    except OSError as error:
        raise storage_error(error, target) from error
    finally:
        shutil.rmtree(ready, ignore_errors=True)
        if old.is_symlink():
            old.unlink()
        shutil.rmtree(old, ignore_errors=True)


def _bring(source: Path, ready: Path) -> None:
    try:
        source.rename(ready)
    except OSError:  # another disk
        shutil.copytree(source, ready)
        shutil.rmtree(source, ignore_errors=True)
    ready.chmod(0o755)


@contextlib.contextmanager
def _put_aside(target: Path, old: Path) -> Iterator[None]:
    """What was there comes back if the new one cannot take its place."""
    was_there = os.path.lexists(target)
    if was_there:
        target.rename(old)
    try:
        yield
    except OSError:
        if was_there:
            old.rename(target)
        raise
