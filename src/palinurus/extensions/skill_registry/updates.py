"""Skills that were installed from a registry: update them, and verify that they are what was installed.

An update shows what it would change, for a person to decide: files, requirements, rights, addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, PalinurusError, WebError
from palinurus.extensions.skill_registry.archive import installed
from palinurus.extensions.skill_registry.client import RegistryClient
from palinurus.extensions.skill_registry.lock import changing, client_lock, known_pins, set_pin
from palinurus.extensions.skill_registry.operations import fetch_into_quarantine, open_registry
from palinurus.extensions.skill_registry.protocol import WantedSkill, read_version, version_key
from palinurus.extensions.skill_registry.quarantine import QuarantinedSkill
from palinurus.extensions.skill_registry.scan import ScanFinding, ScanReport, scan_bundle
from palinurus.operations.services import Services
from palinurus.skills.manifest import read_manifest
from palinurus.skills.pins import Pin, find_drift
from palinurus.skills.skill import SKILL_FILE, Skill, SkillManifest, restriction_of, restriction_text


class Changes(Struct, frozen=True, rename="camel"):
    before: str  # version
    after: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    lines: tuple[str, ...]  # what else is different, one sentence each
    findings: tuple[ScanFinding, ...] = ()  # hints of the scan that were not there before


def compare(old: Pin, about: SkillManifest | None, report: ScanReport | None, arrival: QuarantinedSkill) -> Changes:
    """`about` and `report` are those of what is installed; None when it cannot be read any more."""
    new = arrival.pin.files
    lines = list(_owner_changes(old, arrival.pin))
    if about is not None:
        lines += _manifest_changes(about, arrival)
    if report is not None:
        lines += _scan_changes(report, arrival.report)
    return Changes(
        before=old.version,
        after=arrival.pin.version,
        added=tuple(path for path in new if path not in old.files),
        removed=tuple(path for path in old.files if path not in new),
        changed=tuple(path for path, digest in new.items() if old.files.get(path, digest) != digest),
        lines=tuple(lines),
        findings=tuple(_new_findings(report, arrival.report)),
    )


def _owner_changes(old: Pin, new: Pin) -> Iterator[str]:
    if old.owner.lower() != new.owner.lower():
        yield f"it belongs to {new.owner or 'no one'} now; before: {old.owner or 'no one'}"
    if old.registry != new.registry:
        yield f"it comes from {new.registry} now; it came from {old.registry}"


def _manifest_changes(old: SkillManifest, arrival: QuarantinedSkill) -> Iterator[str]:
    new = arrival.about
    before = restriction_text(restriction_of(Skill(old, str(arrival.folder), "managed", "", arrival.pin.registry), ""))
    after = restriction_text(restriction_of(Skill(new, str(arrival.folder), "managed", "", arrival.pin.registry), ""))
    if before != after:
        yield f"it may use: {after} (before: {before})"
    if old.name != new.name:
        yield f"it is called {new.name} now (before: {old.name})"
    if old.description != new.description:
        yield "its description has changed"
    for what, was, now in (
        ("programs", (*old.requires.bins, *old.requires.any_bins), (*new.requires.bins, *new.requires.any_bins)),
        ("variables", old.requires.env, new.requires.env),
        ("parts of the config", old.requires.config, new.requires.config),
        ("installs", _install_specs(old), _install_specs(new)),
    ):
        if more := [each for each in now if each not in was]:
            yield f"it asks for more {what}: {', '.join(more[:10])}"


def _install_specs(about: SkillManifest) -> tuple[str, ...]:
    return tuple(f"{each.kind} {each.package or each.url}" for each in about.install)


def _scan_changes(old: ScanReport, new: ScanReport) -> Iterator[str]:
    if scripts := [path for path in new.scripts if path not in old.scripts]:
        yield f"new scripts: {', '.join(scripts[:10])}"
    known = {each.host for each in old.hosts}
    if hosts := [each.host for each in new.hosts if each.host not in known]:
        yield f"new addresses: {', '.join(hosts[:10])}"


def _new_findings(old: ScanReport | None, new: ScanReport) -> Iterator[ScanFinding]:
    seen = {(each.what, each.path, each.text) for each in (old.findings if old else ())}
    yield from (each for each in new.findings if (each.what, each.path, each.text) not in seen)


class Update(Struct, frozen=True):
    """One installed skill and what the registry has for it. Without an `arrival` there is nothing to decide about."""

    folder: Path
    pin: Pin
    said: str  # in a few words
    arrival: QuarantinedSkill | None = None
    changes: Changes | None = None
    failed: bool = False


def updates(services: Services, names: Sequence[str], *, force: bool = False, now_ms: int) -> Iterator[Update]:
    """For the named ones, or for all when none is named, one after the other. One that fails does not keep the rest."""
    for folder, pin in chosen_pins(services, names):
        try:
            yield _update(services, folder, pin, force=force, now_ms=now_ms)
        except (WebError, NotFound, BadRequest) as error:
            yield Update(folder, pin, str(error), failed=True)


def chosen_pins(services: Services, names: Sequence[str], *, gone: bool = False) -> list[tuple[Path, Pin]]:
    pins = known_pins(services.home.root).skills
    known = [(Path(folder), pin) for folder, pin in pins.items() if gone or Path(folder).exists()]
    if not names:
        return known
    for name in names:
        if not any(pin.slug == name for _, pin in known):
            raise NotFound(f"no skill {name!r} was installed from a registry", hint="`pal skills verify` lists them")
    return [(folder, pin) for folder, pin in known if pin.slug in names]


def _update(services: Services, folder: Path, pin: Pin, *, force: bool, now_ms: int) -> Update:
    held = _held(folder, pin)
    if held and not force:
        return Update(folder, pin, held)
    registry = open_registry(services, pin.registry, explicit=False)
    latest = registry.about(pin.slug).latest_version
    drifted = find_drift(str(folder), known_pins(services.home.root))
    changed = drifted.reason if drifted is not None else ""
    if latest is None or not _is_newer(latest.version, pin.version):
        return Update(folder, pin, f"up to date ({pin.version}){f', but {changed}' if changed else ''}")
    if changed and not force:
        return Update(folder, pin, f"{latest.version} is there, but {changed}; --force replaces it", failed=True)
    wanted = WantedSkill(pin.slug, version=read_version(latest.version))
    arrival = fetch_into_quarantine(services, registry, wanted, now_ms)
    changes = compare(pin, *_read_installed(folder), arrival)
    return Update(folder, pin, f"{pin.version} -> {arrival.pin.version}", arrival, changes)


def _held(folder: Path, pin: Pin) -> str:
    """`clawhub pin` holds a skill at its version; we keep to that."""
    skills = client_lock(folder.parent).get("skills")
    entry = skills.get(pin.slug) if isinstance(skills, dict) else None
    if not isinstance(entry, dict) or entry.get("pinned") is not True:
        return ""
    return f"held at {pin.version} by `clawhub pin`"


def _is_newer(latest: str, have: str) -> bool:
    try:
        return version_key(latest) > version_key(have)
    except BadRequest:
        return False


def _read_installed(folder: Path) -> tuple[SkillManifest | None, ScanReport | None]:
    """Manifest and scan of the installed skill; None when it cannot be read any more."""
    try:
        bundle = installed(folder)
        return read_manifest(bundle.files[SKILL_FILE], folder.name), scan_bundle(bundle)
    except PalinurusError:
        return None, None


class VerifiedSkill(Struct, frozen=True, rename="camel", omit_defaults=True):
    slug: str
    version: str
    folder: str
    registry: str
    state: Literal["intact", "drifted", "gone", "unpinned", "blocked", "different", "unknown"]
    said: str = ""

    @property
    def good(self) -> bool:
        return self.state in ("intact", "unpinned")


def verify(services: Services, names: Sequence[str] = (), *, online: bool = False) -> tuple[VerifiedSkill, ...]:
    """The state of each installed skill. Online, the registry is asked too whether that version has changed."""
    found = [_verified(services, folder, pin, online=online) for folder, pin in chosen_pins(services, names, gone=True)]
    return (*found, *(_unpinned(services) if not names else ()))


def forget_gone(services: Services, folder: Path) -> None:
    """Drop the pin of a skill whose folder is gone."""
    with changing(services.home.root):
        set_pin(services.home.root, folder, None)


def _verified(services: Services, folder: Path, pin: Pin, *, online: bool) -> VerifiedSkill:
    row = (pin.slug, pin.version, str(folder), pin.registry)
    if not folder.exists():
        return VerifiedSkill(*row, "gone", "its folder is gone; --forget drops the pin")
    found = find_drift(str(folder), known_pins(services.home.root))
    if found is not None and found.reason:
        return VerifiedSkill(*row, "drifted", f"{found.reason}; `pal skills install {pin.slug} --force` renews it")
    if not online:
        return VerifiedSkill(*row, "intact")
    try:
        return _verified_online(row, open_registry(services, pin.registry, explicit=False), pin)
    except (WebError, NotFound, BadRequest) as error:
        return VerifiedSkill(*row, "unknown", f"intact here; {error}")


def _verified_online(row: tuple[str, str, str, str], registry: RegistryClient, pin: Pin) -> VerifiedSkill:
    moderation = registry.about(pin.slug).moderation
    if moderation is not None and moderation.is_malware_blocked:
        return VerifiedSkill(*row, "blocked", "the registry has blocked it as malware: remove it")
    listed = registry.version(pin.slug, pin.version).version
    files = {each.path: each.sha256 for each in (listed.files or ())} if listed else {}
    wrong = [path for path, digest in files.items() if pin.files.get(path, digest) != digest]
    if wrong:
        return VerifiedSkill(*row, "different", f"the registry has another {wrong[0]} under the same version now")
    held = "the registry marks it as suspicious" if moderation is not None and moderation.is_suspicious else ""
    return VerifiedSkill(*row, "intact", held)


def _unpinned(services: Services) -> Iterator[VerifiedSkill]:
    """What the clawhub command has installed for all agents, and we have no digest of."""
    root = services.home.root / "skills"
    skills = client_lock(root).get("skills")
    pins = known_pins(services.home.root)
    for slug, entry in skills.items() if isinstance(skills, dict) else ():
        folder = root / slug
        if isinstance(entry, dict) and folder.is_dir() and pins.of(str(folder)) is None:
            version = str(entry.get("version") or "")
            yield VerifiedSkill(
                slug, version, str(folder), "clawhub", "unpinned", "installed by another client: no digest"
            )
