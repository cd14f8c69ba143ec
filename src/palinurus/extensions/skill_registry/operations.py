"""What a person does with a registry: search for skills, install one, publish one.

Nothing here needs a runtime. Installing has two steps with a person between them: `fetch_skill` puts a skill into
quarantine and reports on it, `install_skill` installs it. Only a terminal does that. Publishing works the same way:
what would be sent is shown first, then sent.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from palinurus.config.agents import agent_settings, default_agent
from palinurus.config.home import env_value
from palinurus.config.load import load_config, resolve_secret, secret_providers
from palinurus.domain.clock import random_id
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.extensions.skill_registry import protocol
from palinurus.extensions.skill_registry.archive import pack
from palinurus.extensions.skill_registry.bundle import Bundle
from palinurus.extensions.skill_registry.client import DEFAULT, RegistryClient, read_address
from palinurus.extensions.skill_registry.quarantine import QuarantinedSkill, discard, fetch
from palinurus.extensions.skill_registry.scan import ScanReport, scan_bundle
from palinurus.operations.services import Services
from palinurus.skills.settings import SkillsOptions

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
        discard(arrival)
        raise BadRequest(f"{wanted.slug} {arrival.pin.version} has another digest there: {arrival.pin.digest}")
    return arrival


def fetch_into_quarantine(
    services: Services, registry: RegistryClient, wanted: protocol.WantedSkill, now_ms: int
) -> QuarantinedSkill:
    return fetch(registry, wanted, services.home.root / "quarantine" / "skills", now_ms=now_ms, new_id=random_id())


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
    name = folder.resolve().name.lower()
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in name)
    return "-".join(filter(None, kept.split("-")))


def _next_version(registry: RegistryClient, slug: str) -> str:
    try:
        latest = registry.about(slug).latest_version
    except NotFound:
        return "1.0.0"
    return protocol.next_patch(latest.version) if latest is not None else "1.0.0"
