"""Publish a skill of one's own: what would be sent is shown first, then sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import NotFound
from palinurus.operations.config import Ground
from palinurus.operations.skill_registry import open_registry
from palinurus.skills.registry.bundle import Bundle
from palinurus.skills.registry.client import Registry
from palinurus.skills.registry.names import Version, read_slug, read_tag, read_version
from palinurus.skills.registry.packing import pack
from palinurus.skills.registry.scan import ScanReport, scan_bundle
from palinurus.skills.registry.wire import Publication
from palinurus.skills.skill import Manifest


class Prepared(Struct, frozen=True):
    """What would be published."""

    registry: str
    publication: Publication
    bundle: Bundle
    about: Manifest
    report: ScanReport


class Published(Struct, frozen=True, rename="camel"):
    registry: str
    slug: str
    version: str
    version_id: str


def prepare_publication(
    ground: Ground,
    folder: Path,
    *,
    slug: str = "",
    name: str = "",
    version: str = "",
    changelog: str = "",
    tags: Sequence[str] = (),
    owner: str = "",
    address: str = "",
) -> Prepared:
    """All that `publish` would send, for a person to see. Raises BadRequest for what may not be in a skill."""
    registry = open_registry(ground, address)
    bundle = pack(folder)
    chosen = read_slug(slug or _slug_of(folder))
    about = bundle.manifest(chosen)
    publication = Publication(
        slug=chosen,
        version=read_version(version or about.version or _next_version(registry, chosen)),
        display_name=name or about.name,
        owner_handle=owner.removeprefix("@"),
        changelog=changelog,
        accept_license_terms=True,
        tags=tuple(map(read_tag, tags)) or ("latest",),
    )
    return Prepared(registry.address, publication, bundle, about, scan_bundle(bundle))


def publish(ground: Ground, prepared: Prepared) -> Published:
    registry = open_registry(ground, prepared.registry)
    answer = registry.publish(prepared.publication, prepared.bundle)
    return Published(registry.address, prepared.publication.slug, prepared.publication.version, answer.version_id)


def _slug_of(folder: Path) -> str:
    name = folder.resolve().name.lower()
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in name)
    return "-".join(filter(None, kept.split("-")))


def _next_version(registry: Registry, slug: str) -> str:
    try:
        latest = registry.about(slug).latest_version
    except NotFound:
        return "1.0.0"
    return Version.read(latest.version).next_patch() if latest is not None else "1.0.0"
