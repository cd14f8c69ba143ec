"""Whether skills from a registry are still what a person agreed to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotFound, WebError
from palinurus.operations.config import Ground
from palinurus.operations.skill_registry import chosen_pins, open_registry
from palinurus.skills.registry.client import Registry
from palinurus.skills.registry.drift import drift
from palinurus.skills.registry.lock import Pin, changing, client_lock, known_pins, pin


class Verified(Struct, frozen=True, rename="camel", omit_defaults=True):
    slug: str
    version: str
    folder: str
    registry: str
    state: Literal["intact", "drifted", "gone", "unpinned", "blocked", "different", "unknown"]
    said: str = ""

    @property
    def good(self) -> bool:
        return self.state in ("intact", "unpinned")


def verify(ground: Ground, names: Sequence[str] = (), *, online: bool = False) -> tuple[Verified, ...]:
    """How each installed skill stands. Online, the registry is asked too whether that version is what it was."""
    found = [_verified(ground, folder, pin, online=online) for folder, pin in chosen_pins(ground, names, gone=True)]
    return (*found, *(_unpinned(ground) if not names else ()))


def forget_gone(ground: Ground, folder: Path) -> None:
    """Drop the pin of a skill whose folder is gone."""
    with changing(ground.home.root):
        pin(ground.home.root, folder, None)


def _verified(ground: Ground, folder: Path, pin: Pin, *, online: bool) -> Verified:
    row = (pin.slug, pin.version, str(folder), pin.registry)
    if not folder.exists():
        return Verified(*row, "gone", "its folder is gone; --forget drops the pin")
    found = drift(str(folder), known_pins(ground.home.root))
    if found is not None and found.reason:
        return Verified(*row, "drifted", f"{found.reason}; `pal skills install {pin.slug} --force` renews it")
    if not online:
        return Verified(*row, "intact")
    try:
        return _asked(row, open_registry(ground, pin.registry, asked=False), pin)
    except (WebError, NotFound, BadRequest) as error:
        return Verified(*row, "unknown", f"intact here; {error}")


def _asked(row: tuple[str, str, str, str], registry: Registry, pin: Pin) -> Verified:
    moderation = registry.about(pin.slug).moderation
    if moderation is not None and moderation.is_malware_blocked:
        return Verified(*row, "blocked", "the registry has blocked it as malware: remove it")
    listed = registry.version(pin.slug, pin.version).version
    files = {each.path: each.sha256 for each in (listed.files or ())} if listed else {}
    wrong = [path for path, digest in files.items() if pin.files.get(path, digest) != digest]
    if wrong:
        return Verified(*row, "different", f"the registry has another {wrong[0]} under the same version now")
    held = "the registry has doubts about it" if moderation is not None and moderation.is_suspicious else ""
    return Verified(*row, "intact", held)


def _unpinned(ground: Ground) -> Iterator[Verified]:
    """What the clawhub command has installed for all agents, and we have no digest of."""
    root = ground.home.root / "skills"
    skills = client_lock(root).get("skills")
    pins = known_pins(ground.home.root)
    for slug, entry in skills.items() if isinstance(skills, dict) else ():
        folder = root / slug
        if isinstance(entry, dict) and folder.is_dir() and pins.of(str(folder)) is None:
            version = str(entry.get("version") or "")
            yield Verified(slug, version, str(folder), "clawhub", "unpinned", "installed by another client: no digest")
