"""What a person does with a registry: search for skills, install one, publish one.

Nothing here needs a runtime. Installing has two steps with a person between them: `fetch_skill` puts a skill into
quarantine and reports on it, `install_skill` installs it. Only a terminal does that. Publishing works the same way:
what would be sent is shown first, then sent.

Skills that were installed from a registry: update them, and verify that they are what was installed.

An update shows what it would change, for a person to decide: files, requirements, rights, addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.config.agents import agent_settings, default_agent
from palinurus.config.home import env_value
from palinurus.config.load import load_config, resolve_secret, secret_providers
from palinurus.domain.clock import random_id
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError, WebError
from palinurus.extensions.skill_registry import protocol, quarantine
from palinurus.extensions.skill_registry.bundle import Bundle, installed, pack
from palinurus.extensions.skill_registry.client import DEFAULT, RegistryClient, read_address
from palinurus.extensions.skill_registry.quarantine import QuarantinedSkill
from palinurus.extensions.skill_registry.scan import ScanFinding, ScanReport, scan_bundle
from palinurus.operations.services import Services
from palinurus.skills.manifest import read_manifest
from palinurus.skills.pins import Pin, find_drift
from palinurus.skills.settings import SkillsOptions
from palinurus.skills.skill import SKILL_FILE, Skill, SkillManifest, restriction_of, restriction_text

MAX_FOUND = 100


class RegistrySearch(Struct, frozen=True, rename="camel"):
    registry: str
    results: tuple[protocol.FoundSkill, ...]


class PreparedPublication(Struct, frozen=True):
    """What would be published."""

    registry: str
    publication: protocol.Publication
    bundle: Bundle
    report: ScanReport


class PublishedSkill(Struct, frozen=True, rename="camel"):
    registry: str
    slug: str
    version: str
    version_id: str


def open_registry(services: Services, address: str = "", *, explicit: bool = True) -> RegistryClient:
    """The one at the address, else CLAWHUB_REGISTRY, else the config's, else ClawHub. Raises BadRequest.

    A token goes only where a person has sent it: the variable's to the registry of this environment and to one that was
    asked for just now, the config's to the config's.
    """
    loaded = load_config(services.home, services.env)
    options = loaded.config.section(SkillsOptions)
    ours = read_address(options.registry_url or DEFAULT)
    usual = read_address(_first_set(services, "CLAWHUB_REGISTRY", "CLAWHUB_URL") or ours)
    chosen = read_address(address) if address else usual
    token = ""
    if explicit or chosen == usual:
        token = _first_set(services, "CLAWHUB_TOKEN", "CLAWHUB_AUTH_TOKEN")
    if not token and options.registry_token is not None and chosen == ours:
        token = resolve_secret(options.registry_token, loaded.env, secret_providers(loaded)) or ""
    return RegistryClient(chosen, token)


def search(services: Services, words: str, limit: int = 25, address: str = "") -> RegistrySearch:
    if not words.strip():
        raise BadRequest("there is nothing to search for")
    registry = open_registry(services, address)
    answer = registry.search(words, max(1, min(limit, MAX_FOUND)))
    return RegistrySearch(registry.address, answer.results[:MAX_FOUND])


def skills_root(services: Services, *, workspace: bool = False, agent: str = "") -> Path:
    """Where it is installed: for all agents, or in the workspace of one."""
    if not workspace:
        return services.home.root / "skills"
    loaded = load_config(services.home, services.env)
    root = agent_settings(loaded.config, services.home, agent or default_agent(loaded.config)).workspace / "skills"
    if root.is_symlink():  # an agent could have made it one
        raise BadRequest(f"{root} is a link", hint="make it a folder, or install for all agents")
    return root


def fetch_skill(
    services: Services,
    wanted: protocol.WantedSkill,
    *,
    root: Path,
    address: str = "",
    digest: str = "",
    force: bool = False,
    now_ms: int,
) -> QuarantinedSkill:
    """Into quarantine. Raises BadRequest when something of that name already exists and `force` does not say so.

    With a `digest`, as an earlier look at it showed, nothing else will do.
    """
    target = root / wanted.slug
    if target.exists() and not force:
        raise BadRequest(
            f"{target} already exists", hint=f"`pal skills update {wanted.slug}`, or --force to replace it"
        )
    arrival = fetch_into_quarantine(services, open_registry(services, address), wanted, now_ms)
    if digest and arrival.pin.digest.removeprefix("sha256:") != digest.removeprefix("sha256:").lower():
        quarantine.discard(arrival)
        raise BadRequest(f"{wanted.slug} {arrival.pin.version} has another digest there: {arrival.pin.digest}")
    return arrival


def fetch_into_quarantine(
    services: Services, registry: RegistryClient, wanted: protocol.WantedSkill, now_ms: int
) -> QuarantinedSkill:
    folder = services.home.root / "quarantine" / "skills"
    return quarantine.fetch(registry, wanted, folder, now_ms=now_ms, new_id=random_id())


def prepare_publication(
    services: Services, folder: Path, wanted: protocol.Publication, address: str = ""
) -> PreparedPublication:
    """All that `publish` would send, for a person to see. What `wanted` leaves empty is taken from the skill.

    Raises BadRequest for what may not be in a skill.
    """
    registry = open_registry(services, address)
    bundle = pack(folder)
    slug = protocol.read_slug(wanted.slug or _slug_of(folder))
    about = bundle.manifest(slug)
    publication = msgspec.structs.replace(
        wanted,
        slug=slug,
        version=protocol.read_version(wanted.version or about.version or _next_version(registry, slug)),
        display_name=wanted.display_name or about.name,
        owner_handle=wanted.owner_handle.removeprefix("@"),
        accept_license_terms=True,
        tags=tuple(map(protocol.read_tag, wanted.tags)) or ("latest",),
    )
    return PreparedPublication(registry.address, publication, bundle, scan_bundle(bundle))


def publish(services: Services, prepared: PreparedPublication) -> PublishedSkill:
    registry = open_registry(services, prepared.registry)
    answer = registry.publish(prepared.publication, prepared.bundle)
    return PublishedSkill(registry.address, prepared.publication.slug, prepared.publication.version, answer.version_id)


def _first_set(services: Services, *names: str) -> str:
    return next(filter(None, (env_value(services.env, name) for name in names)), "")


def _slug_of(folder: Path) -> str:
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in folder.resolve().name.lower())
    return "-".join(filter(None, kept.split("-")))


def _next_version(registry: RegistryClient, slug: str) -> str:
    try:
        latest = registry.about(slug).latest_version
    except NotFound:
        return "1.0.0"
    return protocol.next_patch(latest.version) if latest is not None else "1.0.0"


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
    skills = (Skill(about, str(arrival.folder), "managed", "", arrival.pin.registry) for about in (old, new))
    before, after = (restriction_text(restriction_of(skill, "")) for skill in skills)
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
    pins = quarantine.known_pins(services.home.root).skills
    known = [(Path(folder), pin) for folder, pin in pins.items() if gone or Path(folder).exists()]
    for name in names:
        if not any(pin.slug == name for _, pin in known):
            raise NotFound(f"no skill {name!r} was installed from a registry", hint="`pal skills verify` lists them")
    return [(folder, pin) for folder, pin in known if not names or pin.slug in names]


def _update(services: Services, folder: Path, pin: Pin, *, force: bool, now_ms: int) -> Update:
    if (held := _held(folder, pin)) and not force:
        return Update(folder, pin, held)
    registry = open_registry(services, pin.registry, explicit=False)
    latest = registry.about(pin.slug).latest_version
    drifted = find_drift(str(folder), quarantine.known_pins(services.home.root))
    changed = drifted.reason if drifted is not None else ""
    if latest is None or not _is_newer(latest.version, pin.version):
        return Update(folder, pin, f"up to date ({pin.version}){f', but {changed}' if changed else ''}")
    if changed and not force:
        return Update(folder, pin, f"{latest.version} is there, but {changed}; --force replaces it", failed=True)
    wanted = protocol.WantedSkill(pin.slug, version=protocol.read_version(latest.version))
    arrival = fetch_into_quarantine(services, registry, wanted, now_ms)
    changes = compare(pin, *_read_installed(folder), arrival)
    return Update(folder, pin, f"{pin.version} -> {arrival.pin.version}", arrival, changes)


def _held(folder: Path, pin: Pin) -> str:
    """`clawhub pin` holds a skill at its version; we keep to that."""
    entry = quarantine.client_lock(folder.parent)[1].get(pin.slug)
    pinned = isinstance(entry, dict) and entry.get("pinned") is True
    return f"held at {pin.version} by `clawhub pin`" if pinned else ""


def _is_newer(latest: str, have: str) -> bool:
    try:
        return protocol.version_key(latest) > protocol.version_key(have)
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
    with quarantine.changing(services.home.root):
        quarantine.set_pin(services.home.root, folder, None)


def _verified(services: Services, folder: Path, pin: Pin, *, online: bool) -> VerifiedSkill:
    row = (pin.slug, pin.version, str(folder), pin.registry)
    if not folder.exists():
        return VerifiedSkill(*row, "gone", "its folder is gone; --forget drops the pin")
    found = find_drift(str(folder), quarantine.known_pins(services.home.root))
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
    files = registry.version(pin.slug, pin.version).files
    wrong = [each.path for each in files if pin.files.get(each.path, each.sha256) != each.sha256]
    if wrong:
        return VerifiedSkill(*row, "different", f"the registry has another {wrong[0]} under the same version now")
    held = "the registry marks it as suspicious" if moderation is not None and moderation.is_suspicious else ""
    return VerifiedSkill(*row, "intact", held)


def _unpinned(services: Services) -> Iterator[VerifiedSkill]:
    """What the clawhub command has installed for all agents, and we have no digest of."""
    root, pins = services.home.root / "skills", quarantine.known_pins(services.home.root)
    why = "installed by another client: no digest"
    for slug, entry in quarantine.client_lock(root)[1].items():
        folder = root / slug
        if isinstance(entry, dict) and folder.is_dir() and pins.of(str(folder)) is None:
            yield VerifiedSkill(slug, str(entry.get("version") or ""), str(folder), "clawhub", "unpinned", why)
